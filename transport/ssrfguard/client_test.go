package ssrfguard_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"gatekit/transport/ssrfguard"
)

// resolver returns a resolver that asks a DNS server of the test. answer returns the addresses of a
// name for the nth question about addresses of this family.
func resolver(t *testing.T, answer func(name string, v6 bool) []netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, peer, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
			name := strings.TrimSuffix(q.Name.String(), ".")
			for _, a := range answer(name, q.Type == dnsmessage.TypeAAAA) {
				var body dnsmessage.ResourceBody
				switch {
				case q.Type == dnsmessage.TypeA && a.Is4():
					body = &dnsmessage.AResource{A: a.As4()}
				case q.Type == dnsmessage.TypeAAAA && a.Is6():
					body = &dnsmessage.AAAAResource{AAAA: a.As16()}
				default:
					continue
				}
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: body})
			}
			if packed, err := m.Pack(); err == nil {
				server.WriteTo(packed, peer)
			}
		}
	}()
	t.Cleanup(func() { server.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// get sends a GET and reads the whole answer.
func get(t *testing.T, o ssrfguard.Options, url string) (string, error) {
	t.Helper()
	client, err := ssrfguard.Client(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	r, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// hasIPv6 reports whether this machine has the loopback address of IPv6.
func hasIPv6() bool {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

func TestAddressesThatAreNotPublicAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, address string }{
		{"loopback", "127.0.0.1"},
		{"loopback, another address", "127.8.9.10"},
		{"loopback v6", "::1"},
		{"unspecified", "0.0.0.0"},
		{"unspecified v6", "::"},
		{"private 10", "10.1.2.3"},
		{"private 172", "172.31.0.1"},
		{"private 192", "192.168.1.1"},
		{"private v6", "fd12:3456::1"},
		{"shared", "100.64.0.1"},
		{"link-local", "169.254.1.1"},
		{"link-local v6", "fe80::1"},
		{"mapped loopback", "::ffff:127.0.0.1"},
		{"mapped private", "::ffff:10.0.0.1"},
		{"mapped metadata", "::ffff:169.254.169.254"},
		{"NAT64 of loopback", "64:ff9b::7f00:1"},
		{"NAT64 of metadata", "64:ff9b::a9fe:a9fe"},
		{"NAT64 with a prefix of its own", "64:ff9b:1::7f00:1"},
		{"6to4 of private", "2002:a00:1::1"},
		{"metadata", "169.254.169.254"},
		{"metadata of AWS v6", "fd00:ec2::254"},
		{"metadata of Alibaba Cloud", "100.100.100.200"},
		{"multicast", "224.0.0.1"},
		{"broadcast", "255.255.255.255"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := netip.MustParseAddr(tt.address)
			if address.Is6() && !hasIPv6() {
				t.Skip("this machine has no IPv6")
			}
			o := ssrfguard.Options{Configured: "https://idp.example", Timeout: 5 * time.Second}
			_, err := get(t, o, "https://"+netip.AddrPortFrom(address, 443).String()+"/")
			if !errors.Is(err, ssrfguard.ErrAddress) {
				t.Errorf("as an address: got error %v, want ErrAddress", err)
			}
			o.Resolver = resolver(t, func(string, bool) []netip.Addr {
				return []netip.Addr{address}
			})
			_, err = get(t, o, "https://idp.example/")
			if !errors.Is(err, ssrfguard.ErrAddress) {
				t.Errorf("as a name: got error %v, want ErrAddress", err)
			}
		})
	}
}

func TestMetadataAddressesAreRefusedInConfiguredNetworks(t *testing.T) {
	for _, address := range []string{"169.254.169.254", "fd00:ec2::254", "100.100.100.200",
		"::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "168.63.129.16",
		"fd20:ce::254", "192.0.0.192", "169.254.170.2"} {
		if netip.MustParseAddr(address).Is6() && !hasIPv6() {
			continue
		}
		for _, configured := range []string{"https://idp.example", "https://" +
			netip.AddrPortFrom(netip.MustParseAddr(address), 443).String()} {
			o := ssrfguard.Options{Configured: configured, Networks: everything,
				Timeout: 5 * time.Second}
			_, err := get(t, o, "https://"+netip.AddrPortFrom(netip.MustParseAddr(address),
				443).String()+"/")
			if !errors.Is(err, ssrfguard.ErrAddress) {
				t.Errorf("%s, configured %s: got error %v, want ErrAddress", address, configured,
					err)
			}
		}
	}
}

// The resolvers of some systems read these names as addresses, and the one of Go reads only some.
func TestNamesThatLookLikeNumbersAreNotReached(t *testing.T) {
	var reached atomic.Int32
	s := httptest.NewUnstartedServer(nil)
	s.Config.ConnState = func(net.Conn, http.ConnState) { reached.Add(1) }
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	r := resolver(t, func(string, bool) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	checked := 0
	for _, host := range []string{"2130706433", "0177.0.0.1", "0x7f.0.0.1", "127.1", "0x7f000001"} {
		_, err := get(t, ssrfguard.Options{Configured: "https://idp.example", Resolver: r},
			"https://"+host+":"+port+"/")
		if errors.Is(err, ssrfguard.ErrAddress) {
			checked++
		} else if _, ok := errors.AsType[*net.DNSError](err); !ok {
			t.Errorf("%s: got error %v, want ErrAddress or that there is no such host", host, err)
		}
	}
	if checked == 0 {
		t.Error("no name was resolved, want at least one")
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the server got %d connections, want none", n)
	}
}

// serve starts a server with TLS and returns options of a client that trusts it.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, ssrfguard.Options) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, ssrfguard.Options{Configured: "https://idp.example", RootCAs: roots,
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
}

func TestConfiguredNetworksAreReached(t *testing.T) {
	s, o := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })
	if got, err := get(t, o, s.URL); err != nil || got != "here" {
		t.Errorf("in networks: got %q and error %v, want the answer", got, err)
	}
	o.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	if _, err := get(t, o, s.URL); !errors.Is(err, ssrfguard.ErrAddress) {
		t.Errorf("outside of networks: got error %v, want ErrAddress", err)
	}
}

