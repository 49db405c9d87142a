package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"gatekit/core/hostlist"
	"gatekit/transport"
	"gatekit/transport/egress"
	"gatekit/transport/sandbox"
)

func init() { servers["network"] = makeAttempts }

// makeAttempts is a server that makes the attempt of each message, and answers with its outcome.
func makeAttempts() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct{ Attempt []string }
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			panic(err)
		}
		text, err := networkAttempts[m.Attempt[0]](m.Attempt[1:])
		answer := map[string]string{"text": text}
		if err != nil {
			answer["error"] = err.Error()
		}
		b, _ := json.Marshal(answer)
		os.Stdout.Write(append(b, '\n'))
	}
}

const attemptTimeout = 30 * time.Second

var networkAttempts = map[string]func(args []string) (string, error){
	"fetch": func(args []string) (string, error) { // URL, header Host
		request, err := http.NewRequest("GET", args[0], nil)
		if err != nil {
			return "", err
		}
		if len(args) > 1 {
			request.Host = args[1]
		}
		client := http.Client{Timeout: attemptTimeout, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		r, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return string(b), err
	},
	"tls": func(args []string) (string, error) { // address, server name
		raw, err := net.DialTimeout("tcp", args[0], attemptTimeout)
		if err != nil {
			return "", err
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(attemptTimeout))
		c := tls.Client(raw, &tls.Config{ServerName: args[1], InsecureSkipVerify: true})
		if err := c.Handshake(); err != nil {
			return "", err
		}
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		b, err := io.ReadAll(c)
		return string(b), err
	},
	// network, address, bytes, and the end of the answer
	"send": func(args []string) (string, error) {
		c, err := net.DialTimeout(args[0], args[1], attemptTimeout)
		if err != nil {
			return "", err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(attemptTimeout))
		if args[0] == "udp" {
			c.SetDeadline(time.Now().Add(2 * time.Second))
		}
		if _, err := io.WriteString(c, args[2]); err != nil {
			return "", err
		}
		var got []byte
		for b := make([]byte, 1<<10); ; {
			n, err := c.Read(b)
			got = append(got, b[:n]...)
			if err != nil || len(args) < 4 || strings.Contains(string(got), args[3]) {
				return string(got), err
			}
		}
	},
	"greeting": func(args []string) (string, error) { // address; nothing is sent
		c, err := net.DialTimeout("tcp", args[0], attemptTimeout)
		if err != nil {
			return "", err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(attemptTimeout))
		return bufio.NewReader(c).ReadString('\n')
	},
	"connect": func(args []string) (string, error) { // address; the connection stays open
		_, err := net.DialTimeout("tcp", args[0], attemptTimeout)
		return "", err
	},
	"exit": func([]string) (string, error) {
		return "", syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
	"hold": func(args []string) (string, error) { // address; the connection stays open
		c, err := net.DialTimeout("tcp", args[0], attemptTimeout)
		if err != nil {
			return "", err
		}
		return bufio.NewReader(c).ReadString('\n')
	},
	"lookup": func(args []string) (string, error) {
		addrs, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", args[0])
		return fmt.Sprint(addrs), err
	},
	"txt": func(args []string) (string, error) {
		texts, err := net.LookupTXT(args[0])
		return fmt.Sprint(texts), err
	},
	"socket": func(args []string) (string, error) { // family, kind, protocol
		var numbers [3]int
		for i, a := range args {
			numbers[i], _ = strconv.Atoi(a)
		}
		s, err := unix.Socket(numbers[0], numbers[1], numbers[2])
		if err == nil {
			unix.Close(s)
		}
		return "", err
	},
	"secret": func(args []string) (string, error) {
		b, err := os.ReadFile(args[0])
		return string(b), err
	},
	"pid": func([]string) (string, error) { return strconv.Itoa(os.Getpid()), nil },
	"uid": func([]string) (string, error) {
		return strconv.Itoa(os.Getuid()), nil
	},
	"network of another process": func(args []string) (string, error) {
		file, err := os.Open("/proc/" + args[0] + "/ns/net")
		if err != nil {
			return "", err
		}
		return "", unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
	},
	"route": func([]string) (string, error) { // what a process needs to leave its network
		out, err := exec.Command("ip", "link", "add", "x", "type", "dummy").CombinedOutput()
		return string(out), err
	},
}

// outside has what a confined process could reach: servers on this machine, and their names.
type outside struct {
	https, http, greeter int // ports
	asked                func() []string
	resolver             *net.Resolver
	addresses            *sync.Map // of names, beside 127.0.0.1 for names of example
}

func newOutside(t *testing.T) outside {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "reached as %s", r.Host)
	})
	secure, plain := httptest.NewUnstartedServer(handler), httptest.NewUnstartedServer(handler)
	for _, s := range []*httptest.Server{secure, plain} {
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	}
	secure.StartTLS()
	plain.Start()
	greeter, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := greeter.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				fmt.Fprintln(c, "hello")
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { secure.Close(); plain.Close(); greeter.Close(); wg.Wait() })
	port := func(a net.Addr) int { return a.(*net.TCPAddr).Port }
	o := outside{https: port(secure.Listener.Addr()), http: port(plain.Listener.Addr()),
		greeter: port(greeter.Addr()), addresses: &sync.Map{}}
	o.resolver, o.asked = dnsServer(t, o.addresses)
	return o
}

