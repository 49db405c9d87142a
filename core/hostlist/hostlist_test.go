package hostlist_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gatekit/core/hostlist"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, tt := range []struct{ text, want string }{
		{"api.github.com", "api.github.com"},
		{"API.GitHub.com.", "api.github.com"},
		{"api.github.com:443", "api.github.com"},
		{"*.example.com:8443", "*.example.com:8443"},
		{"db:5432", "db:5432"},
		{"_x.example.com", "_x.example.com"},
		{long + ".example.com", long + ".example.com"},
		{"10.1.2.3", "10.1.2.3"},
		{"10.1.2.3:65535", "10.1.2.3:65535"},
		{"2001:DB8::1", "2001:db8::1"},
		{"[2001:db8:0::1]", "2001:db8::1"},
		{"[::1]:80", "[::1]:80"},
		{"::ffff:10.1.2.3", "10.1.2.3"},
	} {
		h, err := hostlist.Parse(tt.text)
		if err != nil || h.String() != tt.want {
			t.Errorf("%s: got %s %v, want %s", tt.text, h, err, tt.want)
		}
		if again, err := hostlist.Parse(h.String()); err != nil || again != h {
			t.Errorf("%s: String returns %s, which is parsed as %v %v", tt.text, h, again, err)
		}
	}
}

func TestParseMistakes(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "is not a host"},
		{"*", "is not a host"},
		{"*.", "is not a host"},
		{"*.com", "two labels"},
		{"a.*.example.com", "is not a host"},
		{"*example.com", "is not a host"},
		{"https://example.com", "no valid port"},
		{"example.com/path", "without a scheme"},
		{"bücher.example", "xn--"},
		{"example.com:", "no valid port"},
		{"example.com:0", "no valid port"},
		{"example.com:65536", "no valid port"},
		{"example.com:https", "no valid port"},
		{"127.1", "is not a host"},
		{"0x7f.0x1", "is not a host"},
		{"256.1.1.1", "is not a host"},
		{"-a.example.com", "is not a host"},
		{"a-.example.com", "is not a host"},
		{"a..example.com", "is not a host"},
		{".example.com", "is not a host"},
		{strings.Repeat("a", 64) + ".example.com", "is not a host"},
		{strings.Repeat("a.", 126) + "ab", "is not a host"}, // 254 bytes
		{"0.0.0.0", "not the address of one host"},
		{"224.0.0.1", "not the address of one host"},
		{"10.1.2.3:0", "not the address of one host"},
		{"[fe80::1%eth0]:443", "not the address of one host"},
		{"[example.com]", "is not a host"},
	} {
		h, err := hostlist.Parse(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %q %v, want an error with %q", tt.text, h, err, tt.want)
		}
	}
	if _, err := hostlist.Parse(strings.Repeat("a.", 125) + "abc"); err != nil { // 253 bytes
		t.Errorf("the longest name: %v", err)
	}
}

func parse(t *testing.T, texts ...string) (list hostlist.List) {
	t.Helper()
	for _, text := range texts {
		h, err := hostlist.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h)
	}
	return list
}

func TestListMatches(t *testing.T) {
	list := parse(t, "api.github.com", "*.example.com:8443", "10.1.2.3:80", "github.com:22")
	for _, tt := range []struct {
		name           string
		port           uint16
		allowed, named bool
	}{
		{"api.github.com", 443, true, true},
		{"api.github.com", 80, false, true},
		{"api.github.com", 22, false, true},
		{"github.com", 443, false, true},
		{"github.com", 22, true, true},
		{"x.api.github.com", 443, false, false},
		{"xapi.github.com", 443, false, false},
		{"a.example.com", 8443, true, true},
		{"a.b.example.com", 8443, true, true},
		{"a.example.com", 443, false, true},
		{"example.com", 8443, false, false},
		{".example.com", 8443, false, false},
		{"badexample.com", 8443, false, false},
		{"a.example.com.evil.org", 8443, false, false},
		{"10.1.2.3", 80, true, true},
		{"10.1.2.4", 80, false, false},
		{"", 443, false, false},
	} {
		if got := list.Allows(tt.name, tt.port); got != tt.allowed {
			t.Errorf("Allows(%q, %d): got %t", tt.name, tt.port, got)
		}
		if got := list.Names(tt.name); got != tt.named {
			t.Errorf("Names(%q): got %t", tt.name, got)
		}
	}
	if got, want := list.Ports(), []uint16{22, 80, 443, 8443}; !slices.Equal(got, want) {
		t.Errorf("got the ports %v, want %v", got, want)
	}
	want := "api.github.com, *.example.com:8443, 10.1.2.3:80, github.com:22"
	if got := list.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestListIsBounded(t *testing.T) {
	var list hostlist.List
	for i := range hostlist.MaxHosts {
		list = append(list, hostlist.Host{Name: fmt.Sprintf("h%d.example", i),
			Port: uint16(1 + i%hostlist.MaxPorts)})
	}
	if err := list.Check(); err != nil {
		t.Errorf("the largest list: %v", err)
	}
	if err := append(list, list[0]).Check(); err == nil || !strings.Contains(err.Error(),
		"257 hosts") {
		t.Errorf("a list with one more host: got %v", err)
	}
	list[0].Port = 9999
	if err := list.Check(); err == nil || !strings.Contains(err.Error(), "33 different ports") {
		t.Errorf("a list with one more port: got %v", err)
	}
}
