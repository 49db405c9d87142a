package transport

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// hosts is which Host headers are ours. A browser that was told that evil.example is at 127.0.0.1
// (DNS rebinding) sends that name here.
type hosts struct {
	checked bool
	allowed []string // lower case
}

func newHosts(configured []string, loopback bool) hosts {
	h := hosts{checked: loopback || len(configured) > 0}
	for _, c := range configured {
		h.allowed = append(h.allowed, strings.ToLower(c))
	}
	return h
}

func (h hosts) allow(host string) bool {
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

// allowOrigin says whether a browser's page may talk to us, and tells the browser so. A page of our
// own origin may if our Host was checked; we serve none, but local clients send it.
func (f *HTTPServer) allowOrigin(h http.Header, origin, host string) bool {
	h.Add("Vary", "Origin")
	if slices.Contains(f.o.AllowedOrigins, origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
		return true
	}
	return f.hosts.checked && strings.EqualFold(origin, "http://"+host)
}

// preflight answers a browser that asks what it may send; its Origin has been allowed.
func preflight(h, asked http.Header, methods []string) {
	h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	if names := asked.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names) // they are checked when they are sent
	}
	h.Set("Access-Control-Max-Age", "600")
}

// repeated says which header that has one value came with several. Those of MCP are checked by
// downstream, which answers them in the protocol's way.
func repeated(h http.Header) string {
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

// isJSON says whether a Content-Type is application/json, whatever its parameters.
func isJSON(contentType string) bool {
	return mediaType(contentType) == "application/json"
}

func mediaType(contentType string) string {
	t, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// acceptable says whether a client takes JSON or an event stream. Many name only one of the two, or
// none, and take both.
func acceptable(accept []string) bool {
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
				if !zeroQuality(params) {
					return true
				}
			}
		}
	}
	return !named
}

func zeroQuality(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && q == 0
		}
	}
	return false
}

// clip is s as it may stand in a reason.
func clip(s string) string {
	return s[:min(len(s), 200)]
}