// dnsServer returns a resolver whose server knows the names, and all names of example as 127.0.0.1.
// The function returns which names it was asked for.
func dnsServer(t *testing.T, addresses *sync.Map) (*net.Resolver, func() []string) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var asked []string
	var late []func() // used by the goroutine until done is closed
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
			name := strings.TrimSuffix(q.Name.String(), ".")
			mu.Lock()
			asked = append(asked, name)
			mu.Unlock()
			addr, ok := addresses.Load(name)
			if !ok {
				addr = "127.0.0.1"
			}
			m.Response, m.Additionals = true, nil
			if addr == "no answer" {
				m.RCode = dnsmessage.RCodeNameError
				if packed, err := m.Pack(); err == nil {
					late = append(late, func() { server.WriteTo(packed, peer) })
				}
				continue
			}
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name,
					Class: q.Class}, Body: &dnsmessage.AResource{
					A: netip.MustParseAddr(addr.(string)).As4()}}}
			}
			if packed, err := m.Pack(); err == nil {
				server.WriteTo(packed, peer)
			}
		}
	}()
	t.Cleanup(func() {
		server.SetReadDeadline(time.Now())
		<-done
		for _, answer := range late { // so that the resolver does not wait any longer
			answer()
		}
		server.Close()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
		}}, func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(asked)
		}
}

// replace writes the ports of the servers into a text.
func (o outside) replace(text string) string {
	return strings.NewReplacer("{https}", strconv.Itoa(o.https), "{http}", strconv.Itoa(o.http),
		"{greeter}", strconv.Itoa(o.greeter)).Replace(text)
}

// inside is a confined server with a network of its own.
type inside struct {
	*transport.Child
	log *bytes.Buffer

	mu     sync.Mutex
	events []egress.Event
	notice chan struct{} // gets an element for each event
}

// confinedServer starts the server "network" with these hosts. It skips the test if the system
// cannot confine it.
func (o outside) confinedServer(t *testing.T, hosts ...string) *inside {
	t.Helper()
	needNamespaces(t)
	in := &inside{log: &bytes.Buffer{}, notice: make(chan struct{}, 1000)}
	child, err := o.spawnConfined(t, in.log, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	in.Child = child
	t.Cleanup(func() { child.Close() })
	child.RecordEgress(func(e egress.Event) error {
		in.mu.Lock()
		in.events = append(in.events, e)
		in.mu.Unlock()
		in.notice <- struct{}{}
		return nil
	})
	return in
}

// needNamespaces skips the test if this user can make no namespaces, or has no rights in them, or
// if the kernel has no Landlock.
func needNamespaces(t *testing.T) {
	t.Helper()
	if err := (&exec.Cmd{Path: "/bin/true", SysProcAttr: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET}}).Run(); err != nil {
		t.Skipf("this user can make no namespaces: %v", err)
	}
	b, _ := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if os.Geteuid() != 0 && strings.TrimSpace(string(b)) == "1" {
		t.Skip("AppArmor refuses rights in namespaces")
	}
	if _, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION); err != 0 {
		t.Skipf("this kernel has no Landlock: %v", err)
	}
}

