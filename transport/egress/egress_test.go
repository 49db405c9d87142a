package egress

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"golang.org/x/net/dns/dnsmessage"

	"gatekit/core/hostlist"
)

func list(t *testing.T, texts ...string) (l hostlist.List) {
	t.Helper()
	for _, text := range texts {
		h, err := hostlist.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		l = append(l, h)
	}
	return l
}

func query(t *testing.T, m dnsmessage.Message) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func question(name string, typ dnsmessage.Type) dnsmessage.Question {
	return dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: typ,
		Class: dnsmessage.ClassINET}
}

func TestAnswersOfDNS(t *testing.T) {
	chaos := question("a.example.", dnsmessage.TypeA)
	chaos.Class = dnsmessage.ClassCHAOS
	for _, tt := range []struct {
		name    string
		message dnsmessage.Message
		code    dnsmessage.RCode
		answer  string
		refused string
	}{
		{"a listed name", dnsmessage.Message{Questions: []dnsmessage.Question{
			question("A.example.", dnsmessage.TypeA)}}, dnsmessage.RCodeSuccess, "198.18.1.0", ""},
		{"a name below a wildcard", dnsmessage.Message{Questions: []dnsmessage.Question{
			question("x.b.example.", dnsmessage.TypeA)}}, dnsmessage.RCodeSuccess, "198.18.1.0",
			""},
		{"an address of IPv6", dnsmessage.Message{Questions: []dnsmessage.Question{
			question("a.example.", dnsmessage.TypeAAAA)}}, dnsmessage.RCodeSuccess, "", ""},
		{"another name", dnsmessage.Message{Questions: []dnsmessage.Question{
			question("evil.example.", dnsmessage.TypeA)}}, dnsmessage.RCodeNameError, "",
			"evil.example"},
		{"a name that is none", dnsmessage.Message{Questions: []dnsmessage.Question{
			question("a\x1b.b.example.", dnsmessage.TypeTXT)}}, dnsmessage.RCodeNameError, "",
			"a?.b.example"},
		{"the root", dnsmessage.Message{Questions: []dnsmessage.Question{
			question(".", dnsmessage.TypeNS)}}, dnsmessage.RCodeNameError, "", ""},
		{"two questions", dnsmessage.Message{Questions: []dnsmessage.Question{
			question("a.example.", dnsmessage.TypeA), question("a.example.", dnsmessage.TypeA)}},
			dnsmessage.RCodeFormatError, "", ""},
		{"no question", dnsmessage.Message{}, dnsmessage.RCodeFormatError, "", ""},
		{"another class", dnsmessage.Message{Questions: []dnsmessage.Question{chaos}},
			dnsmessage.RCodeNotImplemented, "", ""},
		{"an update", dnsmessage.Message{Header: dnsmessage.Header{OpCode: 5},
			Questions: []dnsmessage.Question{question("a.example.", dnsmessage.TypeA)}},
			dnsmessage.RCodeNotImplemented, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNames(list(t, "a.example", "*.b.example"))
			tt.message.ID = 7
			b, refused := n.answer(query(t, tt.message))
			var got dnsmessage.Message
			if err := got.Unpack(b); err != nil {
				t.Fatal(err)
			}
			answer := ""
			for _, a := range got.Answers {
				answer += netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A).String()
			}
			if got.ID != 7 || !got.Response || got.RCode != tt.code || answer != tt.answer ||
				refused != tt.refused {
				t.Errorf("got %v, refused %q; want %v, %q, refused %q", got, refused, tt.code,
					tt.answer, tt.refused)
			}
		})
	}
	n := newNames(nil)
	for _, b := range [][]byte{nil, {1, 2, 3}, query(t, dnsmessage.Message{
		Header: dnsmessage.Header{Response: true}})} {
		if answer, _ := n.answer(b); answer != nil {
			t.Errorf("%q has the answer %q, want none", b, answer)
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := newNames(list(t, "*.b.example", "198.18.1.1", "198.18.1.2"))
	seen := map[netip.Addr]bool{}
	for i := range maxNames {
		addr, ok := n.address(fmt.Sprintf("n%d.b.example", i))
		if !ok || seen[addr] || n.hosts.Names(addr.String()) {
			t.Fatalf("name %d has the address %s %t", i, addr, ok)
		}
		seen[addr] = true
	}
	if _, ok := n.address("more.b.example"); ok {
		t.Error("one more name has an address")
	}
	if _, ok := n.address("n7.b.example"); !ok {
		t.Error("a known name has no address any more")
	}
	b, _ := n.answer(query(t, dnsmessage.Message{Questions: []dnsmessage.Question{
		question("more.b.example.", dnsmessage.TypeA)}}))
	var got dnsmessage.Message
	if err := got.Unpack(b); err != nil || got.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("got %v %v, want a failure", got, err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := newNames(hostlist.List{{Name: "a.example", Port: 443}})
		answer, _ := n.answer(b)
		var got dnsmessage.Message
		if answer == nil {
			return
		}
		if err := got.Unpack(answer); err != nil || len(answer) > maxQuery || !got.Response {
			t.Fatalf("the answer is %q: %v", answer, err)
		}
		for _, a := range got.Answers {
			if name := a.Header.Name.String(); !strings.EqualFold(name, "a.example.") {
				t.Errorf("an answer for %s", name)
			}
		}
	})
}

