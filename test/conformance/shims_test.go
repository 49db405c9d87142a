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

// through passes requests on to the address of a URL, as they came but for what change does.
func through(server string, change func(*httputil.ProxyRequest)) *httputil.ReverseProxy {
	to, err := url.Parse(server)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
		r.Out.Host = r.In.Host // gatekit is to judge it
		change(r)
	}}
}

// onlyEra leaves a client but one era to reach a server in: what opens the other is refused, as by
// a server that does not know it.
func onlyEra(era, server string) http.Handler {
	refused := []byte(map[string]string{"legacy": `"method":"server/discover"`,
		"modern": `"method":"initialize"`}[era])
	pass := through(server, func(*httputil.ProxyRequest) {})
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

// withoutNamespace answers a URL at which the first of gatekit's two servers is found under its own
// names: the suite knows no others. They are put into the server's namespace on the way in, and
// taken out on the way back. All else stays as it is, the names of the other server too.
func withoutNamespace(t *testing.T, gatekit string) string {
	var others atomic.Int64
	shim := through(gatekit, nameIn)
	shim.ErrorLog = log.New(t.Output(), "", 0)
	shim.ModifyResponse = func(r *http.Response) error {
		r.Header.Del("Content-Length")
		r.Body = &bare{ReadCloser: r.Body, lines: bufio.NewReader(r.Body),
			saw: func(server, uri string) {
				switch server {
				case aliases[0]:
				case aliases[1]:
					others.Add(1)
				default:
					t.Errorf("a client is shown %s, which is in no namespace", uri)
				}
			}}
		return nil
	}
	server := httptest.NewServer(shim)
	t.Cleanup(func() {
		server.Close()
		if others.Load() == 0 {
			t.Error("the other server's resources were never shown")
		}
	})
	return server.URL + "/mcp"
}

// nameIn puts what a request names into the namespace, in its body and in its header. A body that
// is no object stays as it is.
func nameIn(r *httputil.ProxyRequest) {
	if name := r.In.Header.Get("Mcp-Name"); name != "" {
		mark := map[bool]string{true: "+",
			false: "__"}[r.In.Header.Get("Mcp-Method") == "resources/read"]
		r.Out.Header.Set("Mcp-Name", aliases[0]+mark+name)
	}
	body, _ := io.ReadAll(r.In.Body)
	var message map[string]any
	if d := json.NewDecoder(bytes.NewReader(body)); json.Valid(body) && body[0] == '{' {
		d.UseNumber()
		d.Decode(&message)
		params, _ := message["params"].(map[string]any)
		put := func(in any, member, mark string) {
			if in, ok := in.(map[string]any); ok {
				if name, ok := in[member].(string); ok {
					in[member] = aliases[0] + mark + name
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
				uris[i] = fmt.Sprint(aliases[0], "+", uris[i])
			}
		}
		body, _ = json.Marshal(message)
	}
	r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// bare is the body of a response, without the namespace that a string in it begins with.
type bare struct {
	io.ReadCloser
	lines *bufio.Reader // a message is on one line
	rest  []byte        // of the line that is being read
	err   error         // after it
	// is told of each URI: the server is what stands before the first +
	saw func(server, uri string)
}

var (
	inNamespace = regexp.MustCompile(`([:,\[]\s*)"` + aliases[0] + `(__|\+)`)
	showsURI    = regexp.MustCompile(`"uri(?:Template)?":\s*"([^"]*)"`)
)

func (b *bare) Read(p []byte) (n int, err error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.rest, b.err = b.lines.ReadBytes('\n')
		for _, uri := range showsURI.FindAllSubmatch(b.rest, -1) {
			server, _, _ := strings.Cut(string(uri[1]), "+")
			b.saw(server, string(uri[1]))
		}
		b.rest = inNamespace.ReplaceAll(b.rest, []byte(`$1"`))
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