func (o outside) spawnConfined(t *testing.T, log io.Writer, hosts ...string) (*transport.Child,
	error) {
	t.Helper()
	e := &transport.Egress{Resolver: o.resolver,
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, text := range hosts {
		h, err := hostlist.Parse(o.replace(text))
		if err != nil {
			t.Fatal(err)
		}
		e.Hosts = append(e.Hosts, h)
	}
	home := t.TempDir()
	env := map[string]string{mode: "network", "HOME": home, "GODEBUG": "netdns=go",
		"GOCOVERDIR": t.TempDir(), "GORACE": "atexit_sleep_ms=0"}
	return transport.Spawn(t.Context(), transport.Command{Name: "net", Path: "/proc/self/exe",
		Dir: home, Env: env, Log: slog.New(slog.NewTextHandler(log, nil)),
		Sandbox: &transport.Sandbox{Settings: sandbox.Settings{Level: sandbox.Guard}, Egress: e,
			Grant: func(r sandbox.Refusal) string { return "add " + r.String() }}})
}

// attempt makes an attempt inside, and returns its outcome.
func (in *inside) attempt(t *testing.T, args ...string) (string, error) {
	t.Helper()
	b, err := json.Marshal(map[string][]string{"attempt": args})
	if err != nil {
		t.Fatal(err)
	}
	write(t, in, string(b))
	return outcome(t, read(t, in))
}

func outcome(t *testing.T, answer string) (string, error) {
	t.Helper()
	var m struct{ Text, Error string }
	if err := json.Unmarshal([]byte(answer), &m); err != nil {
		t.Fatal(err)
	}
	if m.Error != "" {
		return m.Text, errors.New(m.Error)
	}
	return m.Text, nil
}

// event waits for an event that fits, and returns it.
func (in *inside) event(t *testing.T, fits func(egress.Event) bool) egress.Event {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		in.mu.Lock()
		i := slices.IndexFunc(in.events, fits)
		if i >= 0 {
			defer in.mu.Unlock()
			return in.events[i]
		}
		in.mu.Unlock()
		select {
		case <-in.notice:
		case <-timeout:
			t.Fatalf("no such event: %+v", in.events)
		}
	}
}

func TestEgressReachesListedHosts(t *testing.T) {
	o := newOutside(t)
	in := o.confinedServer(t, "a.example:{https}", "*.b.example:{http}", "c.example:{greeter}",
		"d.example:{greeter}", "localhost:{http}", "127.0.0.1:{https}")
	for _, tt := range []struct {
		name, want string
		attempt    []string
		host       string
	}{
		{"https", "reached as a.example", []string{"fetch", "https://a.example:{https}/"},
			"a.example"},
		{"https, upper case", "reached as ", []string{"tls", "A.EXAMPLE:{https}", "A.Example"},
			"a.example"},
		{"http below a wildcard", "reached as x.y.b.example", []string{"fetch",
			"http://x.y.b.example:{http}/"}, "x.y.b.example"},
		{"a protocol whose server speaks first", "hello\n", []string{"greeting",
			"c.example:{greeter}"}, "c.example"},
		{"a binary protocol", "HTTP/1.1", []string{"send", "tcp", "d.example:{greeter}",
			"GET\x00 / HTTP/1.1\r\n", "HTTP/1.1"}, "d.example"},
		{"localhost", "reached as localhost", []string{"fetch", "http://localhost:{http}/"},
			"localhost"},
		{"an address", "reached as 127.0.0.1", []string{"fetch", "https://127.0.0.1:{https}/"},
			"127.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.attempt {
				tt.attempt[i] = o.replace(tt.attempt[i])
			}
			got, err := in.attempt(t, tt.attempt...)
			if err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("got %q %v, want %q", got, err, tt.want)
			}
			in.event(t, func(e egress.Event) bool {
				return e.Kind == egress.Connected && e.Host == tt.host && e.Address.IsValid()
			})
			e := in.event(t, func(e egress.Event) bool {
				return e.Kind == egress.Closed && e.Host == tt.host
			})
			if e.Received < int64(len(tt.want)) ||
				tt.attempt[0] != "greeting" && e.Sent == 0 {
				t.Errorf("got the event %+v", e)
			}
		})
	}
	if got, err := in.attempt(t, "uid"); err != nil || got != strconv.Itoa(os.Getuid()) {
		t.Errorf("inside, the user is %s %v, want %d", got, err, os.Getuid())
	}
	description, confined := in.Confinement()
	want := o.replace("network a.example:{https}, *.b.example:{http}, c.example:{greeter}")
	if !confined || !strings.Contains(description, want) {
		t.Errorf("the confinement is %q, want %q", description, want)
	}
}

