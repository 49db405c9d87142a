package transport

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/display"
)

// allowedHosts are the Host headers that are accepted. They protect against DNS rebinding: when a
// web page has its own name evil.example resolved to 127.0.0.1, the browser sends evil.example as
// the Host.
type allowedHosts struct {
	checked bool
	allowed []string // lower case
}

// newHosts returns the configured hosts. The loopback hosts are always among them.
func newHosts(configured []string, loopback bool) allowedHosts {
	h := allowedHosts{checked: loopback || len(configured) > 0}
	for _, c := range configured {
		h.allowed = append(h.allowed, strings.ToLower(c))
	}
	return h
}

// allows reports whether a request may name host.
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

// allowOrigin reports whether pages of origin may send requests, and sets the headers in h that
// tell the browser. The server's own origin is allowed if Host has been checked: no web page has
// it, but local clients send it.
func (s *HTTPServer) allowOrigin(h http.Header, origin, host string) bool {
	h.Add("Vary", "Origin")
	if slices.Contains(s.o.AllowedOrigins, origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
		return true
	}
	return s.hosts.checked && strings.EqualFold(origin, "http://"+host)
}

// writePreflight writes the headers that answer a browser's preflight request. Its Origin has been
// allowed.
func writePreflight(h, asked http.Header, methods []string) {
	h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	if names := asked.Get("Access-Control-Request-Headers"); names != "" {
		// The values of these headers are checked when the browser sends them.
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", "600")
}

// repeatedHeader returns a reason for refusing a request in which a header that has one value came
// twice with different values, or "". core/downstream checks the headers of MCP.
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

// acceptsReply reports whether a client accepts JSON or an event stream. A client that names only
// one of the two, or no type at all, is taken to accept both.
func acceptsReply(accept []string) bool {
	named := false
	for _, line := range accept {
		for item := range strings.SplitSeq(line, ",") {
			kind, params, _ := strings.Cut(item, ";")
			kind = strings.TrimSpace(kind)
			if kind == "" {
				continue
			}
			named = true
			switch strings.ToLower(kind) {
			case "*/*", "application/*", "application/json", "text/*", "text/event-stream":
				if !hasZeroQuality(params) {
					return true
				}
			}
		}
	}
	return !named
}

// hasZeroQuality reports whether the parameters of an accepted type refuse it: q=0.
func hasZeroQuality(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && q == 0
		}
	}
	return false
}

// hostNotAllowed returns the reason for refusing the Host of r.
func hostNotAllowed(r *http.Request) string {
	return "Host " + display.Quote(r.Host, maxQuoted) + " is not allowed"
}

// maxQuoted bounds how much of a client's text is quoted in a reason.
const maxQuoted = 200