// hello returns the first message of TLS for a server name.
func hello(t *testing.T, c *tls.Config) string {
	t.Helper()
	ours, theirs := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { tls.Client(theirs, c).Handshake() })
	record := make([]byte, 5)
	if _, err := io.ReadFull(ours, record); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, int(record[3])<<8|int(record[4]))
	if _, err := io.ReadFull(ours, rest); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	wg.Wait()
	return string(record) + string(rest)
}

func TestFirstBytes(t *testing.T) {
	good := hello(t, &tls.Config{ServerName: "a.example"})
	evil := hello(t, &tls.Config{ServerName: "evil.example"})
	none := hello(t, &tls.Config{InsecureSkipVerify: true})
	request := "POST /x HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: 3\r\n\r\nabc"
	const pass = ""
	for _, tt := range []struct {
		name, bytes, host string
		port              uint16
		want              string
	}{
		{"TLS", good, "a.example", 443, pass},
		{"TLS on another port", good, "a.example", 8443, pass},
		{"TLS with more behind it", good + strings.Repeat("x", maxFirstBytes), "a.example", 443,
			pass},
		{"TLS for another host", evil, "a.example", 443, "the server name of TLS is evil.example"},
		{"TLS without a name", none, "a.example", 443, "no server name"},
		{"TLS without a name for an address", none, "192.0.2.1", 443, pass},
		{"TLS with a name for an address", evil, "192.0.2.1", 443, "evil.example"},
		{"half of TLS", good[:len(good)/2], "a.example", 443, "EOF"},
		{"TLS with another message first", "\x16\x03\x01\x00\x04\x02\x00\x00\x00", "a.example", 443,
			"error decoding message"},
		{"no TLS", "\x15\x03\x01", "a.example", 443, "not TLS"},
		{"HTTP on the port of TLS", request, "a.example", 443, "not TLS"},
		{"HTTP", request, "a.example", 80, pass},
		{"HTTP on another port", request, "a.example", 8080, pass},
		{"HTTP with an address", "GET / HTTP/1.1\r\nHost: [2001:DB8:0::1]:80\r\n\r\n",
			"2001:db8::1",
			80, pass},
		{"HTTP for this machine", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.1", 80,
			pass},
		{"HTTP for all resources", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example", 80,
			pass},
		{"HTTP for another host", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "a.example", 8080,
			"the header Host is evil.example"},
		{"HTTP with a user name", "GET / HTTP/1.1\r\nHost: a.example@evil.example\r\n\r\n",
			"a.example", 80, "the header Host is a.example@evil.example"},
		{"HTTP without a host", "GET / HTTP/1.0\r\n\r\n", "a.example", 80, "no header Host"},
		{"HTTP with two hosts", "GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n",
			"a.example", 8080, "too many Host headers"},
		{"HTTP after empty lines", "\r\n\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
			"a.example",
			8080, "not a request of HTTP/1"},
		{"HTTP with a long first line", "GET /" + strings.Repeat("x", 8<<10) +
			" HTTP/1.1\r\nHost: evil.example\r\n\r\n", "a.example", 8080, "evil.example"},
		{"HTTP with too long headers", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x",
			maxFirstBytes) +
			"\r\nHost: a.example\r\n\r\n", "a.example", 80, "EOF"},
		{"HTTP for a proxy", "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
			"a.example",
			80, "for a proxy"},
		{"a tunnel", "CONNECT a.example:22 HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example", 8080,
			"for a proxy"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "a.example", 8080, "not HTTP/1"},
		{"half of HTTP", "GET / HTTP/1.1\r\nHost: a.exa", "a.example", 80, "EOF"},
		{"another protocol of lines", "EHLO me\r\n", "a.example", 25, pass},
		{"a binary protocol", "GET\x00 / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "a.example", 5432,
			pass},
		{"a binary protocol on the port of HTTP", "\x00\x00\x00\x08", "a.example", 80,
			"not a request"},
		{"nothing", "", "a.example", 5432, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for kind, in := range map[string]io.Reader{"at once": strings.NewReader(tt.bytes),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.bytes))} {
				rest := in
				read, err := readFirst(in, tt.host, tt.port)
				if tt.want != pass {
					if err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("%s: got the error %v, want %q", kind, err, tt.want)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				// What is forwarded is what was read, and what follows.
				after, _ := io.ReadAll(rest)
				if got := string(read) + string(after); got != tt.bytes {
					t.Errorf("%s: got %q, want %q", kind, got, tt.bytes)
				}
				if len(read) > maxFirstBytes {
					t.Errorf("%s: %d bytes were kept", kind, len(read))
				}
			}
		})
	}
}