// Each attempt succeeds in another way inside or without a sandbox: what fails is the sandbox's
// doing.
func TestEgressRefusesWhatIsNotListed(t *testing.T) {
	o := newOutside(t)
	o.addresses.Store("metadata.example", "169.254.169.254")
	for _, tt := range []struct {
		name    string
		attempt []string
		// control are hosts with which the attempt succeeds. Without them, it succeeds without a
		// sandbox, unless this machine cannot show that.
		control []string
		outside bool
		host    string // of the event; "" is none
		reason  string
	}{
		{"another host", []string{"fetch", "https://other.example:{https}/"},
			[]string{"other.example:{https}"}, false, "other.example",
			"the name is not on the list"},
		{"the domain of a wildcard", []string{"fetch", "https://b.example:{https}/"},
			[]string{"b.example:{https}"}, false, "b.example", "the name is not on the list"},
		{"an address", []string{"fetch", "https://127.0.0.1:{https}/"}, nil, true, "127.0.0.1",
			"the address is not on the list"},
		{"an address of the relay that no name has", []string{"fetch",
			"https://198.18.7.7:{https}/"}, nil, false, "198.18.7.7",
			"the address is not on the list"},
		{"IPv6", []string{"fetch", "https://[::1]:{https}/"}, nil, false, "::1",
			"the address is not on the list"},
		{"the address of metadata", []string{"fetch", "http://169.254.169.254:{http}/"}, nil, false,
			"169.254.169.254", "the address is not on the list"},
		{"another server name", []string{"tls", "a.example:{https}", "other.example"},
			nil, true, "a.example", "the server name of TLS is other.example"},
		{"no server name", []string{"tls", "a.example:{https}", ""}, nil, true, "a.example",
			"TLS has no server name"},
		{"another header Host", []string{"fetch", "http://a.example:{http}/", "other.example"},
			nil, true, "a.example", "the header Host is other.example"},
		{"another header Host after an empty line", []string{"send", "tcp", "a.example:{http}",
			"\r\nGET / HTTP/1.1\r\nHost: other.example\r\n\r\n"}, nil, true, "a.example",
			"not a request of HTTP/1"},
		{"two headers Host", []string{"send", "tcp", "a.example:{http}",
			"GET / HTTP/1.1\r\nHost: a.example\r\nHost: other.example\r\n\r\n"}, nil, true,
			"a.example", "too many Host headers"},
		{"a request for a proxy", []string{"send", "tcp", "a.example:{http}",
			"GET http://other.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"}, nil, true,
			"a.example", "for a proxy"},
		{"a port of another host", []string{"greeting", "a.example:{greeter}"},
			[]string{"a.example:{greeter}"}, false, "a.example", "not on the list with this port"},
		{"a port that is not listed", []string{"greeting", "a.example:1"}, nil, false, "", ""},
		{"a name that leads to metadata", []string{"fetch", "http://metadata.example:{http}/"}, nil,
			false, "metadata.example", "never allowed"},
		{"plain bytes on the port of HTTPS", []string{"send", "tcp", "s.example:443", "hello\n"},
			nil, false, "s.example", "not TLS"},
		{"TLS on the port of HTTP", []string{"tls", "s.example:80", "s.example"}, nil, false,
			"s.example", "not a request of HTTP/1"},
		{"UDP", []string{"send", "udp", "203.0.113.1:443", "hello"}, nil, false, "", ""},
		{"a DNS server of its own", []string{"send", "tcp", "203.0.113.1:53", "hello"}, nil, false,
			"", ""},
		{"a query for a text", []string{"txt", "a.example"}, nil, false, "", ""},
		{"a Unix socket", []string{"socket", "1", "1", "0"}, nil, true, "", ""},
		{"a raw socket", []string{"socket", "2", "3", "1"}, nil, os.Getuid() == 0, "", ""},
		{"a packet socket", []string{"socket", "17", "3", "0"}, nil, os.Getuid() == 0, "", ""},
		{"VSOCK", []string{"socket", "40", "1", "0"}, nil, false, "", ""},
		{"messages of the audit system", []string{"socket", "16", "3", "9"}, nil, true, "", ""},
		{"the network of another process", []string{"network of another process",
			strconv.Itoa(os.Getpid())}, nil, false, "", ""},
		{"a change of the network", []string{"route"}, nil, false, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.attempt {
				tt.attempt[i] = o.replace(tt.attempt[i])
			}
			listed := []string{"a.example:{https}", "a.example:{http}", "*.b.example:{https}",
				"c.example:{greeter}", "metadata.example:{http}",
				"s.example:443", "s.example:80"}
			if tt.outside {
				direct := slices.Clone(tt.attempt)
				for i := range direct {
					direct[i] = strings.Replace(direct[i], "a.example:", "127.0.0.1:", 1)
				}
				if _, err := networkAttempts[direct[0]](direct[1:]); err != nil {
					t.Errorf("outside, it fails: %v", err)
				}
			}
			if tt.control != nil {
				control := o.confinedServer(t, append(listed, tt.control...)...)
				if _, err := control.attempt(t, tt.attempt...); err != nil {
					t.Errorf("with %q, it fails: %v", tt.control, err)
				}
			}
			in := o.confinedServer(t, listed...)
			if got, err := in.attempt(t, tt.attempt...); err == nil {
				t.Errorf("it succeeded: %q", got)
			}
			if tt.host == "" {
				return
			}
			e := in.event(t, func(e egress.Event) bool {
				return e.Host == tt.host && e.Kind == egress.Refused
			})
			if !strings.Contains(e.Reason, tt.reason) {
				t.Errorf("got the event %+v, want a refusal because %q", e, tt.reason)
			}
		})
	}
}

