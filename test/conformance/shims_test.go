package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// forwardTo returns a proxy to the address of a URL. change edits each request.
func forwardTo(server string, change func(*httputil.ProxyRequest)) *httputil.ReverseProxy {
	to, err := url.Parse(server)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		r.Out.Host = r.In.Host // gatekit checks it
		change(r)
	}}
}

// restrictToEra returns a proxy to a server. Like a server of one era, it rejects the first request
// of the other era.
func restrictToEra(era, server string) http.Handler {
	refused := []byte(map[string]string{"legacy": `"method":"server/discover"`,
		"modern": `"method":"initialize"`}[era])
	pass := forwardTo(server, func(*httputil.ProxyRequest) {})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || bytes.Contains(body, refused) {
			http.Error(w, "not in this era", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		pass.ServeHTTP(w, r)
	})
}

// proxyWithoutPrefix returns the URL of a proxy that exposes the names of the first of gatekit's
// two servers without their prefix, because the suite uses fixed names. The proxy adds the prefix
// to requests and removes it from answers. It does not change the names of the other server.
func proxyWithoutPrefix(t *testing.T, gatekit string) string {
	var others atomic.Int64
	shim := forwardTo(gatekit, addPrefix)
	shim.ErrorLog = log.New(t.Output(), "", 0)
	shim.ModifyResponse = func(r *http.Response) error {
		r.Header.Del("Content-Length")
		r.Body = &withoutPrefix{ReadCloser: r.Body, lines: bufio.NewReader(r.Body),
			saw: func(server, uri string) {
				switch server {
				case serverNames[0]:
				case serverNames[1]:
					others.Add(1)
				default:
					t.Errorf("a client got the URI %s, want one with the prefix of a server", uri)
				}
			}}
		return nil
	}
	server := httptest.NewServer(shim)
	t.Cleanup(func() {
		server.Close()
		if others.Load() == 0 {
			t.Error("the client got no resource of the other server, want some")
		}
	})
	return server.URL + "/mcp"
}

// addPrefix adds the prefix to the names in a request's body and header. It does not change a body
// that is not a JSON object.
func addPrefix(r *httputil.ProxyRequest) {
	if name := r.In.Header.Get("Mcp-Name"); name != "" {
		separator := map[bool]string{true: "+",
			false: "__"}[r.In.Header.Get("Mcp-Method") == "resources/read"]
		r.Out.Header.Set("Mcp-Name", serverNames[0]+separator+name)
	}
	body, _ := io.ReadAll(r.In.Body)
	var message map[string]any
	if d := json.NewDecoder(bytes.NewReader(body)); json.Valid(body) && body[0] == '{' {
		d.UseNumber()
		d.Decode(&message)
		params, _ := message["params"].(map[string]any)
		put := func(in any, member, separator string) {
			if in, ok := in.(map[string]any); ok {
				if name, ok := in[member].(string); ok {
					in[member] = serverNames[0] + separator + name
				}
			}
		}
		switch message["method"] {
		case "tools/call", "prompts/get":
			put(params, "name", "__")
		case "resources/read", "resources/subscribe", "resources/unsubscribe":
			put(params, "uri", "+")
		case "completion/complete":
			put(params["ref"], "name", "__")
			put(params["ref"], "uri", "+")
		case "subscriptions/listen":
			filter, _ := params["notifications"].(map[string]any)
			uris, _ := filter["resourceSubscriptions"].([]any)
			for i := range uris {
				uris[i] = fmt.Sprint(serverNames[0], "+", uris[i])
			}
		}
		body, _ = json.Marshal(message)
	}
	r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// withoutPrefix is the body of a response with the prefix removed from its strings.
type withoutPrefix struct {
	io.ReadCloser
	lines *bufio.Reader // one message a line
	rest  []byte        // rest of the current line
	err   error         // returned after rest
	// saw gets each URI and its server, which is the text before the first +.
	saw func(server, uri string)
}

var (
	namePrefix = regexp.MustCompile(`([:,\[]\s*)"` + serverNames[0] + `(__|\+)`)
	uriMember  = regexp.MustCompile(`"uri(?:Template)?":\s*"([^"]*)"`)
)

func (b *withoutPrefix) Read(p []byte) (n int, err error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.rest, b.err = b.lines.ReadBytes('\n')
		for _, uri := range uriMember.FindAllSubmatch(b.rest, -1) {
			server, _, _ := strings.Cut(string(uri[1]), "+")
			b.saw(server, string(uri[1]))
		}
		b.rest = namePrefix.ReplaceAll(b.rest, []byte(`$1"`))
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
