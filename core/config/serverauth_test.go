package config_test

import (
	"slices"
	"strings"
	"testing"
)

// authOf returns the configuration of a server with a url and [server.a.auth]. The first line of
// settings is line 4.
func authOf(url string, settings ...string) string {
	return "[server.a]\nurl = \"" + url + "\"\n[server.a.auth]\n" + strings.Join(settings, "\n")
}

func TestMistakesInServerCredentialsAreReported(t *testing.T) {
	const https, client = "https://x.example/mcp", `client = { id = "i", secret = "s" }`
	const typ = `type = "client_credentials"`
	const oauth = `type = "oauth"`
	const issuer = `issuer = "https://login.example"`
	type test struct{ name, doc, want string } // want has the beginning of each mistake in a line
	tests := []test{
		{"an unknown type", authOf(https, `type = "forward"`, issuer, client),
			`4:1: server.a.auth.type must be one of "headers", "client_credentials", "oauth", "exchange", "id_jag", not`},
		{"a server with a command", "[server.a]\ncommand = \"x\"\n[server.a.auth]\n" + typ,
			`3:1: [server.a.auth] applies to a server with a url`},
		{"settings that need another type", authOf(https, client, `type = "headers"`),
			`4:1: server.a.auth.client needs another type than "headers"`},
		{"a header Authorization beside the token", "[server.a]\nurl = \"" + https +
			"\"\nheaders = { x-a = \"x\", authorization = \"x\" }\n[server.a.auth]\n" + typ +
			"\n" + client + "\n" + issuer,
			`3:24: server.a.headers.authorization: the header is set by [server.a.auth]`},
		{"tokens over http", authOf("http://x.example/mcp", typ, client, issuer),
			`2:1: server.a.url sends tokens over http; use https`},
		{"no client", authOf(https, typ, issuer), "3:1: [server.a.auth] has no client id\n" +
			"3:1: [server.a.auth] needs a secret or a key in client"},
		{"a client without id", authOf(https, typ, issuer, `client = { secret = "s" }`),
			"3:1: [server.a.auth] has no client id"},
		{"neither secret nor key", authOf(https, typ, `client = { id = "i" }`, issuer),
			`3:1: [server.a.auth] needs a secret or a key in client`},
		{"both secret and key",
			authOf(https, typ, `client = { id = "i", secret = "s", key = "k" }`, issuer),
			`5:36: server.a.auth.client has both a secret and a key`},
		{"no issuer", authOf(https, typ, client), `3:1: [server.a.auth] has no issuer: set it`},
		{"oauth without a client", authOf(https, oauth),
			`3:1: [server.a.auth] has no client id: set client = { id = "…" }, or register`},
		{"oauth with a secret and no id", authOf(https, oauth, issuer,
			`client = { secret = "s" }`), `3:1: [server.a.auth] has no client id`},
		{"oauth with a secret and no issuer", authOf(https, oauth, client),
			`3:1: [server.a.auth] has no issuer: set it`},
		{"oauth without a document over https", "[listen]\nhttp = \"127.0.0.1:1\"\n" +
			"public_url = \"http://localhost:2\"\n" + authOf(https, oauth),
			`6:1: [server.a.auth] has no client id: set client = { id = "…" }, or register = ` +
				`true if the authorization server registers clients, or an https`},
		{"oauth with a client and register", authOf(https, oauth, `client = { id = "i" }`,
			`register = true`), `6:1: server.a.auth.register is for a Gatekit without a client`},
		{"oauth with a document, a secret and register", authOf(https, oauth, issuer,
			`client = { id = "https://gatekit.example/client.json", secret = "s" }`,
			`register = true`), `7:1: server.a.auth.register is for a Gatekit without a client`},
		{"an exchange of tokens that no client has", authOf(https, `type = "exchange"`, issuer,
			client), `5:1: server.a.auth.issuer exchanges the tokens of clients, and no ` +
			`[[listen.auth.issuer]] has the issuer "https://login.example"`},
		{"an exchange without issuer and client", authOf(https, `type = "exchange"`),
			"3:1: [server.a.auth] has no client id\n3:1: [server.a.auth] needs a secret or a key " +
				"in client: its type is \"exchange\"\n3:1: [server.a.auth] has no issuer"},
		{"an exchange with settings of logins", authOf(https, `type = "exchange"`, client, issuer,
			`per = "gatekit"`), `6:1: server.a.auth.issuer exchanges` + "\n" +
			`7:1: server.a.auth.per needs type = "oauth"`},
		{"id_jag without login, issuer and client", authOf(https, `type = "id_jag"`),
			"3:1: [server.a.auth] has no client id\n3:1: [server.a.auth] needs a secret or a key " +
				"in client: its type is \"id_jag\"\n3:1: [server.a.auth] has no issuer\n" +
				"3:1: [server.a.auth] has no login: set login = {"},
		{"a login without all it needs", authOf(https, `type = "id_jag"`, client, issuer,
			`login = { }`), "7:1: server.a.auth.login has no issuer\n7:1: server.a.auth.login has " +
			"no id\n7:1: server.a.auth.login needs a secret or a key"},
		{"a login with a secret and a key", authOf(https, `type = "id_jag"`, client, issuer,
			`login = { issuer = "https://idp.example", id = "i", secret = "s", key = "k" }`),
			`7:67: server.a.auth.login has both a secret and a key`},
		{"a login over http", authOf(https, `type = "id_jag"`, client, issuer,
			`login = { issuer = "http://idp.example", id = "i", secret = "s" }`),
			`7:11: server.a.auth.login.issuer must be a URL such as`},
		{"id_jag with settings of others", authOf(https, `type = "id_jag"`, client, issuer,
			`login = { issuer = "https://idp.example", id = "i", secret = "s" }`, `register = true`,
			`per = "gatekit"`, `audience = "x"`), `8:1: server.a.auth.register needs type = "oauth"` +
			"\n9:1: server.a.auth.per needs type = \"oauth\"\n" +
			`10:1: server.a.auth.audience needs type = "exchange"`},
		{"a login without id_jag", authOf(https, oauth, `register = true`,
			`login = { issuer = "https://idp.example", id = "i", secret = "s" }`),
			`6:1: server.a.auth.login needs type = "id_jag"`},
		{"an audience without exchange", authOf(https, typ, client, issuer, `audience = "x"`),
			`7:1: server.a.auth.audience needs type = "exchange"`},
		{"oauth with a URL that is no document, and register", authOf(https, oauth,
			`client = { id = "https://gatekit.example/" }`, `register = true`),
			`6:1: server.a.auth.register is for a Gatekit without a client`},
		{"an unknown per", authOf(https, oauth, `register = true`, `per = "user"`),
			`6:1: server.a.auth.per must be one of "principal", "gatekit", not "user"`},
		{"per without oauth", authOf(https, typ, client, issuer, `per = "gatekit"`),
			`7:1: server.a.auth.per needs type = "oauth"`},
		{"register without oauth", authOf(https, typ, client, issuer, `register = true`),
			`7:1: server.a.auth.register needs type = "oauth"`},
		{"connect_tool without oauth", authOf(https, typ, client, issuer, `connect_tool = false`),
			`7:1: server.a.auth.connect_tool needs type = "oauth" or "id_jag"`},
		{"no metadata, without an issuer", authOf(https, oauth, `register = true`,
			`without_metadata = true`), `6:1: server.a.auth.without_metadata needs the origin of ` +
			`the server as the issuer: set issuer = "https://x.example"`},
		{"no metadata at another issuer", authOf(https, oauth, `register = true`, issuer,
			`without_metadata = true`), `7:1: server.a.auth.without_metadata needs the origin`},
		{"no metadata without oauth", authOf(https, typ, client,
			`issuer = "https://x.example"`, `without_metadata = true`),
			`7:1: server.a.auth.without_metadata needs type = "oauth"`},
		{"a token of a server that does not exist", "[server.a]\ncommand = \"x\"\n" +
			"env = { X = \"${token:b}\" }", `3:9: server.a.env.X names the server "b", and`},
		{"a token of a server without logins", "[server.a]\ncommand = \"x\"\n" +
			"env = { X = \"a${token:a}b\" }", `3:9: server.a.env.X needs a server that users log in`},
		{"a token in arguments", "[server.a]\ncommand = \"x\"\nargs = [\"${token:a}\"]",
			`3:9: server.a.args[0]: ${token:a} is only for the env of a server`},
		{"a token in a header", "[server.a]\nurl = \"" + https + "\"\n" +
			"headers = { X = \"${token:a}\" }",
			`3:13: server.a.headers.X: ${token:a} is only for the env of a server`},
		{"a literal that looks like a token", "[server.a]\ncommand = \"x\"\n" +
			"env = { X = \"$${token:a}\" }", `3:9: server.a.env.X: "$${token:" cannot be written`},
		{"a short key of the tokens", "[server.a]\nurl = \"" + https +
			"\"\n[tokens]\nkey = \"short\"", `4:1: tokens.key has 5 bytes, and must be`},
		{"an empty token folder", "[server.a]\nurl = \"" + https + "\"\n[tokens]\nfile = \"\"",
			`4:1: tokens.file is empty`},
		{"an issuer whose variable is not set", authOf(https, typ, client,
			`issuer = "${env:GATEKIT_TEST_NOT_SET}"`),
			`6:1: server.a.auth.issuer: ${env:GATEKIT_TEST_NOT_SET} is not set`},
		{"a scope that max_scopes excludes", authOf(https, typ, client, issuer,
			`scopes = ["a", "b"]`, `max_scopes = ["a"]`),
			`7:16: server.a.auth.scopes[1] is "b", which is not one of`},
		{"a largest scope that is none",
			authOf(https, typ, client, issuer, `max_scopes = ["a", "b c"]`),
			`7:20: server.a.auth.max_scopes[1] is not a scope: "b c"`},
		{"a network that is an address",
			authOf(https, typ, client, issuer, `networks = ["10.0.0.1"]`),
			`7:13: server.a.auth.networks[0] must be a network such as "10.0.0.0/8"`},
		{"an address in a network",
			authOf(https, typ, client, issuer, `networks = ["10.0.0.1/8"]`),
			`7:13: server.a.auth.networks[0] must be a network such as "10.0.0.0/8"`},
	}
	for _, u := range []string{"http://login.example", "https://", "ftp://127.0.0.1", "//a",
		"https://a?q", "https://a#f", "https://u@a", "https://a b"} {
		tests = append(tests, test{"the issuer " + u,
			authOf(https, typ, client, `issuer = "`+u+`"`),
			`6:1: server.a.auth.issuer must be a URL such as "https://login.example"`})
	}
	for _, scope := range []string{"", " ", "a b", `a"`, `a\`, "é"} {
		tests = append(tests, test{"the scope " + scope,
			authOf(https, typ, client, issuer, `scopes = ['`+scope+`']`),
			`7:11: server.a.auth.scopes[0] is not a scope: `})
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.doc)
			got, want := mistakes(t, err), strings.Split(c.want, "\n")
			if !slices.EqualFunc(got, want, strings.HasPrefix) {
				t.Errorf("got the mistakes\n%s\nwant mistakes that begin with\n%s",
					strings.Join(got, "\n"), c.want)
			}
		})
	}
	for _, doc := range []string{authOf(https), authOf(https, typ, client, issuer),
		authOf(https, typ, client, issuer, `scopes = ["files:read", "~!"]`),
		authOf(https, typ, `client = { id = "i", key = "k" }`, issuer, `scopes = ["a"]`,
			`max_scopes = ["b", "a"]`),
		authOf("http://localhost:1/mcp", typ, client, `issuer = "http://127.0.0.1:2"`,
			`networks = ["10.0.0.0/8"]`),
		authOf(https, oauth, `register = true`),
		authOf(https, oauth, `client = { id = "https://gatekit.example/client.json" }`,
			`register = true`),
		"[listen]\nhttp = \"127.0.0.1:1\"\npublic_url = \"https://localhost:2\"\n" +
			authOf(https, oauth),
		authOf(https, oauth, `client = { id = "i" }`, `per = "gatekit"`),
		authOf(https, oauth, `register = true`, `issuer = "https://x.example"`,
			`without_metadata = true`),
		authOf(https, `type = "id_jag"`, client, issuer, `connect_tool = false`,
			`login = { issuer = "https://idp.example", id = "i", key = "k" }`),
		authOf(https, oauth, client, issuer) + "\n[tokens]\nfile = \"t\"\nkey = \"keyring\"",
		authOf(https, oauth, client, issuer) + "\n[tokens]\nkey = \"" +
			strings.Repeat("k", 32) + "\"",
	} {
		if _, err := load(t, doc); err != nil {
			t.Errorf("%s\ngot %v, want no error", doc, err)
		}
	}
}

func TestServersWithLogins(t *testing.T) {
	const https = "https://x.example/mcp"
	for doc, want := range map[string]bool{
		authOf(https, `type = "oauth"`, `register = true`): true,
		authOf(https, `type = "client_credentials"`, `client = { id = "i", secret = "s" }`,
			`issuer = "https://login.example"`): false,
		authOf(https, `type = "id_jag"`, `client = { id = "i", secret = "s" }`,
			`issuer = "https://login.example"`, `login = { issuer = "https://idp.example", id = `+
				`"i", secret = "s" }`): true,
		"[server.a]\nurl = \"" + https + "\"": false,
	} {
		c, err := load(t, doc)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.HasLogins(); got != want || c.Servers[0].HasLogins() != want {
			t.Errorf("%s\nusers log in: %v, want %v", doc, got, want)
		}
	}
}
