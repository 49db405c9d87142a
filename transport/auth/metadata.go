package auth

import (
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const wellKnown = "/.well-known/oauth-protected-resource"

// Metadata serves the protected resource metadata (RFC 9728), which tells clients
// where to log in. It is public, also for web pages of other origins.
type Metadata struct {
	paths []string
	body  []byte
}

// Metadata returns the metadata, or nil if clients cannot log in at an issuer.
func (a *Authenticator) Metadata() *Metadata { return a.metadata }

// Paths returns the paths at which the metadata is served.
func (m *Metadata) Paths() []string {
	if m == nil {
		return nil
	}
	return m.paths
}

// ServeHTTP serves GET, HEAD and the preflight requests of browsers.
func (m *Metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	switch r.Method {
	case http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", "GET")
		h.Set("Access-Control-Allow-Headers", "*")
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet, http.MethodHead:
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "max-age=600")
		w.Write(m.body)
	default:
		h.Set("Allow", "GET, HEAD, OPTIONS")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// newMetadata returns the metadata of the resource and the URL at which clients find it.
func newMetadata(o Options) (*Metadata, string, error) {
	resource, err := url.Parse(o.Resource)
	if err != nil {
		return nil, "", err
	}
	document := struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Name     string   `json:"resource_name"`
	}{Resource: o.Resource, Scopes: withPrefix(o.scopePrefix(), o.Scopes),
		Methods: []string{"header"}, Name: "Gatekit"}
	for _, i := range o.Issuers {
		document.Servers = append(document.Servers, i.Issuer)
	}
	body, err := json.Marshal(document, jsontext.Multiline(true))
	if err != nil {
		return nil, "", err
	}
	m := &Metadata{body: append(body, '\n'), paths: []string{wellKnown}}
	path := resource.EscapedPath()
	if path == "/" {
		path = ""
	}
	// Something before Gatekit may remove the beginning of the path.
	for _, p := range []string{path, o.Path} {
		if p != "" && (len(m.paths) < 2 || m.paths[1] != wellKnown+p) {
			m.paths = append(m.paths, wellKnown+p)
		}
	}
	return m, resource.Scheme + "://" + resource.Host + wellKnown + path, nil
}
