package credentials_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/core/upstream"
	"gatekit/transport/credentials"

	"github.com/go-json-experiment/json"
)

// world is an MCP server that wants tokens, and its authorization server. Its fields are set before
// the first request.
type world struct {
	t      *testing.T
	server *httptest.Server
	auth   *httptest.Server

	// changes the metadata before it is sent
	editResource, editAuth func(map[string]any)
	noChallengeURL         bool     // the 401 does not name the metadata
	metadataPaths          []string // of the resource's metadata; nil: the path in the challenge
	metadataStatus         int      // of the resource's metadata; 0: 200
	authStatus             int      // of the authorization server's metadata; 0: 200
	needs                  []string // scopes that a token must have
	lifetime               int      // of tokens, in seconds; 0: 3600
	// answers requests to the token endpoint in place of the usual answer; may be nil
	tokenEndpoint func(w http.ResponseWriter, form map[string]string) bool

	mu     sync.Mutex
	forms  []map[string]string // the forms of the requests to the token endpoint
	tokens map[string][]string // the scopes of each valid token
	seen   []string            // the header Authorization of each request to the server
	paths  []string            // of all requests for metadata
	events []string

	eventErr  error // of every event
	always403 bool  // the server refuses every token, as if it had too few scopes
	getStatus int   // of the server's answers to GET; 0: as to POST
	// answers registrations; may be nil
	registration func(w http.ResponseWriter, r *http.Request)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, tokens: map[string][]string{}}
	w.server = httptest.NewServer(http.HandlerFunc(w.serveResource))
	w.auth = httptest.NewServer(http.HandlerFunc(w.serveAuth))
	t.Cleanup(w.server.Close)
	t.Cleanup(w.auth.Close)
	return w
}

func (w *world) url() string { return w.server.URL + "/mcp" }

func writeJSON(rw http.ResponseWriter, status int, v any) {
	b, _ := json.Marshal(v)
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	rw.Write(b)
}

func (w *world) serveResource(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const metadata = "/.well-known/oauth-protected-resource"
	if strings.HasPrefix(r.URL.Path, "/.well-known/") || r.URL.Path == "/metadata" {
		w.paths = append(w.paths, r.URL.Path)
		paths := w.metadataPaths
		if paths == nil {
			paths = []string{"/metadata"}
		}
		switch {
		case w.metadataStatus != 0:
			rw.WriteHeader(w.metadataStatus)
		case !slices.Contains(paths, r.URL.Path):
			http.NotFound(rw, r)
		default:
			resource := w.url()
			if r.URL.Path == metadata {
				resource = w.server.URL
			}
			m := map[string]any{"resource": resource, "authorization_servers": []string{w.auth.URL},
				"scopes_supported": []string{"read"}}
			if w.editResource != nil {
				w.editResource(m)
			}
			writeJSON(rw, 200, m)
		}
		return
	}
	if r.Method == http.MethodGet && w.getStatus != 0 {
		rw.WriteHeader(w.getStatus)
		return
	}
	authorization := r.Header.Get("Authorization")
	w.seen = append(w.seen, authorization)
	token, _ := strings.CutPrefix(authorization, "Bearer ")
	scopes, valid := w.tokens[token]
	challenge := "Bearer"
	if !w.noChallengeURL {
		challenge += fmt.Sprintf(` resource_metadata="%s/metadata"`, w.server.URL)
	}
	if !valid {
		rw.Header().Set("WWW-Authenticate", challenge)
		writeJSON(rw, 401, map[string]any{"jsonrpc": "2.0", "id": 1,
			"error": map[string]any{"code": -32001, "message": "relayed-secret"}})
		return
	}
	if w.always403 || slices.ContainsFunc(w.needs, func(s string) bool {
		return !slices.Contains(scopes, s)
	}) {
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf(
			`Bearer error="insufficient_scope", scope="%s"`, strings.Join(w.needs, " ")))
		rw.WriteHeader(403)
		return
	}
	writeJSON(rw, 200, map[string]any{"token": token})
}

