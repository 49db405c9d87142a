package config_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestClusterIsChecked(t *testing.T) {
	cert, key := certificate(t)
	stateKey := strings.Repeat("k", 32)
	listen := "[server.a]\ncommand = \"x\"\n[listen]\nhttp = \"127.0.0.1:7777\"\nstate_key = \"" +
		stateKey + "\"\n"
	complete := "[cluster]\nname = \"a\"\nlisten = \"127.0.0.1:7443\"\n" +
		"advertise = \"a.example:7443\"\nca = \"r.pem\"\ncert = \"r.pem\"\nkey = \"r.key\"\n"
	for _, tt := range []struct{ name, text, want string }{
		{"complete", listen + complete, ""},
		{"nothing but the table", listen + "[cluster]",
			"cluster.name is missing: [cluster] needs name, listen, advertise, ca, cert and key"},
		{"no key", listen + strings.Replace(complete, "key = \"r.key\"\n", "", 1),
			"cluster.key is missing"},
		{"an address without a port", listen + strings.Replace(complete, ".1:7443", ".1", 1),
			`8:1: cluster.listen must be an address and port such as "gatekit-0.gatekit:7443", ` +
				`not "127.0.0.1"`},
		{"an advertised port without a host", listen + strings.Replace(complete, "a.example:", ":",
			1), `9:1: cluster.advertise = ":7443" names no machine: other replicas connect to it`},
		{"every address as the advertised one", listen + strings.Replace(complete, "a.example:",
			"0.0.0.0:", 1), `9:1: cluster.advertise = "0.0.0.0:7443" names no machine`},
		{"a missing certificate", listen + strings.Replace(complete, `cert = "r.pem"`,
			`cert = "missing.pem"`, 1), "missing.pem: no such file"},
		{"names of replicas", listen + complete + "replicas = [\"a\", \"b\"]", ""},
		{"an empty name of a replica", listen + complete + "replicas = [\"a\", \"\"]",
			`13:18: cluster.replicas[1] is empty: write the name of a replica`},
		{"the name of a replica twice", listen + complete + "replicas = [\"a\", \"b\", \"a\"]",
			`13:23: cluster.replicas has "a" twice`},
		{"as many replicas as the audit log names", listen + complete + replicas(255), ""},
		{"too many replicas", listen + complete + replicas(256),
			`13:1: cluster.replicas has 256 names, but can have at most 255`},
		{"a long name", listen + strings.Replace(complete, `"a"`, `"`+strings.Repeat("a", 256)+`"`,
			1), ""},
		{"a name that is too long", listen + strings.Replace(complete, `"a"`,
			`"`+strings.Repeat("a", 257)+`"`, 1),
			"7:1: cluster.name has 257 bytes, but can have at most 256"},
		{"no HTTP listener", "[server.a]\ncommand = \"x\"\n" + complete,
			"[cluster] needs listen.http: only HTTP clients reach several replicas"},
		{"no state key", strings.Replace(listen, "state_key = \""+stateKey+"\"\n", "", 1) +
			complete, "[cluster] needs listen.state_key, the same in all replicas"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text, "r.pem", cert, "r.key", key)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got the error %v, want none", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got the error %v, want %q", err, tt.want)
			}
		})
	}
}

// replicas returns the key replicas with n names.
func replicas(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%q", fmt.Sprint("replica-", i)))
	}
	return "replicas = [" + strings.Join(names, ", ") + "]"
}