// The name has a good address when the first connection is made, and a bad one later.
func TestNameThatChangesItsAddressIsRefused(t *testing.T) {
	var requests atomic.Int32
	s, o := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Connection", "close")
	})
	var rebound atomic.Bool
	o.Resolver = resolver(t, func(string, bool) []netip.Addr {
		if rebound.Load() {
			return []netip.Addr{netip.MustParseAddr("127.0.0.9")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	client, err := ssrfguard.Client(o)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	url := "https://example.com:" + port // a name of httptest's certificate
	for i := range 2 {
		r, err := client.Get(url)
		if err == nil {
			r.Body.Close()
		}
		if i == 0 && err != nil {
			t.Fatalf("before the change: got error %v, want an answer", err)
		}
		if i == 1 && !errors.Is(err, ssrfguard.ErrAddress) {
			t.Errorf("after the change: got error %v, want ErrAddress", err)
		}
		rebound.Store(true)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("the server got %d requests, want 1", n)
	}
}

func TestRedirectsStayInTheirOrigin(t *testing.T) {
	var other atomic.Int32
	second := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		other.Add(1)
	}))
	t.Cleanup(second.Close)
	s, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/end":
			io.WriteString(w, "end")
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		default:
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		}
	})
	if got, err := get(t, o, s.URL+"/same"); err != nil || got != "end" {
		t.Errorf("same origin: got %q and error %v, want the answer", got, err)
	}
	for _, to := range []string{
		"/loop",
		second.URL,
		"http://" + s.Listener.Addr().String() + "/end",
		"https://169.254.169.254/latest/meta-data/",
		"http://169.254.169.254/latest/meta-data/",
		"http://[fd00:ec2::254]/",
		"file:///etc/passwd",
		"gopher://127.0.0.1/",
	} {
		_, err := get(t, o, s.URL+"/redirect?to="+to)
		if !errors.Is(err, ssrfguard.ErrURL) {
			t.Errorf("to %s: got error %v, want ErrURL", to, err)
		}
	}
	if n := other.Load(); n != 0 {
		t.Errorf("the other origin got %d requests, want none", n)
	}
}