func (w *world) serveAuth(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(r.URL.Path, "/.well-known/") {
		w.paths = append(w.paths, r.URL.Path)
		if w.authStatus != 0 {
			rw.WriteHeader(w.authStatus)
			return
		}
		m := map[string]any{"issuer": w.auth.URL, "token_endpoint": w.auth.URL + "/token",
			"authorization_endpoint":                w.auth.URL + "/authorize",
			"code_challenge_methods_supported":      []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_basic"},
			"response_types_supported":              []string{"code"}}
		if w.editAuth != nil {
			w.editAuth(m)
		}
		writeJSON(rw, 200, m)
		return
	}
	if r.URL.Path == "/register" && w.registration != nil {
		w.registration(rw, r)
		return
	}
	r.ParseForm()
	form := map[string]string{}
	for name, values := range r.Form {
		form[name] = strings.Join(values, ",")
	}
	if id, secret, ok := r.BasicAuth(); ok {
		form["client_id"], form["client_secret"] = id, secret
	}
	w.forms = append(w.forms, form)
	if w.tokenEndpoint != nil && w.tokenEndpoint(rw, form) {
		return
	}
	w.issue(rw, strings.Fields(form["scope"]), nil)
}

// issue writes an answer with a new token. w.mu is held.
func (w *world) issue(rw http.ResponseWriter, scopes []string, more map[string]any) string {
	token := fmt.Sprintf("token-%d", len(w.forms))
	w.tokens[token] = scopes
	lifetime := w.lifetime
	if lifetime == 0 {
		lifetime = 3600
	}
	answer := map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": lifetime,
		"scope": strings.Join(scopes, " ")}
	for k, v := range more {
		answer[k] = v
	}
	writeJSON(rw, 200, answer)
	return token
}

// revoke makes all tokens invalid.
func (w *world) revoke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.tokens)
}

func (w *world) event(principal, action, reason string, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, strings.TrimSpace(principal+" "+action))
	if text := fmt.Sprint(reason, err); strings.Contains(text, "token-") {
		w.t.Errorf("an event contains a token: %s", text)
	}
	return w.eventErr
}

// snapshot returns what the authorization server and the server have seen so far.
func (w *world) snapshot() (forms []map[string]string, seen, events []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.forms), slices.Clone(w.seen), slices.Clone(w.events)
}

// options returns the options of a client for the world.
func (w *world) options(grant credentials.Grant) credentials.Options {
	return credentials.Options{Name: "github", URL: w.url(), Grant: grant,
		Client: credentials.Client{ID: "gatekit", Secret: "client-secret"},
		HTTP:   &http.Client{Timeout: 10 * time.Second}, Event: w.event}
}

// open returns the credentials, which are closed with the test.
func open(t *testing.T, o credentials.Options) *credentials.Server {
	s := credentials.New(o)
	t.Cleanup(s.Close)
	return s
}

// plainHTTP is an upstream.HTTP without credentials.
type plainHTTP struct{ url string }

func (p plainHTTP) do(ctx context.Context, method string, header http.Header,
	body []byte) (*upstream.HTTPResponse, error) {
	request, err := http.NewRequestWithContext(ctx, method, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return &upstream.HTTPResponse{Status: response.StatusCode, Header: response.Header,
		Body: content}, err
}

func (p plainHTTP) Post(ctx context.Context, header http.Header,
	body ...[]byte) (*upstream.HTTPResponse, error) {
	return p.do(ctx, "POST", header, bytes.Join(body, nil))
}

func (p plainHTTP) Get(ctx context.Context, header http.Header) (*upstream.HTTPResponse, error) {
	return p.do(ctx, "GET", header, nil)
}

func (p plainHTTP) Delete(ctx context.Context, header http.Header) (*upstream.HTTPResponse, error) {
	return p.do(ctx, "DELETE", header, nil)
}

// call posts a message as a principal and returns the body of the answer.
func (w *world) call(s *credentials.Server, principal string) (string, error) {
	var who *identity.Principal
	if principal != "" {
		var err error
		if who, err = identity.New(identity.Attributes{Method: identity.Token,
			Subject: principal}); err != nil {
			w.t.Error(err)
		}
	}
	header := http.Header{"Authorization": {"Bearer of-the-client"}}
	response, err := s.Over(plainHTTP{w.url()}).As(who).Post(w.t.Context(), header,
		[]byte(`{"jsonrpc":`), []byte(`"2.0"}`))
	if err != nil {
		return "", err
	}
	return string(response.Body), nil
}