// A name may lead to another address each time. The address that counts is the one that is
// connected to.
func TestEgressRefusesReboundNames(t *testing.T) {
	o := newOutside(t)
	in := o.confinedServer(t, "a.example:{http}")
	fetch := []string{"fetch", o.replace("http://a.example:{http}/")}
	if _, err := in.attempt(t, fetch...); err != nil {
		t.Fatal(err)
	}
	o.addresses.Store("a.example", "10.1.2.3")
	if got, err := in.attempt(t, fetch...); err == nil {
		t.Errorf("got %q from a private address", got)
	}
	e := in.event(t, func(e egress.Event) bool { return e.Kind == egress.Refused })
	if !strings.Contains(e.Reason, "10.1.2.3 is not public and not in networks") {
		t.Errorf("got the event %+v", e)
	}
}

// Data in the names of queries does not leave this machine: DNS outside is asked only for hosts of
// the list, when the process connects to them.
func TestEgressAsksOnlyForListedNames(t *testing.T) {
	o := newOutside(t)
	in := o.confinedServer(t, "a.example:{http}", "*.b.example:{http}")
	for _, name := range []string{"c2VjcmV0.evil.example", "c2VjcmV0.a.example", "b.example",
		"c2VjcmV0.b.example", "a.example"} {
		in.attempt(t, "lookup", name)
		in.attempt(t, "txt", name)
	}
	if asked := o.asked(); len(asked) > 0 {
		t.Errorf("queries for %q left the sandbox", asked)
	}
	got, err := in.attempt(t, "lookup", "a.example")
	if err != nil || !strings.HasPrefix(got, "[198.18.") || strings.Contains(got, " ") {
		t.Errorf("a.example has the addresses %s %v, want one", got, err)
	}
	if again, _ := in.attempt(t, "lookup", "A.example."); again != got {
		t.Errorf("the address of a.example is first %s, then %s", got, again)
	}
	if _, err := in.attempt(t, "fetch", o.replace("http://a.example:{http}/")); err != nil {
		t.Error(err)
	}
	for _, name := range o.asked() {
		if name != "a.example" {
			t.Errorf("a query for %s left the sandbox", name)
		}
	}
	e := in.event(t, func(e egress.Event) bool { return e.Kind == egress.Refused })
	if e.Host != "c2VjcmV0.evil.example" || !e.Unlisted || e.Port != 0 {
		t.Errorf("the first refusal is %+v", e)
	}
}

// The other rules of the level hold beside the list of hosts.
func TestEgressKeepsTheLevel(t *testing.T) {
	o := newOutside(t)
	in := o.confinedServer(t, "a.example:{http}")
	if _, err := in.attempt(t, "secret", "/proc/self/status"); err != nil {
		t.Errorf("a file that may be read: %v", err)
	}
	status, _ := in.attempt(t, "secret", "/proc/self/status")
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("%q is missing in the status of the process", want)
		}
	}
	if os.Geteuid() != 0 && !strings.Contains(status, "CapEff:\t0000000000000000") {
		t.Errorf("the process has capabilities: %s", status)
	}
}

