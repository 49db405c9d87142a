package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/config"
)

// listening is a listener that other machines can reach, in plain HTTP behind a proxy.
const listening = server + "[listen]\nhttp = \"0.0.0.0:7777\"\n" +
	"public_url = \"https://gatekit.example\"\n"

const issuerTable = "[[listen.auth.issuer]]\nissuer = \"https://login.example\"\n"

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestAuthenticationOfClients(t *testing.T) {
	c, err := load(t, listening+"[listen.auth]\nscopes = [\"mcp\"]\n"+issuerTable+
		"introspect = { id = \"gatekit\", secret = \"s\" }\n"+
		"login = { id = \"pages\", secret = \"t\" }\n"+
		"[listen.auth.token.ci]\nsha256 = \""+digest+"\"\nscopes = [\"mcp\"]\n"+
		"expires = 2027-01-01T00:00:00Z\n")
	if err != nil {
		t.Fatal(err)
	}
	a := c.Listen.Auth
	i, token := a.Issuers[0], a.Tokens[0]
	if a.Skew != 30*time.Second || a.Anonymous || i.Tokens != "jwt" || i.Subject != "sub" ||
		strings.Join(i.Audience, " ") != "https://gatekit.example/mcp" ||
		strings.Join(i.Algorithms, " ") != "RS256 PS256 ES256 EdDSA" ||
		i.Introspect.Cache != 10*time.Second || i.Login.ID != "pages" || i.Login.Secret != "t" {
		t.Errorf("got %+v, want the defaults", a)
	}
	const callback = "https://gatekit.example/connect/callback"
	if got := c.Listen.ConnectCallbackURL(); got != callback {
		t.Errorf("got the redirect URI %q, want %q", got, callback)
	}
	a.Issuers[0].Login = nil
	if got := c.Listen.ConnectCallbackURL(); got != "" {
		t.Errorf("without login, got the redirect URI %q, want none", got)
	}
	if d := token.Digest(); token.Name != "ci" || token.Subject != "ci" || d[0] != 0xe3 ||
		!token.Expires.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("got the token %+v", token)
	}
}