// The name of the real host may be encrypted, behind the public name of another one.
func TestEncryptedServerNameIsRefused(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// An ECHConfigList of RFC 9849 with X25519, HKDF-SHA256 and AES-128-GCM.
	config := slices.Concat([]byte{1, 0, 0x20, 0, 32}, key.PublicKey().Bytes(),
		[]byte{0, 4, 0, 1, 0, 1, 32, byte(len("a.example"))}, []byte("a.example"), []byte{0, 0})
	config = slices.Concat([]byte{0, byte(len(config) + 4), 0xfe, 0x0d, 0, byte(len(config))},
		config)
	first := hello(t, &tls.Config{ServerName: "evil.example", MinVersion: tls.VersionTLS13,
		EncryptedClientHelloConfigList: config})
	_, err = readFirst(strings.NewReader(first), "a.example", 443)
	if err == nil || !strings.Contains(err.Error(), "encrypted server name") {
		t.Errorf("got %v", err)
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	var mu sync.Mutex
	var events []Event
	r, err := Serve(nil, Options{Record: func(e Event) error {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
		return errors.New("the disk is full")
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for i := range maxRefusals + 10 {
			r.refuse(Event{Host: fmt.Sprintf("n%d.example", i), Reason: "x"})
		}
	}
	r.Close()
	if len(events) != maxRefusals+1 {
		t.Errorf("got %d events, want %d", len(events), maxRefusals+1)
	}
	want := fmt.Sprintf("like recorded ones or too many: %d", maxRefusals+20)
	if !slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Refused && strings.Contains(e.Reason, want)
	}) {
		t.Errorf("no event with %q: %+v", want, events[max(0, len(events)-3):])
	}
}
