package transport

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"gatekit/core/display"
)

// allowedHosts are the values of the Host header that are accepted. They protect against DNS
// rebinding: if the host name of a web page, evil.example, resolves to 127.0.0.1, the browser sends
// evil.example as the Host.
type allowedHosts struct {
	checked bool
	allowed []string // lower case
}

// newAllowedHosts returns the configured hosts. The loopback hosts are always allowed in addition.
// If no host is configured, Host is checked only if the server listens on loopback.
func newAllowedHosts(configured []string, loopback bool) allowedHosts {
	h := allowedHosts{checked: loopback || len(configured) > 0}
	for _, c := range configured {
		h.allowed = append(h.allowed, strings.ToLower(c))
	}
	return h
}

// allows reports whether a request may have the given Host.
func (h allowedHosts) allows(host string) bool {
	if !h.checked {
		return true
	}
	host = strings.ToLower(host)
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), ".")
	if name == "localhost" || slices.Contains(h.allowed, host) || slices.Contains(h.allowed, name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback() && ip.Zone() == ""
}

// allowOrigin reports whether web pages with this origin may send requests. It adds to h the
// headers that the browser needs for that. The server's own origin is allowed if Host has been
// checked: web pages cannot have that origin, and some local clients send it.
func (s *HTTPServer) allowOrigin(h http.Header, origin, host string) bool {
	h.Add("Vary", "Origin")
	if slices.Contains(s.o.AllowedOrigins, origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
		return true
	}
	scheme := "http://"
	if s.o.TLS != nil {
		scheme = "https://"
	}
	return s.hosts.checked && strings.EqualFold(origin, scheme+host)
}

// writePreflight writes the headers of the answer to a browser's preflight request. The caller has
// checked the Origin.
func writePreflight(h, asked http.Header, methods []string) {
	h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	if names := asked.Get("Access-Control-Request-Headers"); names != "" {
		// The server checks the values of these headers in the request that follows.
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", "600") // seconds
}

// repeatedHeader checks headers that may have only one value. If such a header came twice with
// different values, it returns the reason for refusing the request, otherwise "". core/downstream
// checks the headers of MCP.
func repeatedHeader(h http.Header) string {
	for _, name := range [...]string{"Content-Type", "Content-Encoding", "Origin", "Authorization",
		"Last-Event-Id"} {
		values := h[name]
		for _, v := range values[min(1, len(values)):] {
			if v != values[0] {
				return fmt.Sprintf("header %s came twice with different values", name)
			}
		}
	}
	return ""
}

// isJSON reports whether a Content-Type is application/json, with any parameters.
func isJSON(contentType string) bool {
	return mediaType(contentType) == "application/json"
}

// mediaType returns a Content-Type without its parameters, in lower case.
func mediaType(contentType string) string {
	t, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// hostNotAllowed returns the reason for refusing the Host of r.
func hostNotAllowed(r *http.Request) string {
	return "Host " + display.Quote(r.Host, maxQuoted) + " is not allowed"
}

// maxQuoted is the maximum number of bytes of a client's text that a reason quotes.
const maxQuoted = 200
