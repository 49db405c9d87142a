package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"gatekit/transport/tokenstore"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxRegistration is the largest answer to a registration that is read, in bytes.
const maxRegistration = 64 << 10

// Kinds of applications (OpenID Connect Dynamic Client Registration).
const (
	applicationNative = "native"
	applicationWeb    = "web"
)

func (s *Server) registrationID(kind, issuer string) tokenstore.ID {
	return tokenstore.ID{Kind: kind, Server: s.o.Name, Issuer: issuer}
}

// loginClient returns the client for a login, and its redirect URI: the client of the
// configuration, or else Gatekit's client metadata document if the authorization server reads it,
// or else the client that is registered at the authorization server. The registration has the given
// kind.
func (s *Server) loginClient(ctx context.Context, e *endpoints, kind string,
	redirect func(known string) (string, error)) (Client, string, error) {
	client := s.o.Client
	if client.ID == "" && e.as.ClientIDMetadataDocumentSupported {
		client.ID = s.o.Document
	}
	switch {
	case client.ID != "" && (!s.o.Register || e.as.ClientIDMetadataDocumentSupported):
		to, err := redirect("")
		return client, to, err
	case !s.o.Register:
		return Client{}, "", fmt.Errorf("the authorization server %q does not read client "+
			"metadata documents\nhint: register Gatekit there by hand and set client = "+
			"{ id = \"…\" }, or set register = true", e.as.Issuer)
	}
	id := s.registrationID(kind, e.as.Issuer)
	ctx, unlock, err := s.o.Store.Lock(ctx, id)
	if err != nil {
		return Client{}, "", err
	}
	defer unlock()
	r, err := s.o.Store.Load(id)
	// The port of a loopback address may change (RFC 8252), and Callback with the configuration.
	if err == nil && (r.Expiry.IsZero() || time.Until(r.Expiry) > 0) &&
		(kind == tokenstore.Registration || r.Redirect == s.o.Callback) {
		to, err := redirect(r.Redirect)
		return registeredClient(r), to, err
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Client{}, "", err
	}
	to, err := redirect("")
	if err != nil {
		return Client{}, "", err
	}
	if r, err = s.register(ctx, e, id, to); err != nil {
		return Client{}, "", err
	}
	if err := s.event("", ActionRegistered, fmt.Sprintf("issuer %s, client %s", e.as.Issuer,
		r.ClientID), nil); err != nil {
		return Client{}, "", fmt.Errorf("record the registration: %w", err)
	}
	return registeredClient(r), to, s.o.Store.Save(r)
}

func registeredClient(r *tokenstore.Record) Client {
	return Client{ID: r.ClientID, Secret: r.Secrets.ClientSecret, AuthMethod: r.AuthMethod}
}

// registration describes Gatekit for an authorization server (RFC 7591).
type registration struct {
	ClientName      string   `json:"client_name"`
	ApplicationType string   `json:"application_type"`
	RedirectURIs    []string `json:"redirect_uris"`
	GrantTypes      []string `json:"grant_types"`
	ResponseTypes   []string `json:"response_types"`
	AuthMethod      string   `json:"token_endpoint_auth_method"`
}

// registered holds the members of the answer that matter. The answer may have others.
type registered struct {
	ClientID     string         `json:"client_id"`
	ClientSecret string         `json:"client_secret"`
	Expires      int64          `json:"client_secret_expires_at"`
	AuthMethod   string         `json:"token_endpoint_auth_method"`
	Other        jsontext.Value `json:",inline"`
}

// register registers Gatekit at an authorization server.
func (s *Server) register(ctx context.Context, e *endpoints, id tokenstore.ID,
	redirect string) (*tokenstore.Record, error) {
	fail := func(err error) (*tokenstore.Record, error) {
		return nil, fmt.Errorf("register at the authorization server %q: %w", e.as.Issuer, err)
	}
	if e.as.RegistrationEndpoint == "" {
		return fail(errors.New("it does not register clients\nhint: register Gatekit there by " +
			"hand, and set client = { id = \"…\" }"))
	}
	// A method that the authorization server does not list would be refused.
	method, supported := methodBasic, e.as.TokenEndpointAuthMethodsSupported
	for _, m := range []string{methodPost, methodBasic, methodNone} {
		if slices.Contains(supported, m) {
			method = m
		}
	}
	// A grant that the authorization server does not know could be refused, too.
	grants := []string{grantCode, grantRefresh}
	if e.as.DeviceAuthorizationEndpoint != "" {
		grants = append(grants, grantDevice)
	}
	application := applicationNative
	if strings.HasPrefix(redirect, "https:") {
		application = applicationWeb
	}
	body, err := json.Marshal(registration{ClientName: "Gatekit", ApplicationType: application,
		RedirectURIs: []string{redirect}, GrantTypes: grants, ResponseTypes: []string{"code"},
		AuthMethod: method})
	if err != nil {
		return fail(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.as.RegistrationEndpoint,
		bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := s.o.HTTP.Do(request)
	if err != nil {
		return fail(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxRegistration+1))
	var a registered
	switch {
	case err != nil:
		return fail(err)
	case response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusOK:
		return fail(fmt.Errorf("it responded with HTTP %d", response.StatusCode))
	case len(content) > maxRegistration || json.Unmarshal(content, &a) != nil || a.ClientID == "":
		return fail(errors.New("its answer is not a registration"))
	}
	switch a.AuthMethod {
	case "": // RFC 7591: the default is client_secret_basic
		a.AuthMethod = method
	case methodBasic, methodPost, methodNone:
	default:
		return fail(fmt.Errorf("it wants clients to authenticate with %.50q", a.AuthMethod))
	}
	r := &tokenstore.Record{ID: id, AuthorizationServer: e.as.Issuer,
		ClientID: a.ClientID, AuthMethod: a.AuthMethod, Redirect: redirect,
		Secrets: tokenstore.Secrets{ClientSecret: a.ClientSecret}}
	if a.Expires > 0 && a.ClientSecret != "" {
		r.Expiry = time.Unix(a.Expires, 0)
	}
	return r, nil
}

// forgetUnknown removes the registration of a client if err is the refusal of an authorization
// server that does not know the client. Then the next login registers Gatekit again.
func (s *Server) forgetUnknown(client Client, issuer string, err error) error {
	refused, ok := errors.AsType[*tokenError](err)
	if !ok || refused.code != "invalid_client" || !s.isRegistered(client.ID) {
		return nil
	}
	var errs []error
	for _, kind := range []string{tokenstore.Registration, tokenstore.PageRegistration} {
		id := s.registrationID(kind, issuer)
		r, err := s.o.Store.Load(id)
		if err == nil && r.ClientID != client.ID || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, s.o.Store.Delete(id))
	}
	return errors.Join(errs...)
}