func TestOnlyHTTPSAndHTTPOfConfiguredLoopback(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "here")
	}))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, configured := range []string{s.URL, "http://localhost:1", "http://[::1]:1/issuer"} {
		got, err := get(t, ssrfguard.Options{Configured: configured}, s.URL)
		if err != nil || got != "here" {
			t.Errorf("configured %s: got %q and error %v, want the answer", configured, got, err)
		}
	}
	for _, tt := range []struct{ name, configured, url string }{
		{"public configured", "https://idp.example", s.URL},
		{"name that begins like loopback", "http://127.0.0.1.example", s.URL},
		{"name that ends like loopback", "http://localhost.example", s.URL},
		{"not loopback", s.URL, "http://192.0.2.1/"},
		{"name of loopback", s.URL, "http://idp.example:" + port},
		{"user name", s.URL, "http://u:p@127.0.0.1:" + port},
		{"ftp", s.URL, "ftp://127.0.0.1:" + port},
		{"no scheme", s.URL, "//127.0.0.1:" + port},
	} {
		_, err := get(t, ssrfguard.Options{Configured: tt.configured, Networks: everything}, tt.url)
		if !errors.Is(err, ssrfguard.ErrURL) {
			t.Errorf("%s: got error %v, want ErrURL", tt.name, err)
		}
	}
}

func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("ALL_PROXY", proxy.URL)
	_, err := get(t, ssrfguard.Options{Configured: "https://idp.example",
		Resolver: resolver(t, func(string, bool) []netip.Addr {
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		})}, "https://idp.example")
	if !errors.Is(err, ssrfguard.ErrAddress) || asked.Load() != 0 {
		t.Errorf("got error %v and %d requests at the proxy, want ErrAddress and none", err,
			asked.Load())
	}
}

func TestAnswersAreBounded(t *testing.T) {
	ended := make(chan struct{})
	s, o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/limit":
			w.Write(make([]byte, 1<<20))
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		case "/slow":
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(ended)
			// The client may still read while it closes the connection, so the answer must not end.
			panic(http.ErrAbortHandler)
		case "/silent":
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case "/headers":
			w.Header().Set("X-Large", strings.Repeat("x", 128<<10))
		}
	})
	if got, err := get(t, o, s.URL+"/limit"); err != nil || len(got) != 1<<20 {
		t.Errorf("at the limit: got %d bytes and error %v, want %d", len(got), err, 1<<20)
	}
	got, err := get(t, o, s.URL+"/endless")
	if !errors.Is(err, ssrfguard.ErrTooLarge) || len(got) != 1<<20 {
		t.Errorf("endless: got %d bytes and error %v, want %d and ErrTooLarge", len(got), err,
			1<<20)
	}
	if _, err := get(t, o, s.URL+"/headers"); err == nil {
		t.Error("large headers: got an answer, want an error")
	}
	o.Timeout = 200 * time.Millisecond
	for _, path := range []string{"/slow", "/silent"} {
		_, err := get(t, o, s.URL+path)
		if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
			t.Errorf("%s: got error %v, want a timeout", path, err)
		}
	}
	<-ended
}

func TestInvalidConfiguredURLIsAnError(t *testing.T) {
	if _, err := ssrfguard.Client(ssrfguard.Options{Configured: "https://[::1"}); err == nil {
		t.Error("got a client, want an error")
	}
}

// closing starts a server that answers the first request of each connection, and closes the
// connection at the first byte of the second one. It counts the answered requests and the closed
// connections.
func closing(t *testing.T) (url string, answered, closed *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections sync.WaitGroup
	t.Cleanup(func() { l.Close(); connections.Wait() })
	answered, closed = new(atomic.Int32), new(atomic.Int32)
	connections.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				answered.Add(1)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if _, err := in.Peek(1); err == nil {
					closed.Add(1)
				}
			})
		}
	})
	return "http://" + l.Addr().String(), answered, closed
}

// A server may close an idle connection just when a request is sent on it. The request cannot be
// sent again if it has a code or a refresh token.
func TestServerThatClosesAConnectionLosesNoRequest(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		header       http.Header
		wantClosed   int32 // connections that were used again
	}{
		{"with a code", http.MethodPost, http.Header{}, 0},
		{"can be repeated", http.MethodPost, http.Header{"Idempotency-Key": nil}, 1},
		{"metadata", http.MethodGet, http.Header{}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, answered, closed := closing(t)
			client, err := ssrfguard.Client(ssrfguard.Options{Configured: url})
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			for i := range 2 {
				r, err := http.NewRequest(tt.method, url, strings.NewReader("code=1"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header = tt.header
				answer, err := client.Do(r)
				if err != nil {
					t.Fatalf("request %d: got error %v, want an answer", i+1, err)
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			client.CloseIdleConnections()
			if answered, closed := answered.Load(), closed.Load(); answered != 2 ||
				closed != tt.wantClosed {
				t.Errorf("%d requests were answered and %d connections closed, want 2 and %d",
					answered, closed, tt.wantClosed)
			}
		})
	}
}
