package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// maxMetadata is the largest metadata document that is read, in bytes.
const maxMetadata = 1 << 20

// errNotThere is the error for a metadata URL with a 4xx status. The next place may be tried.
var errNotThere = errors.New("there is no metadata")

// endpoints is the metadata that is needed to obtain tokens for a server.
type endpoints struct {
	resource string   // the resource identifier of the server
	scopes   []string // that the server's metadata names
	as       *authServer
}

// authServer is the metadata of an authorization server.
type authServer struct {
	oauthex.AuthServerMeta
	DeviceAuthorizationEndpoint string `json:"device_authorization_endpoint"` // RFC 8628
}

// discover returns the endpoints for a server (RFC 9728, then RFC 8414 or OpenID Connect
// Discovery). If pinned is not empty, it must be one of the server's authorization servers.
func (s *Server) discover(ctx context.Context, c challenge, pinned string) (*endpoints, error) {
	if s.o.Grant == identityLogin {
		return s.discoverProvider(ctx)
	}
	resource, err := s.resourceMetadata(ctx, c)
	hasNone := false
	if errors.Is(err, errNotThere) && pinned != "" && c.metadataURL == "" {
		// The operator has named the authorization server of a server without metadata.
		resource = &oauthex.ProtectedResourceMetadata{Resource: s.o.URL,
			AuthorizationServers: []string{pinned}}
		hasNone = s.o.WithoutMetadata
	} else if err != nil {
		return nil, fmt.Errorf("read the metadata of the server: %w", err)
	}
	issuers := resource.AuthorizationServers
	issuer := pinned
	switch {
	case len(issuers) == 0:
		return nil, errors.New("the metadata of the server names no authorization server")
	case pinned == "":
		issuer = issuers[0]
	case !slices.Contains(issuers, pinned):
		return nil, fmt.Errorf("the metadata of the server names the authorization servers "+
			"%.300q, and not %q, which this server has had so far\nhint: if that is right, set "+
			"its issuer, or remove the login with gatekit auth logout", issuers, pinned)
	}
	as, err := s.authServerMetadata(ctx, issuer)
	if hasNone && issuer == s.o.Issuer && errors.Is(err, errNotThere) {
		as, err = withoutMetadata(issuer), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the metadata of the authorization server %q: %w", issuer, err)
	}
	return &endpoints{resource.Resource, validScopes(resource.ScopesSupported), as}, nil
}

// resourceMetadata returns the metadata of the server: from the URL in its challenge, or else from
// the well-known places.
func (s *Server) resourceMetadata(ctx context.Context,
	c challenge) (*oauthex.ProtectedResourceMetadata, error) {
	if c.metadataURL != "" {
		return s.resourceMetadataAt(ctx, c.metadataURL, s.o.URL)
	}
	u, err := url.Parse(s.o.URL)
	if err != nil {
		return nil, err
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	origin := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	if path := strings.TrimSuffix(u.EscapedPath(), "/"); path != "" {
		m, err := s.resourceMetadataAt(ctx, origin+wellKnown+path, s.o.URL)
		if !errors.Is(err, errNotThere) {
			return m, err
		}
	}
	return s.resourceMetadataAt(ctx, origin+wellKnown, origin, origin+"/", s.o.URL)
}

// resourceMetadataAt reads the metadata of a resource, which must be one of allowed.
func (s *Server) resourceMetadataAt(ctx context.Context, at string,
	allowed ...string) (*oauthex.ProtectedResourceMetadata, error) {
	var m oauthex.ProtectedResourceMetadata
	if err := s.getJSON(ctx, at, &m); err != nil {
		return nil, err
	}
	if !slices.Contains(allowed, m.Resource) {
		return nil, fmt.Errorf("%q describes the resource %.300q, and not %q", at, m.Resource,
			s.o.URL)
	}
	return &m, nil
}

// authServerMetadata returns the metadata of an authorization server.
func (s *Server) authServerMetadata(ctx context.Context,
	issuer string) (*authServer, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		u.Scheme != "https" && u.Scheme != "http" { // the client refuses http where it must
		return nil, errors.New("it is not the URL of an issuer")
	}
	origin := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	places := []string{origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path}
	if path != "" {
		places = append(places, origin+path+"/.well-known/openid-configuration")
	}
	for _, at := range places {
		var m authServer
		switch err := s.getJSON(ctx, at, &m); {
		case errors.Is(err, errNotThere):
			continue
		case err != nil:
			return nil, err
		case m.Issuer != issuer: // identical: not even a trailing slash is ignored
			return nil, fmt.Errorf("%q is the metadata of the issuer %.300q", at, m.Issuer)
		}
		return &m, nil
	}
	return nil, errNotThere
}

// withoutMetadata returns the endpoints of an authorization server of the revision 2025-03-26 that
// has no metadata.
func withoutMetadata(issuer string) *authServer {
	return &authServer{AuthServerMeta: oauthex.AuthServerMeta{Issuer: issuer,
		AuthorizationEndpoint:         issuer + "/authorize",
		TokenEndpoint:                 issuer + "/token",
		RegistrationEndpoint:          issuer + "/register",
		ResponseTypesSupported:        []string{"code"},
		CodeChallengeMethodsSupported: []string{"S256"}}}
}

// getJSON reads a metadata document. A 4xx status is errNotThere.
func (s *Server) getJSON(ctx context.Context, at string, v any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "gatekit")
	response, err := s.o.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode >= 400 && response.StatusCode < 500:
		return errNotThere
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%q responded with HTTP %d", at, response.StatusCode)
	case mediaType != "application/json":
		return fmt.Errorf("%q is of type %.100q, and not application/json", at, mediaType)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMetadata+1))
	if err == nil && len(body) > maxMetadata {
		err = fmt.Errorf("it has more than %d bytes", maxMetadata)
	}
	if err == nil {
		err = json.Unmarshal(body, v) // refuses duplicate names, compares names exactly
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", at, err)
	}
	return nil
}
