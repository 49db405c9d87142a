package policies_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// spellings returns ways to write an IPv4 address that some parsers accept.
func spellings(a netip.Addr) (all []string) {
	b := a.As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	dotted := a.String()
	all = append(all, dotted, dotted+".", fmt.Sprint(n), fmt.Sprintf("0x%x", n), fmt.Sprintf("0X%X",
		n), fmt.Sprintf("0%o", n), fmt.Sprintf("%d.%d", b[0], n&0xffffff), fmt.Sprintf("%d.%d.%d",
		b[0], b[1], n&0xffff),
		fmt.Sprintf("0x%x.0x%x.0x%x.0x%x", b[0], b[1], b[2], b[3]), fmt.Sprintf("0%o.0%o.0%o.0%o",
			b[0], b[1], b[2], b[3]), fmt.Sprintf("0000%o.0x%x.%d", b[0], b[1], n&0xffff),
		fmt.Sprintf("[::ffff:%s]", dotted), fmt.Sprintf("[::ffff:%x:%x]", n>>16, n&0xffff),
		fmt.Sprintf("[0:0:0:0:0:FFFF:%s]", dotted), fmt.Sprintf("[::%s]", dotted),
		fmt.Sprintf("[64:ff9b::%s]", dotted),
		fmt.Sprintf("[2002:%x:%x::]", n>>16, n&0xffff), strings.NewReplacer(".",
			"。").Replace(dotted), strings.NewReplacer(".", "%2e").Replace(dotted),
		"%3"+dotted[:1]+dotted[1:])
	wide := []rune(dotted)
	for i, r := range wide {
		if r >= '0' && r <= '9' {
			wide[i] = '０' + r - '0'
		}
	}
	return append(all, string(wide), dotted+".nip.io", strings.ReplaceAll(dotted,
		".", "-")+".sslip.io")
}

func TestAddressThatIsNotPublicIsRefusedInEverySpelling(t *testing.T) {
	s := fromLibrary(t, "resources/uris", nil)
	n := 0
	for _, address := range []string{"127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1",
		"172.31.255.255", "192.168.0.1", "169.254.169.254", "100.64.0.1", "100.100.100.200",
		"0.0.0.0", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255", "168.63.129.16"} {
		for _, host := range spellings(netip.MustParseAddr(address)) {
			for _, form := range []string{"http://%s/", "HTTPS://%s:8080/x", "ws://%s",
				"http://user@%s/", "http://%s?x", "http://%s#x", "http:/%s/", "http:\\\\%s/"} {
				if n++; !refused(t, s, reading(fmt.Sprintf(form, host))) {
					t.Errorf("%s passes", fmt.Sprintf(form, host))
				}
			}
		}
	}
	t.Logf("%d URIs", n)
	for _, host := range []string{"8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.255.255",
		"169.253.0.1", "11.0.0.1", "128.0.0.1", "[2606:4700::1111]", "[::ffff:8.8.8.8]",
		"10.example.com", "127.0.0.1.example.com", "localhost.example.com", "xn--bcher-kva.example",
		"a_b.example.com"} {
		for _, form := range []string{"http://%s/",
			"https://%s:8443/x?y=http://127.0.0.1/#@localhost"} {
			if refused(t, s, reading(fmt.Sprintf(form, host))) {
				t.Errorf("%s is refused", fmt.Sprintf(form, host))
			}
		}
	}
	for uri, pass := range map[string]bool{
		"issue://42": true, "notes://inbox": true, "db://1.2/x": true, "memo://a%20b/c": true,
		"urn:x:127.0.0.1": true, "memo:127.0.0.1": true, "repo://owner/name": true,
		"redis://localhost": false, "redis://127.0.0.1:6379": false, "gopher://example.com": false,
		"redis://[::1]/": false, "x://a@b": false,
	} {
		if refused(t, s, reading(uri)) == pass {
			t.Errorf("%s: passed %v, want %v", uri, !pass, pass)
		}
	}
}

// FuzzFunctions checks that the rules evaluate every text, as a path and as a URI, without an error
// or a panic.
func FuzzFunctions(f *testing.F) {
	for _, seed := range []string{"http://127.0.0.1/", "file:///data/%2e%2e/x", "", ":", "a:", "//",
		"[", "http://[", "%", "%u", "C:", "~", "\\\\", "file:"} {
		f.Add(seed)
	}
	paths, uris := fromLibrary(f, "roots/traversal", map[string]any{"roots": []any{"/data", "C:/x"},
		"relative": true}), fromLibrary(f, "resources/uris", nil)
	f.Fuzz(func(t *testing.T, text string) {
		m := called("x", `{"path":`+quoted(text)+`}`)
		if _, err := paths.Inspect(t.Context(), m); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := uris.Inspect(t.Context(), reading(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