// A connection that cannot be recorded is not made. It waits for the recorder.
func TestEgressNeedsARecord(t *testing.T) {
	o := newOutside(t)
	in := o.confinedServer(t, "c.example:{greeter}")
	child, err := o.spawnConfined(t, io.Discard, "c.example:{greeter}")
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	asked := make(chan egress.Event, 10)
	write(t, child, o.replace(`{"attempt":["greeting","c.example:{greeter}"]}`))
	if got, err := in.attempt(t, "greeting", o.replace("c.example:{greeter}")); err != nil {
		t.Errorf("another server got %q %v", got, err)
	}
	child.RecordEgress(func(e egress.Event) error {
		asked <- e
		return errors.New("the disk is full")
	})
	if got, err := outcome(t, read(t, child)); err == nil {
		t.Errorf("without a record, the server got %q", got)
	}
	if e := <-asked; e.Kind != egress.Connected || e.Host != "c.example" {
		t.Errorf("the record is about %+v", e)
	}
}

// The end of the server ends its connections, and their end is recorded.
func TestEgressEndsWithTheServer(t *testing.T) {
	o := newOutside(t)
	for name, end := range map[string]func(*inside){
		"it is closed": func(in *inside) { in.Close() },
		"it is killed": func(in *inside) { write(t, in, `{"attempt":["exit"]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			first, second := o.confinedServer(t, "c.example:{greeter}"), o.confinedServer(t,
				"c.example:{greeter}")
			for _, in := range []*inside{first, second} {
				got, err := in.attempt(t, "hold", o.replace("c.example:{greeter}"))
				if got != "hello\n" || err != nil {
					t.Fatalf("got %q %v", got, err)
				}
			}
			end(first)
			e := first.event(t, func(e egress.Event) bool { return e.Kind == egress.Closed })
			if e.Host != "c.example" || e.Received != 6 {
				t.Errorf("got the event %+v", e)
			}
			got, err := second.attempt(t, "greeting", o.replace("c.example:{greeter}"))
			if err != nil {
				t.Errorf("the other server got %q %v", got, err)
			}
		})
	}
}

// A name whose DNS server does not answer delays only its own connection.
func TestEgressWithSlowDNS(t *testing.T) {
	o := newOutside(t)
	o.addresses.Store("slow.example", "no answer")
	in := o.confinedServer(t, "slow.example:{greeter}", "c.example:{greeter}")
	if _, err := in.attempt(t, "connect", o.replace("slow.example:{greeter}")); err != nil {
		t.Fatal(err)
	}
	if got, err := in.attempt(t, "greeting", o.replace("c.example:{greeter}")); err != nil {
		t.Errorf("got %q %v", got, err)
	}
	in.Close() // does not wait for the answer
	if slices.ContainsFunc(in.events, func(e egress.Event) bool {
		return e.Host == "slow.example"
	}) {
		t.Errorf("got the events %+v", in.events)
	}
}

// spawnOutcome is a server that starts a confined server, holds a connection to the host of its
// first argument, and writes the pid of the confined server, or the error.
func spawnOutcome() {
	host, _ := hostlist.Parse(os.Args[1])
	child, err := transport.Spawn(context.Background(), transport.Command{Name: "net",
		Path: "/proc/self/exe", Dir: os.Args[2], Env: map[string]string{mode: "network",
			"GOCOVERDIR": os.Args[2], "GORACE": "atexit_sleep_ms=0"},
		Sandbox: &transport.Sandbox{Settings: sandbox.Settings{Level: sandbox.Guard},
			Egress: &transport.Egress{Hosts: hostlist.List{host}}}})
	answer := map[string]string{}
	if err == nil {
		child.RecordEgress(func(egress.Event) error { return nil })
		for _, attempt := range [][]string{{"hold", host.String()}, {"pid"}} {
			b, _ := json.Marshal(map[string][]string{"attempt": attempt})
			child.Write(context.Background(), b)
			if b, err = child.Read(context.Background()); err == nil {
				err = json.Unmarshal(b, &answer)
			}
		}
	}
	if err != nil {
		answer["error"] = err.Error()
		if errors.As(err, new(*sandbox.UnsupportedError)) {
			answer["text"] = "unsupported"
		}
	}
	b, _ := json.Marshal(answer)
	fmt.Printf("%s\n", b)
	io.Copy(io.Discard, os.Stdin)
}

func init() { servers["spawn outcome"] = spawnOutcome }

// startSpawnOutcome starts the server spawnOutcome, and returns what it writes. The server lives
// until its stdin is closed.
func startSpawnOutcome(t *testing.T, host string) (c *exec.Cmd, stdin io.Closer, text string,
	err error) {
	t.Helper()
	dir := t.TempDir()
	c = exec.Command("/proc/self/exe", host, dir)
	c.Env = []string{mode + "=spawn outcome", "PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + dir,
		"GORACE=atexit_sleep_ms=0"}
	stdin, _ = c.StdinPipe()
	stdout, pipeErr := c.StdoutPipe()
	if pipeErr != nil {
		t.Fatal(pipeErr)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	if readErr != nil {
		t.Fatal(readErr)
	}
	text, err = outcome(t, line)
	return c, stdin, text, err
}

// When Gatekit is killed, the server, its connections and its namespaces end.
func TestEgressEndsWithGatekit(t *testing.T) {
	needNamespaces(t)
	o := newOutside(t)
	c, _, text, err := startSpawnOutcome(t, o.replace("127.0.0.1:{greeter}"))
	if err != nil {
		t.Fatal(err)
	}
	network, err := os.Readlink("/proc/" + text + "/ns/net")
	own, _ := os.Readlink("/proc/self/ns/net")
	if err != nil || network == own {
		t.Fatalf("the server has the network namespace %s %v", network, err)
	}
	c.Process.Kill()
	c.Wait()
	pid, _ := strconv.Atoi(text)
	if !isGone(pid) {
		t.Error("the server goes on")
	}
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range all {
		if other, _ := os.Readlink(link); other == network {
			t.Errorf("the namespace goes on in %s", link)
		}
	}
}

// Where Gatekit can make no namespaces, the server does not start, and the error says what to do.
func TestEgressNeedsNamespaces(t *testing.T) {
	needNamespaces(t)
	o := newOutside(t)
	host := o.replace("127.0.0.1:{greeter}")
	for name, refused := range map[string]struct {
		call     int
		argument uint32 // whose low half has one of the bits, or is the value
		value    uint32
		isBits   bool
	}{
		"by the kernel": {unix.SYS_CLONE, 0, unix.CLONE_NEWUSER, true},
		"by AppArmor":   {unix.SYS_IOCTL, 1, unix.SIOCSIFFLAGS, false},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // the thread ends with the test
			refuseCall(t, refused.call, refused.argument, refused.value, refused.isBits)
			c, stdin, text, err := startSpawnOutcome(t, host)
			stdin.Close()
			c.Wait()
			if text != "unsupported" || err == nil {
				t.Fatalf("got %s %v, want an error about the system", text, err)
			}
			for _, want := range []string{`start server "net": this system cannot confine`,
				"operation not permitted", "abi <abi/4.0>,", "{ userns, }", "hint: "} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in the error: %v", want, err)
				}
			}
		})
	}
}

// refuseCall makes the kernel refuse a system call to this thread, and to the processes that it
// starts.
func refuseCall(t *testing.T, call int, argument, value uint32, isBits bool) {
	t.Helper()
	condition := uint16(unix.BPF_JEQ)
	if isBits {
		condition = unix.BPF_JSET
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: uint32(call)},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 8*argument},
		{Code: unix.BPF_JMP | condition | unix.BPF_K, Jf: 1, K: value},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		t.Skipf("this kernel has no seccomp: %v", err)
	}
}

// A namespace belongs to the user who made it. Users other than root get there in another way.
func TestEgressAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	const nobody = 65534
	home := t.TempDir()
	for _, dir := range []string{filepath.Dir(home), home} { // the folders of this test
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("/proc/self/exe", "-test.v", "-test.timeout=5m",
		"-test.run=^TestEgress(Reaches|Refuses|Keeps|EndsWith)")
	c.Dir = home
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home,
		"GOCOVERDIR=" + home}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	output, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if bytes.Contains(output, []byte("--- SKIP")) {
		t.Skipf("%s", output)
	}
}
