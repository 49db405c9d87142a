package credentials

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"gatekit/test/harness"
)

// front is a proxy before gatekit, at the public URL.
type front struct {
	*httptest.Server
	target atomic.Pointer[url.URL]
}

// startFront starts a proxy that nothing is behind yet. With TLS, its certificate is for
// example.com and 127.0.0.1, and is its own authority.
func startFront(t *testing.T, withTLS bool) *front {
	f := &front{}
	f.Server = httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(
		r *httputil.ProxyRequest) {
		r.SetURL(f.target.Load())
		r.Out.Host = r.In.Host
	}})
	if withTLS {
		f.StartTLS()
	} else {
		f.Start()
	}
	t.Cleanup(f.Close)
	return f
}

// forward makes the proxy forward requests to a gatekit.
func (f *front) forward(t *testing.T, g *harness.Gatekit) {
	t.Helper()
	u, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	f.target.Store(&url.URL{Scheme: u.Scheme, Host: u.Host})
}