// The roles name groups and principals. An empty role is nobody's.
func TestRolesOfTheConsole(t *testing.T) {
	c, err := load(t, listening+"console = true\n"+issuerTable+
		"login = { id = \"pages\", secret = \"t\" }\n[listen.auth.roles]\n"+
		"\"console/read\" = [\"group:ops\", \"https://login.example#ann\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	roles := c.Listen.Auth.Roles
	for _, test := range []struct {
		name      string
		principal string
		groups    []string
		want      bool
	}{
		{"a member of the group", "https://login.example#bob", []string{"dev", "ops"}, true},
		{"the principal", "https://login.example#ann", nil, true},
		{"another principal", "https://login.example#bob", []string{"dev"}, false},
		{"a subject that is named as the group", "ops", nil, false},
		{"a group that is named as the value", "https://login.example#bob",
			[]string{"group:ops", "https://login.example#ann"}, false},
		{"nobody", "", nil, false},
	} {
		if got := config.HasRole(roles.ConsoleRead, test.principal, test.groups); got != test.want {
			t.Errorf("%s: has the role: %t, want %t", test.name, got, test.want)
		}
		if config.HasRole(roles.ConsoleApprove, test.principal, test.groups) {
			t.Errorf("%s: has the role of nobody", test.name)
		}
	}
}

// Policies can still demand scopes of issuers that name them differently.
func TestIssuersWithDifferentNamesOfScopes(t *testing.T) {
	c, err := load(t, listening+issuerTable+"scope_prefix = \"api://a/\"\n"+
		"[[listen.auth.issuer]]\nissuer = \"https://b.example\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Listen.Auth.Issuers; got[0].ScopePrefix != "api://a/" || got[1].ScopePrefix != "" {
		t.Errorf("got the issuers %+v", got)
	}
}

func TestMistakesInAuthentication(t *testing.T) {
	loopback := strings.Replace(listening, "0.0.0.0", "127.0.0.1", 1)
	const publicURL = "public_url = \"https://gatekit.example\"\n"
	noURL := strings.ReplaceAll(listening, publicURL, "")
	private := strings.ReplaceAll(loopback, publicURL, "")
	token := "[listen.auth.token.ci]\nsha256 = \"" + digest + "\"\n"
	opaque := func(issuer string) string {
		return "[[listen.auth.issuer]]\nissuer = \"https://" + issuer + "\"\n" +
			"tokens = \"introspection\"\nintrospect = { id = \"i\", secret = \"s\" }\n"
	}
	const consoleOn, login = "console = true\n", "login = { id = \"c\", secret = \"s\" }\n"
	const roles = "[listen.auth.roles]\n"
	const files = "[listen.tls]\ncert = \"ca.pem\"\nkey = \"ca.key\"\n"
	const noAddress = `5:1: listen.public_url must be a URL such as "https://gatekit.example"`
	const noIssuer = `7:1: listen.auth.issuer[0].issuer must be a URL such as`
	type test struct{ name, doc, want string } // want has the beginning of each mistake in a line
	tests := []test{
		{"insecure is gone", private + "insecure = true",
			`5:1: the key "insecure" in [listen] is gone: an address that other machines can ` +
				`reach needs [listen.auth]`},
		{"no authentication", noURL, "4:1: listen.http = \"0.0.0.0:7777\" can be reached"},
		{"a public URL without authentication", loopback,
			"5:1: listen.public_url = \"https://gatekit.example\" can be reached from other"},
		{"only anonymous clients", private + "[listen.auth]\nanonymous = true",
			"5:1: [listen.auth] lets nobody in"},
		{"tokens without encryption", noURL + token,
			"4:1: listen.http = \"0.0.0.0:7777\" can be reached from other machines, and " +
				"credentials would be sent without encryption"},
		{"a public URL without https", strings.Replace(loopback, "https:", "http:", 1),
			"5:1: listen.public_url = \"http://gatekit.example\" must be https"},
		{"an issuer without public_url", private + issuerTable,
			"5:1: listen.auth.issuer[0] needs listen.public_url"},
		{"an issuer without https", loopback + strings.Replace(issuerTable, "https", "http", 1),
			"7:1: listen.auth.issuer[0].issuer = \"http://login.example\" must be https"},
		{"issuers without names", loopback + "[[listen.auth.issuer]]\nscope = \"s\"\n" +
			"[[listen.auth.issuer]]", "6:1: listen.auth.issuer[0] has no issuer\n" +
			"8:1: listen.auth.issuer[1] has no issuer"},
		{"two equal issuers", loopback + issuerTable + issuerTable,
			"9:1: there are two issuers \"https://login.example\""},
		{"two issuers of tokens that do not name them", loopback + opaque("a") + opaque("b"),
			"12:1: listen.auth.issuer[0] and listen.auth.issuer[1] both have tokens = " +
				"\"introspection\""},
		{"a scope_prefix that no scope can have", loopback + issuerTable + `scope_prefix = "a b"`,
			`8:1: listen.auth.issuer[0].scope_prefix cannot begin a scope: "a b"`},
		{"issuers with different names of the scopes that tokens must have", loopback +
			"[listen.auth]\nscopes = [\"mcp\"]\n" + issuerTable + "scope_prefix = \"api://a/\"\n" +
			"[[listen.auth.issuer]]\nissuer = \"https://b.example\"\n",
			"11:1: listen.auth.issuer[1] has another scope_prefix than the first issuer"},
		{"an unknown kind of token", loopback + issuerTable + `tokens = "opaque"`,
			`8:1: listen.auth.issuer[0].tokens must be one of "jwt", "introspection", not`},
		{"the algorithm none", loopback + issuerTable + `algorithms = ["none"]`,
			"8:15: listen.auth.issuer[0].algorithms[0] must be one of RS256"},
		{"the algorithm HS256", loopback + issuerTable + `algorithms = ["RS256", "HS256"]`,
			"8:24: listen.auth.issuer[0].algorithms[1] must be one of RS256"},
		{"no algorithm", loopback + issuerTable + "algorithms = []",
			"8:1: listen.auth.issuer[0].algorithms must have at least one"},
		{"an empty audience", loopback + issuerTable + `audience = ["a", ""]`,
			"8:1: listen.auth.issuer[0].audience must have at least one value"},
		{"no audience", loopback + issuerTable + "audience = []",
			"8:1: listen.auth.issuer[0].audience must have at least one value"},
		{"introspection without client", loopback + issuerTable + `tokens = "introspection"`,
			"6:1: listen.auth.issuer[0] has tokens = \"introspection\" but no introspect"},
		{"introspection without secret", loopback + issuerTable + `introspect = { id = "x" }`,
			"8:1: listen.auth.issuer[0].introspect has no secret"},
		{"introspection without id", loopback + issuerTable + `introspect = { secret = "x" }`,
			"8:1: listen.auth.issuer[0].introspect has no id"},
		{"a login without secret", loopback + issuerTable + `login = { id = "x" }`,
			"8:1: listen.auth.issuer[0].login has no secret"},
		{"a login without id", loopback + issuerTable + `login = { secret = "x" }`,
			"8:1: listen.auth.issuer[0].login has no id"},
		{"a login without public_url", private + issuerTable +
			`login = { id = "x", secret = "y" }`,
			"5:1: listen.auth.issuer[0] needs listen.public_url"},
		{"a login with a public URL without https",
			strings.Replace(loopback, "https:", "http:", 1) + issuerTable +
				`login = { id = "x", secret = "y" }`,
			"5:1: listen.public_url = \"http://gatekit.example\" must be https"},
		{"a login whose pages hide the endpoint", loopback + "path = \"/connect/login\"\n" +
			issuerTable + `login = { id = "x", secret = "y" }`,
			"9:1: listen.auth.issuer[0].login needs the paths below /connect/ for its pages"},
		{"a network that is none", loopback + issuerTable + `networks = ["::/0", "10.0.0.1"]`,
			"8:21: listen.auth.issuer[0].networks[1] must be a network"},
		{"a digest that is too short", loopback + strings.Replace(token, "e3b0", "", 1),
			"7:1: listen.auth.token.ci.sha256 must have 64 hexadecimal digits"},
		{"a console without authentication", private + consoleOn,
			"5:1: listen.console needs listen.public_url"},
		{"a console whose clients have static tokens", listening + consoleOn + token,
			"6:1: listen.console needs an [[listen.auth.issuer]] with login"},
		{"a console without a login", listening + consoleOn + issuerTable,
			"6:1: listen.console needs an [[listen.auth.issuer]] with login"},
		{"a console without a public URL", private + consoleOn + issuerTable + login,
			"5:1: listen.console needs listen.public_url\n" +
				"6:1: listen.auth.issuer[0] needs listen.public_url"},
		{"a console without HTTP", server + "[listen]\n" + consoleOn,
			"4:1: listen.console needs listen.http"},
		{"a console at the path of the endpoint", listening + "path = \"/console\"\n" + consoleOn +
			issuerTable + login, "7:1: listen.console needs the paths below /console/"},
		{"a console of a replica", listening + consoleOn + issuerTable + login +
			"[cluster]\nname = \"a\"\n", "6:1: listen.console cannot be used with [cluster]\n" +
			"10:1: cluster.listen is missing"},
		{"an unknown role", listening + consoleOn + issuerTable + login + roles +
			"\"console/reed\" = [\"group:ops\"]", `11:1: unknown key "console/reed" in ` +
			`[listen.auth.roles], did you mean "console/read"?`},
		{"a group without its kind", listening + consoleOn + issuerTable + login + roles +
			"\"console/read\" = [\"group:ops\", \"ops\"]",
			`11:32: listen.auth.roles: "console/read"[1] must be "group:NAME"`},
		{"a group without a name", listening + consoleOn + issuerTable + login + roles +
			"\"console/approve\" = [\"group:\"]",
			`11:22: listen.auth.roles: "console/approve"[0] must be "group:NAME"`},
		{"a user without a subject", listening + consoleOn + issuerTable + login + roles +
			"\"console/read\" = [\"https://login.example#\"]",
			`11:19: listen.auth.roles: "console/read"[0] must be "group:NAME"`},
		{"a user of an issuer without a login", listening + consoleOn + issuerTable + login +
			"[[listen.auth.issuer]]\nissuer = \"https://b.example\"\n" + roles +
			"\"console/read\" = [\"https://b.example#ann\"]",
			`13:19: listen.auth.roles: "console/read"[0] must be "group:NAME"`},
		{"a token without digest", loopback + "[listen.auth.token.ci]",
			"6:1: listen.auth.token.ci.sha256 must have 64 hexadecimal digits"},
		{"a token with _", loopback + strings.Replace(token, ".ci", ".c_i", 1),
			"6:1: \"c_i\" is not a valid name of a token"},
		{"a token without the scopes", loopback + "[listen.auth]\nscopes = [\"mcp\"]\n" + token,
			"8:1: [listen.auth.token.ci] has no scope \"mcp\""},
		{"two scopes in one", loopback + "[listen.auth]\nscopes = [\"a b\"]\n" + issuerTable,
			"7:11: listen.auth.scopes[0] is not a scope"},
		{"a scope with a quote", loopback + "[listen.auth]\nscopes = ['a\"b']\n" + issuerTable,
			"7:11: listen.auth.scopes[0] is not a scope"},
		{"an expiry that is a text", loopback + token + `expires = "2027-01-01"`,
			"8:1: listen.auth.token.ci.expires must be a time such as 2027-01-01T00:00:00Z"},
		{"certificates without TLS", loopback + "[listen.auth.mtls]\nca = \"${file:ca.pem}\"\n" +
			"trust = [\"spiffe://a/\"]", "6:1: [listen.auth.mtls] needs listen.tls"},
		{"certificates without names", private + files +
			"[listen.auth.mtls]\nca = \"${file:ca.pem}\"",
			"8:1: listen.auth.mtls.trust must have the names"},
		{"certificates with an empty name", private + files +
			"[listen.auth.mtls]\nca = \"${file:ca.pem}\"\ntrust = [\"a\", \"\"]",
			"8:1: listen.auth.mtls.trust must have the names"},
		{"certificates of nobody", private + files + "[listen.auth.mtls]\nca = \"x\"\n" +
			"trust = [\"a\"]", "9:1: listen.auth.mtls.ca must have a certificate in PEM"},
		{"certificates without authority", private + files + "[listen.auth.mtls]\n" +
			"trust = [\"a\"]", "8:1: listen.auth.mtls.ca must have a certificate in PEM"},
		{"an unknown kind of name in certificates", private + files + "[listen.auth.mtls]\n" +
			"ca = \"${file:ca.pem}\"\ntrust = [\"a\"]\nsubject = \"cn\"",
			`11:1: listen.auth.mtls.subject must be one of "uri", "dns", "email", not "cn"`},
		{"TLS without key", private + "[listen.tls]\ncert = \"ca.pem\"",
			"5:1: listen.tls has no key"},
		{"TLS without certificate", private + "[listen.tls]\nkey = \"ca.key\"",
			"5:1: listen.tls has no cert"},
		{"TLS with a file that is no key", private + "[listen.tls]\ncert = \"ca.pem\"\n" +
			"key = \"other.key\"", "5:1: listen.tls: "},
		{"authentication without listener", server + token, "3:1: listen.auth needs listen.http"},
		{"a public URL whose variable is not set", strings.Replace(loopback+issuerTable,
			"https://gatekit.example", "${env:GATEKIT_TEST_NOT_SET}", 1),
			"5:1: listen.public_url: ${env:GATEKIT_TEST_NOT_SET} is not set"},
		{"an issuer whose variable is not set", loopback + strings.Replace(issuerTable,
			"https://login.example", "${env:GATEKIT_TEST_NOT_SET}", 1),
			"7:1: listen.auth.issuer[0].issuer: ${env:GATEKIT_TEST_NOT_SET} is not set"},
	}
	for _, u := range []string{"https://", "ftp://a", "//a", "https://a?q", "https://a#f",
		"https://u@a", "https://a b"} {
		tests = append(tests,
			test{"a public URL " + u, strings.Replace(loopback, "https://gatekit.example", u, 1),
				noAddress},
			test{"an issuer " + u,
				loopback + strings.Replace(issuerTable, "https://login.example", u, 1), noIssuer})
	}
	cert, key := certificate(t)
	for _, tt := range tests {
		_, err := load(t, tt.doc, "ca.pem", cert, "ca.key", key, "other.key", "x")
		got, want := mistakes(t, err), strings.Split(tt.want, "\n")
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: got the mistakes\n%s\nwant mistakes that begin with\n%s", tt.name,
				strings.Join(got, "\n"), tt.want)
		}
	}
}

