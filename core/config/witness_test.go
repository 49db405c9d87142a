package config_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/config"
)

func TestWitnessesAreChecked(t *testing.T) {
	const start = "[server.a]\ncommand = \"x\"\n[[audit.witness]]\n"
	url, key := "url = \"https://w.example/p/\"\n", "key = \"w.example+0f0f0f0f+BAAA\"\n"
	witnesses := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "[[audit.witness]]\n%skey = \"w%d+0f0f0f0f+BAAA\"\n", url, i)
		}
		return "[server.a]\ncommand = \"x\"\n" + b.String()
	}
	for _, tt := range []struct{ name, text, want string }{
		{"complete", start + url + key + "networks = [\"10.0.0.0/8\"]\nca = \"r.pem\"\n", ""},
		{"on this machine", start + "url = \"http://127.0.0.1:8080\"\n" + key, ""},
		{"nothing but the table", start, "has no url, such as"},
		{"no key", start + url, "has no key: set it to the public key of the witness"},
		{"an empty url", start + "url = \"\"\n" + key, "has no url, such as"},
		{"no URL", start + "url = \"w.example\"\n" + key, `4:1: audit.witness[0].url must be a URL`},
		{"a URL without a host", start + "url = \"https:///x\"\n" + key, `4:1: audit.witness[0].url`},
		{"another scheme", start + "url = \"ftp://w.example\"\n" + key, `must be a URL such as`},
		{"a query", start + "url = \"https://w.example?x=1\"\n" + key, `must be a URL such as`},
		{"a fragment", start + "url = \"https://w.example#x\"\n" + key, `must be a URL such as`},
		{"a password", start + "url = \"https://a:b@w.example\"\n" + key, `contains credentials`},
		{"no encryption", start + "url = \"http://w.example\"\n" + key,
			`4:1: audit.witness[0].url = "http://w.example" must be https`},
		{"no public key", start + url + "key = \"abc+def\"\n",
			`5:1: audit.witness[0].key must be a public key NAME+ID+KEY, not "abc+def"`},
		{"no network", start + url + key + "networks = [\"10.0.0.0\"]\n",
			`6:13: audit.witness[0].networks[0] must be a network such as "10.0.0.0/8"`},
		{"a key twice", start + url + key + "[[audit.witness]]\n" + url + key,
			"8:1: audit.witness[1].key is the key of an earlier witness"},
		{"as many as possible", witnesses(16), ""},
		{"too many", witnesses(17), "there are 17 witnesses, but at most 16 are possible"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got the error %v, want none", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got the error %v, want %q", err, tt.want)
			case tt.want != "" && strings.Count(err.Error(), "audit.witness") > 1 &&
				tt.name != "nothing but the table":
				t.Errorf("got several errors: %v", err)
			}
		})
	}
	c, err := load(t, start+url+"key = \" w.example+0f0f0f0f+BAAA\\n\"\nca = \"r.pem\"\n")
	if err != nil {
		t.Fatal(err)
	}
	w := c.Audit.Witnesses[0]
	if w.Key != "w.example+0f0f0f0f+BAAA" || !strings.HasPrefix(w.CA, "/") ||
		w.String() != "https://w.example" {
		t.Errorf("the witness is %+v, printed %s", w, w)
	}
	if got := (config.Witness{URL: ":"}).String(); got != "witness" {
		t.Errorf("a witness with an invalid URL is printed as %s", got)
	}
}
