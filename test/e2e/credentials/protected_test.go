package credentials

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// protected is a server of the go-sdk that wants tokens of its authorization server. Its tool
// "whoami" returns the subject of the token.
type protected struct {
	t            *testing.T
	provider     *provider // nil if it is auth
	server, auth *httptest.Server
	needs        []string // scopes of the challenge

	mu      sync.Mutex
	tokens  map[string]*auth.TokenInfo
	issued  int
	seen    []http.Header   // of all requests to the server, with their URLs in the header ":url"
	refused map[string]bool // tokens that the server does not accept although they are valid
}

// newProtected starts the server with an authorization server that has no login.
func newProtected(t *testing.T, keepsSessions bool) *protected {
	p := &protected{t: t, tokens: map[string]*auth.TokenInfo{}, needs: []string{"read"}}
	p.auth = httptest.NewServer(http.HandlerFunc(p.serveAuth))
	t.Cleanup(p.auth.Close)
	p.serve(keepsSessions, p.auth.URL, func(token string) (*auth.TokenInfo, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if info := p.tokens[token]; info != nil {
			return info, nil
		}
		return nil, auth.ErrInvalidToken
	})
	return p
}

// protectedBy starts the server with an oidc-provider as its authorization server.
func protectedBy(t *testing.T, a *provider, keepsSessions bool) *protected {
	p := &protected{t: t, provider: a, needs: []string{"read"}}
	p.serve(keepsSessions, a.issuer, func(token string) (*auth.TokenInfo, error) {
		return a.check(token, p.url())
	})
	return p
}

// serve starts the server, whose authorization server is issuer. Servers of the go-sdk that keep
// sessions are legacy servers.
func (p *protected) serve(keepsSessions bool, issuer string,
	verify func(token string) (*auth.TokenInfo, error)) {
	s := mcp.NewServer(&mcp.Implementation{Name: "protected", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "whoami"}, func(ctx context.Context, r *mcp.CallToolRequest,
		_ struct{}) (*mcp.CallToolResult, any, error) {
		info := auth.TokenInfoFromContext(ctx)
		if info == nil {
			info = r.Extra.TokenInfo
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{
			Text: "you are " + info.UserID}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "scopes"}, func(ctx context.Context, r *mcp.CallToolRequest,
		_ struct{}) (*mcp.CallToolResult, any, error) {
		info := auth.TokenInfoFromContext(ctx)
		if r.Extra.TokenInfo != nil {
			info = r.Extra.TokenInfo
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{
			Text: "the scopes are " + strings.Join(info.Scopes, " ") + "."}}}, nil, nil
	})
	mux := http.NewServeMux()
	p.server = httptest.NewServer(mux)
	p.t.Cleanup(func() { p.server.Close(); p.check() })
	check := auth.RequireBearerToken(func(_ context.Context, token string,
		_ *http.Request) (*auth.TokenInfo, error) {
		p.mu.Lock()
		isRefused := p.refused[token]
		p.mu.Unlock()
		if isRefused {
			return nil, auth.ErrInvalidToken
		}
		return verify(token)
	}, &auth.RequireBearerTokenOptions{Scopes: p.needs,
		ResourceMetadataURL: p.server.URL + "/.well-known/oauth-protected-resource/mcp"})
	handler := check(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: !keepsSessions}))
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		seen := r.Header.Clone()
		seen.Set(":url", r.URL.String())
		p.seen = append(p.seen, seen)
		p.mu.Unlock()
		handler.ServeHTTP(w, r)
	})
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(
		&oauthex.ProtectedResourceMetadata{Resource: p.url(),
			AuthorizationServers: []string{issuer}, ScopesSupported: p.needs}))
}

func (p *protected) url() string { return p.server.URL + "/mcp" }

// serveAuth is the authorization server. It knows the client gatekit with the secret s3cret.
func (p *protected) serveAuth(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasPrefix(r.URL.Path, "/.well-known/oauth-authorization-server"):
		json.NewEncoder(w).Encode(oauthex.AuthServerMeta{Issuer: p.auth.URL,
			TokenEndpoint:                     p.auth.URL + "/token",
			AuthorizationEndpoint:             p.auth.URL + "/authorize",
			ResponseTypesSupported:            []string{"code"},
			CodeChallengeMethodsSupported:     []string{"S256"},
			TokenEndpointAuthMethodsSupported: []string{"client_secret_basic"}})
	case r.URL.Path == "/token":
		id, secret, _ := r.BasicAuth()
		if id != "gatekit" || secret != "s3cret" || r.FormValue("resource") != p.url() {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client","error_description":"secret-description"}`)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.issued++
		token := fmt.Sprintf("secret-token-%d", p.issued)
		p.tokens[token] = &auth.TokenInfo{UserID: id, Scopes: strings.Fields(r.FormValue("scope")),
			Expiration: time.Now().Add(time.Hour)}
		json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer",
			"expires_in": 3600})
	default:
		http.NotFound(w, r)
	}
}

// refuse makes the server refuse a token that is still valid.
func (p *protected) refuse(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil {
		p.refused = map[string]bool{}
	}
	p.refused[token] = true
}

// revoke makes all tokens invalid.
func (p *protected) revoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.tokens)
}

// check fails the test if the server got a header of a client.
func (p *protected) check() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.seen, func(h http.Header) bool {
		s := fmt.Sprint(h)
		return strings.Contains(s, "canary") || containsStaticToken(s) ||
			p.provider != nil && p.provider.hasClientToken(s)
	}); i >= 0 {
		p.t.Errorf("the server got credentials of a client: %q", p.seen[i])
	}
}

// containsStaticToken reports whether s contains a token of gatekit auth token. A random token of
// an authorization server can contain the prefix of such a token.
func containsStaticToken(s string) bool {
	found, err := regexp.MatchString("gk_[^_]*_[0-9a-f]{64}", s)
	return found || err != nil
}