func TestAuthenticationThatIsAccepted(t *testing.T) {
	const local = server + "[listen]\nhttp = \"127.0.0.1:7777\"\n"
	const token = "[listen.auth.token.ci]\nsha256 = \"" + digest + "\"\n"
	const files = "[listen.tls]\ncert = \"ca.pem\"\nkey = \"ca.key\"\n"
	const mtls = "[listen.auth.mtls]\nca = \"${file:ca.pem}\"\ntrust = [\"a\"]\n"
	cert, key := certificate(t)
	for _, tt := range []struct {
		name, doc string
		required  bool   // that all clients authenticate themselves
		resource  string // the URL at which clients reach the endpoint
	}{
		{"clients of this machine", local, false, ""},
		{"a public URL of this machine", local + "public_url = \"http://localhost:1/\"", false,
			"http://localhost:1/mcp"},
		{"a static token", local + token, true, ""},
		{"anonymous clients beside a static token", local + "[listen.auth]\nanonymous = true\n" +
			token, false, ""},
		{"certificates of clients", strings.Replace(local, "127.0.0.1", "0.0.0.0", 1) + files +
			mtls, true, ""},
		{"two issuers", listening + issuerTable + "[[listen.auth.issuer]]\n" +
			"issuer = \"http://127.0.0.1:1/b\"\n", true, "https://gatekit.example/mcp"},
		{"issuers with tokens of both kinds", listening + issuerTable +
			"[[listen.auth.issuer]]\nissuer = \"https://b\"\ntokens = \"introspection\"\n" +
			"introspect = { id = \"i\", secret = \"s\" }\nnetworks = [\"10.0.0.0/8\"]", true,
			"https://gatekit.example/mcp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := load(t, tt.doc, "ca.pem", cert, "ca.key", key)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Listen.Auth.Required(); got != tt.required {
				t.Errorf("authentication is required: got %t, want %t", got, tt.required)
			}
			if got := c.Listen.Resource(); got != tt.resource {
				t.Errorf("the URL of the endpoint is %q, want %q", got, tt.resource)
			}
			if p := c.Listen.TLS; p != nil && (p.Cert != filepath.Join(filepath.Dir(c.File),
				"ca.pem") || p.Key != filepath.Join(filepath.Dir(c.File), "ca.key")) {
				t.Errorf("the files of the certificate are %+v, want absolute paths", p)
			}
		})
	}
}

func TestIssuerAndTokenKeepWhatTheFileSets(t *testing.T) {
	c, err := load(t, listening+"[listen.auth]\n"+issuerTable+"audience = [\"a\"]\n"+
		"[listen.auth.token.ci]\nsha256 = \""+digest+"\"\nsubject = \"robot\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Listen.Auth; !slices.Equal(a.Issuers[0].Audience, []string{"a"}) ||
		a.Tokens[0].Subject != "robot" {
		t.Errorf("got the audience %q and the subject %q, want those of the file",
			a.Issuers[0].Audience, a.Tokens[0].Subject)
	}
}
