package config_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gatekit/core/config"
)

// load writes doc as gatekit.toml into a new folder, and loads it. Each pair in files is the name
// and the contents of a further file in the folder.
func load(t *testing.T, doc string, files ...string) (*config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		write(t, filepath.Join(dir, files[i]), files[i+1])
	}
	path := filepath.Join(dir, "gatekit.toml")
	write(t, path, doc)
	return config.Load(path)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mistakes returns the errors in err as "line:column: message", without the name of the file.
func mistakes(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	es, ok := err.(config.Errors)
	if !ok {
		t.Fatalf("got %T (%v), want config.Errors", err, err)
	}
	var out []string
	for _, e := range es {
		out = append(out, fmt.Sprintf("%d:%d: %s", e.Position.Line, e.Position.Col, e.Message))
	}
	return out
}

const server = "[server.a]\ncommand = \"a\"\n"

// sinkOf returns a document with a server, and with a sink of the kind. The name of the sink is s.
// The lines are further keys of the sink.
func sinkOf(kind string, lines ...string) string {
	return server + "[[audit.sink]]\nname = \"s\"\nkind = \"" + kind + "\"\n" +
		strings.Join(append(lines, ""), "\n")
}

// TestJSONOfClientsIsTranslated loads a configuration that contains the JSON configuration of an
// MCP client. The error contains the same servers as TOML tables, without the values of variables
// and headers. The tables can be loaded.
func TestJSONOfClientsIsTranslated(t *testing.T) {
	const files = `"files": {"command": "npx", "args": ["-y", "a\"b\u001b"], ` +
		`"env": {"A_KEY": "s3cret"}}`
	const filesTable = "[server.files]\ncommand = \"npx\"\n" +
		"args = [\"-y\", \"a\\\"b\\U0000001b\"]\nenv = { A_KEY = \"${env:A_KEY}\" }"
	const hint = "\n\nhint: ${env:NAME} is a variable in Gatekit's environment; you can also " +
		"write the value itself"
	const web = `"The Web": {"type": "http", "url": "https://x.example/mcp", ` +
		`"headers": {"X-Key": "s3cret"}}`
	const webTable = "[server.the-web]\nurl = \"https://x.example/mcp\"\nheaders = { X-Key = " +
		"\"${env:X_KEY}\" }"
	const intro = "this is the JSON of an MCP client, and Gatekit's configuration is TOML; write " +
		"instead:\n\n"
	t.Setenv("A_KEY", "1")
	t.Setenv("X_KEY", "1")
	for _, test := range []struct {
		name, doc string
		want      []string
	}{
		{"the whole file of a client", `{"mcpServers": {` + web + `, ` + files + `}}`,
			[]string{`1:1: ` + intro + webTable + "\n\n" + filesTable + hint}},
		{"the settings file of an editor",
			"\n {\"mcp\": {\"inputs\": [], \"servers\": {" + files + "}}}",
			[]string{`2:2: ` + intro + filesTable + hint}},
		{"a key with servers, between tables",
			server + "\"mcpServers\": {\n" + files + "},\n[names]\nprefix = \"x\"", []string{
				`3:1: ` + intro + filesTable + hint,
				`6:1: names.prefix must be one of "always", "never", not "x"`}},
		{"one server with its name", server + "  " + files, []string{
			`3:3: ` + intro + filesTable + hint}},
		{"one server without a name", `{"command": "x", "args": []}`, []string{
			`1:1: ` + intro + "[server.server]\ncommand = \"x\""}},
		{"other JSON", `{"a": 1}`, []string{`1:1: the file is JSON, and Gatekit's ` +
			`configuration is TOML: write each server as [server.NAME] with a command or a url`}},
		{"invalid JSON", `{"mcpServers": {`, []string{`1:1: the file is JSON, and Gatekit's ` +
			`configuration is TOML: write each server as [server.NAME] with a command or a url`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := load(t, test.doc)
			got := mistakes(t, err)
			if !slices.Equal(got, test.want) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"),
					strings.Join(test.want, "\n"))
			}
			_, tables, ok := strings.Cut(got[0], "\n\n")
			tables, _, _ = strings.Cut(tables, "\nhint:")
			if !ok {
				return
			}
			if _, err := load(t, tables); err != nil {
				t.Errorf("loading the tables of the error: %v, want no error", err)
			}
		})
	}
}

func TestMistakesAreReportedWithTheirPosition(t *testing.T) {
	t.Setenv("GATEKIT_TEST_BAD", "s3cret value")
	tests := []struct {
		name, doc string
		want      []string
	}{
		{"UTF-16", "\xff\xfea\x00", []string{`1:1: the file is UTF-16; save it as UTF-8`}},
		{"an unknown key is reported with the known key that it resembles",
			"[server.a]\ncomand = \"x\"", []string{
				`2:1: unknown key "comand" in [server.a], did you mean "command"?`}},
		{"an unknown key that resembles no known key is reported with all known keys",
			server + "[deny]\ncolour = 1", []string{
				`4:1: unknown key "colour" in [deny]; known: reasons, tool_calls`}},
		{"a key that was renamed is reported with its new name",
			server + "[limits]\nparked_of_one = 1", []string{
				`4:1: unknown key "parked_of_one" in [limits]: its name is now ` +
					`"parked_per_principal"`}},
		{"a key with a capital letter is unknown", server + "[deny]\nReasons = true", []string{
			`4:1: unknown key "Reasons" in [deny], did you mean "reasons"?`}},
		{"an unknown table is an unknown key", server + "[plugins]\nx = 1", []string{
			`3:1: unknown key "plugins", did you mean "plugin"?`}},
		{"a wrong type is reported with the right type", server + "args = \"x\"", []string{
			`3:1: server.a.args must be a list, not a string`}},
		{"a header without its end is reported at the end of its line",
			"[server.a\ncommand = \"x\"",
			[]string{
				`1:10: expected '.' or ']' to end table name, but got '\n' instead`}},
		{"a control character is reported", server + "args = [\"\x01\"]", []string{
			`3:10: TOML files cannot contain control characters: '0x01'`}},
		{"a control character at the beginning of a line is reported there", server + "\x01",
			[]string{`3:1: TOML files cannot contain control characters: '0x01'`}},
		{"a NUL byte at the beginning of the file is reported in its line", "#\n\x00", []string{
			`2:1: files cannot contain NULL bytes; probably using UTF-16; TOML files must be UTF-8`}},
		{"a wrong key of a plugin is reported with the plugin's name",
			server + "[[plugin]]\nname = \"guard\"\nuse = \"tools\"\ntimeot = 7\ntimeout = 7",
			[]string{
				`6:1: unknown key "timeot" in plugin "guard", did you mean "timeout"?`,
				`7:1: plugin "guard": timeout must be a duration such as "60s", not an integer`}},
		{"a wrong type in a list is reported at the element", server + "args = [\"x\",\n  7]",
			[]string{
				`4:3: server.a.args[1] must be a string, not an integer`}},
		{"a wrong type in an inline table is reported at its key",
			server + "env = { A = \"x\", B = 7 }",
			[]string{
				`3:18: server.a.env.B must be a string, not an integer`}},
		{"a server that is not a table is reported", "server.a = \"npx\"", []string{
			`1:8: server.a must be a table, [server.a], not a string`}},
		{"servers in a list are reported", "[[server]]\ncommand = \"x\"", []string{
			`1:1: server must be a table of tables, [server.NAME], not a list`}},
		{"a plugin that is not a list is reported", server + "[plugin]\nname = \"x\"", []string{
			`3:1: plugin must be a list of tables, [[plugin]], not a table`}},
		{"a duration without a unit is reported", server + "timeout = \"60\"", []string{
			`3:1: server.a.timeout must be a duration such as "60s" or "1m30s", not "60"`}},
		{"a duration as a number is reported", server + "timeout = 60", []string{
			`3:1: server.a.timeout must be a duration such as "60s", not an integer`}},
		{"a duration of zero is reported", server + "timeout = \"0s\"", []string{
			`3:1: server.a.timeout must be above zero, not "0s"`}},
		{"a max_timeout shorter than the timeout is reported",
			server + "timeout = \"60s\"\nmax_timeout = \"30s\"", []string{
				`4:1: server.a.max_timeout limits the whole call and must not be shorter than timeout`}},
		{"a limit of zero is reported", server + "[limits]\ndepth = 0", []string{
			`4:1: limits.depth must be above zero, not 0`}},
		{"a number of further sessions of zero is reported",
			server + "[limits]\nfurther_sessions = 0\ncapability_sets = -1", []string{
				`4:1: limits.further_sessions must be above zero, not 0`,
				`5:1: limits.capability_sets must be above zero, not -1`}},
		{"a limit with a fraction is reported", server + "[limits]\ndepth = 1.5", []string{
			`4:1: limits.depth must be a whole number, not a number with a fraction`}},
		{"a server's name with an underscore is reported", "[server.a__b]\ncommand = \"x\"",
			[]string{
				`1:1: "a__b" is not a valid server name: it must start with a-z and contain only a-z, 0-9 and "-", since it becomes part of names and URIs`}},
		{"a server with a command and a url is reported", server + "url = \"http://x/\"", []string{
			`3:1: [server.a] has both a command and a url: remove one of them`}},
		{"a server without command and url is reported", "[server.a]\nera = \"auto\"", []string{
			`1:1: [server.a] needs a command to run or a url to call`}},
		{"no server at all is reported", "[deny]\nreasons = true", []string{
			`1:1: no server configured: add a [server.NAME] with a command or a url`}},
		{"an empty command is reported", "[server.a]\ncommand = \"\"", []string{
			`2:1: server.a.command is empty`}},
		{"keys of a server with a command are refused for a server with a url",
			"[server.a]\nurl = \"http://x/\"\nargs = []\nrestart = false", []string{
				`3:1: server.a.args applies to a server with a command, and this one has a url`,
				`4:1: server.a.restart applies to a server with a command, and this one has a url`}},
		{"headers are refused for a server with a command", server + "headers = {}", []string{
			`3:1: server.a.headers applies to a server with a url, and this one has a command`}},
		{"an invalid url is reported", "[server.a]\nurl = \"example.com/mcp\"", []string{
			`2:1: server.a.url must be a URL such as "https://example.com/mcp", not "example.com/mcp"`}},
		{"a url with a password is refused without showing it",
			"[server.a]\nurl = \"https://u:hunter2@example.com/mcp\"", []string{
				`2:1: server.a.url contains credentials, which would be logged; put them in headers = { Authorization = "…" }`}},
		{"a header of the protocol is refused",
			"[server.a]\nurl = \"http://x/\"\nheaders = { Mcp-Session-Id = \"1\" }", []string{
				`3:13: server.a.headers.Mcp-Session-Id is set by the protocol and cannot be configured`}},
		{"a header with a line break is refused without showing it",
			"[server.a]\nurl = \"http://x/\"\nheaders = { X = \"a\\nb\" }", []string{
				`3:13: server.a.headers.X contains a line break or another control character`}},
		{"a sink without a name or a kind is reported", server + "[[audit.sink]]\n", []string{
			`3:1: audit.sink[0] has no name`,
			`3:1: audit.sink[0] has no kind: set it to "file", "stderr", "syslog", "otlp" or "webhook"`}},
		{"an unknown kind of sink is reported", sinkOf("syslogd"), []string{
			`5:1: audit.sink "s": kind must be one of "file", "stderr", "syslog", "otlp", "webhook", not "syslogd"`}},
		{"two sinks with the same name are reported",
			sinkOf("stderr") + strings.TrimPrefix(sinkOf("stderr"), server), []string{
				`7:1: there are two sinks named "s"`}},
		{"an invalid name of a sink is reported",
			server + "[[audit.sink]]\nname = \"../x\"\nkind = \"stderr\"", []string{
				`4:1: audit.sink "../x": name must start with a-z and contain only a-z, 0-9 and "-", not "../x"`}},
		{"keys that belong to another kind of sink are reported", sinkOf("stderr", `url = "x"`, `path = "x"`),
			[]string{
				`6:1: audit.sink "s": url does not apply to a sink of kind "stderr"`,
				`7:1: audit.sink "s": path does not apply to a sink of kind "stderr"`}},
		{"a format that the kind of sink does not support is reported",
			sinkOf("webhook", `url = "https://x/"`, `format = "csv"`), []string{
				`7:1: audit.sink "s": format must be one of "jsonl", "ocsf", not "csv"`}},
		{"an unknown value of send is reported",
			sinkOf("stderr", `send = ["records", "bodies"]`), []string{
				`6:20: audit.sink "s": send[1] must be "records" or "checkpoints", not "bodies"`}},
		{"a sink that sends nothing is reported", sinkOf("stderr", `send = []`),
			[]string{`6:1: audit.sink "s": send is empty: set it to "records", "checkpoints" or both`}},
		{"a file sink that sends checkpoints is reported", sinkOf("file", `path = "x"`,
			`send = ["checkpoints"]`), []string{
			`7:9: audit.sink "s": send: a sink of kind "file" takes only records; to write checkpoints to a file, set audit.anchor`}},
		{"a sink that writes to the log is reported", sinkOf("file", `path = "audit/../audit/gatekit.jsonl"`),
			[]string{
				`6:1: audit.sink "s": path = "audit/../audit/gatekit.jsonl" is already used for the audit log`}},
		{"a sink that writes to the log's tree is reported",
			sinkOf("file", `path = "audit/gatekit.jsonl.tree/checkpoint"`), []string{
				`6:1: audit.sink "s": path = "audit/gatekit.jsonl.tree/checkpoint" is already used for the audit log's tree`}},
		{"a sink that writes to the log's public key is reported",
			sinkOf("file", `path = "audit/gatekit.jsonl.pub"`), []string{
				`6:1: audit.sink "s": path = "audit/gatekit.jsonl.pub" is already used for the audit log's public key`}},
		{"a sink that writes to the log's key is reported",
			sinkOf("file", `path = "audit/gatekit.jsonl.key"`), []string{
				`6:1: audit.sink "s": path = "audit/gatekit.jsonl.key" is already used for the audit log's key`}},
		{"a sink that writes to the log's lock is reported",
			sinkOf("file", `path = "audit/gatekit.jsonl.lock"`), []string{
				`6:1: audit.sink "s": path = "audit/gatekit.jsonl.lock" is already used for the audit log's lock`}},
		{"a sink that writes to the progress of the sinks is reported",
			sinkOf("file", `path = "audit/gatekit.jsonl.sinks/s.json"`), []string{
				`6:1: audit.sink "s": path = "audit/gatekit.jsonl.sinks/s.json" is already used for the progress of the sinks`}},
		{"a sink that writes to a segment of the log is reported",
			sinkOf("file", `path = "audit/gatekit-00000000000000000001.jsonl"`), []string{
				`6:1: audit.sink "s": path = "audit/gatekit-00000000000000000001.jsonl" is already used for a segment of the audit log`}},
		{"an anchor at the path of the log is reported",
			server + "[audit]\nanchor = \"audit/gatekit.jsonl\"", []string{
				`4:1: audit.anchor = "audit/gatekit.jsonl" is already used for the audit log`}},
		{"an anchor at the path of the key is reported",
			server + "[audit]\nkey = \"k\"\nanchor = \"./k\"",
			[]string{
				`5:1: audit.anchor = "./k" is already used for audit.key`}},
		{"a key at the path of the log's public key is reported",
			server + "[audit]\nkey = \"audit/gatekit.jsonl.pub\"", []string{
				`4:1: audit.key = "audit/gatekit.jsonl.pub" is already used for the audit log's public key`}},
		{"a sink that writes to the anchor is reported",
			server + "[audit]\nanchor = \"a\"\n[[audit.sink]]\nname = \"s\"\nkind = " +
				"\"file\"\npath = \"a\"", []string{
				`8:1: audit.sink "s": path = "a" is already used for audit.anchor`}},
		{"a file sink without a path is reported", sinkOf("file"),
			[]string{`3:1: audit.sink "s" has no path`}},
		{"a sink without a url is reported", sinkOf("syslog"),
			[]string{`3:1: audit.sink "s" has no url, such as "tls://siem.example:6514"`}},
		{"an invalid url of a sink is reported", sinkOf("syslog", `url = "siem.example:514"`),
			[]string{
				`6:1: audit.sink "s": url must be a URL such as "tls://siem.example:6514" (tls, tcp, udp, unix), not "siem.example:514"`}},
		{"a sink's url without a host is reported", sinkOf("syslog", `url = "tls://:6514"`),
			[]string{
				`6:1: audit.sink "s": url must be a URL such as "tls://siem.example:6514" (tls, tcp, udp, unix), not "tls://:6514"`}},
		{"a Unix socket is allowed", sinkOf("syslog", `url = "unix:///dev/log"`), nil},
		{"a Unix socket on a host is reported", sinkOf("syslog", `url = "unix://dev/log"`),
			[]string{
				`6:1: audit.sink "s": url must be a URL such as "tls://siem.example:6514" (tls, tcp, udp, unix), not "unix://dev/log"`}},
		{"a Unix socket without a path is reported", sinkOf("syslog", `url = "unix:log"`),
			[]string{
				`6:1: audit.sink "s": url must be a URL such as "tls://siem.example:6514" (tls, tcp, udp, unix), not "unix:log"`}},
		{"a sink's url without a port is reported", sinkOf("syslog", `url = "tls://siem.example"`),
			[]string{
				`6:1: audit.sink "s": url has no port; the usual ports are 6514 (tls), 601 (tcp) and 514 (udp)`}},
		{"a sink's url with a password is refused without showing it",
			sinkOf("webhook", `url = "https://u:hunter2@x/"`), []string{
				`6:1: audit.sink "s": url contains credentials, which would be logged; put them in headers = { Authorization = "…" }`}},
		{"unencrypted records to another machine are refused",
			sinkOf("otlp", `url = "http://collector.example:4317"`), []string{
				`6:1: audit.sink "s": url sends to another machine by http, without encryption; use https, or set insecure = true if the network is trusted`}},
		{"unencrypted records to this machine are allowed",
			sinkOf("otlp", `url = "http://127.0.0.1:4317"`), nil},
		{"an unknown value of labels is reported", server + "[policy]\nlabels = \"client\"",
			[]string{
				`4:1: policy.labels must be one of "session", "principal", not "client"`}},
		{"labels of a principal are allowed over stdio",
			server + "[policy]\nlabels = \"principal\"",
			nil},
		{"labels of a principal are refused with listen.http", server +
			"[listen]\nhttp = \"127.0.0.1:7777\"\n[policy]\nlabels = \"principal\"", []string{
			`6:1: policy.labels = "principal" does not work with listen.http: HTTP clients are not authenticated, so all of them are one principal; use "session"`}},
		{"labels of a principal are allowed with authentication", server +
			"[listen]\nhttp = \"127.0.0.1:7777\"\n[listen.auth.token.a]\nsha256 = \"" + digest +
			"\"\n[policy]\nlabels = \"principal\"", nil},
		{"labels of a principal are refused with anonymous clients", server +
			"[listen]\nhttp = \"127.0.0.1:7777\"\n[listen.auth]\nanonymous = true\n" +
			"[listen.auth.token.a]\nsha256 = \"" + digest +
			"\"\n[policy]\nlabels = \"principal\"", []string{
			`10:1: policy.labels = "principal" does not work with listen.http: HTTP clients are not authenticated, so all of them are one principal; use "session"`}},
		{"unencrypted records are allowed with insecure = true",
			sinkOf("syslog", `url = "udp://siem.example:514"`,
				`insecure = true`), nil},
		{"a short key of a webhook is reported without showing it",
			sinkOf("webhook", `url = "https://x/"`, `signing_key = "hunter2"`), []string{
				`7:1: audit.sink "s": signing_key must be at least 24 random bytes`}},
		{"a certificate without its key is reported", sinkOf("syslog", `url = "tls://x:1"`,
			`cert = "gatekit.toml"`), []string{
			`3:1: audit.sink "s" has only one of cert and cert_key: set both or neither`}},
		{"a missing CA file is reported",
			sinkOf("syslog", `url = "tls://x:1"`, `ca = "nowhere.pem"`), []string{
				`7:1: audit.sink "s": ca: file "nowhere.pem" does not exist`}},
		{"a missing working folder is reported", server + "cwd = \"nowhere\"", []string{
			`3:1: server.a.cwd = "nowhere" is not a folder`}},
		{"an unknown era is reported", server + "era = \"new\"", []string{
			`3:1: server.a.era must be one of "auto", "legacy", "modern", not "new"`}},
		{"a method with a star in the middle is reported", server + "methods = [\"a*b\"]",
			[]string{
				`3:12: server.a.methods[0] must be a method or a prefix such as "acme/*", not "a*b"`}},
		{"names.prefix = never is reported for two servers",
			server + "[server.b]\ncommand = \"b\"\n[names]\nprefix = \"never\"", []string{
				`6:1: names.prefix = "never" needs a single server, and there are 2 servers, whose tools could have the same names`}},
		{"a plugin for a server that does not exist is reported",
			server + "[[plugin]]\nname = \"p\"\nuse = \"p\"\nservers = [\"b\"]", []string{
				`6:12: plugin "p": servers[0]: server "b" does not exist; known: a`}},
		{"two plugins with the same name are reported",
			server + "[[plugin]]\nname = \"p\"\nuse = \"p\"\n[[plugin]]\nname = \"p\"\nuse = \"p\"",
			[]string{
				`7:1: there are two plugins named "p"`}},
		{"a plugin without a program is reported",
			server + "[[plugin]]\nname = \"p\"\non_error = \"ignore\"", []string{
				`3:1: plugin "p" needs use (a built-in plugin) or command (your own program)`,
				`5:1: plugin "p": on_error must be one of "deny", "skip", not "ignore"`}},
		{"a plugin in an unknown process is reported",
			server + "[[plugin]]\nname = \"p\"\nuse = \"p\"\nprocess = \"alone\"", []string{
				`6:1: plugin "p": process must be one of "own", "shared", not "alone"`}},
		{"a program that shares a process is reported",
			server + "[[plugin]]\nname = \"p\"\ncommand = [\"p\"]\nprocess = \"shared\"", []string{
				`6:1: plugin "p": process = "shared" applies to built-in plugins, and this one is a program: remove the line`}},
		{"an invalid checksum is reported",
			server + "[[plugin]]\nname = \"p\"\ncommand = [\"./p\"]\nsha256 = \"abc\"", []string{
				`6:1: plugin "p": sha256 must be 64 hexadecimal digits`}},
		{"a missing policy file is reported", server + "[policy]\nfiles = [\"p.rego\"]",
			[]string{
				`4:10: policy.files[0]: file "p.rego" does not exist`}},
		{"settings of a rule that is not in policy.rules are reported",
			server + "[policy]\nrules = " +
				"[\"roots/traversal\"]\n[policy.config.\"roots/traversel\"]\nx = 1", []string{
				`5:1: policy.config: rule "roots/traversel" is not in policy.rules, did you mean "roots/traversal"?`}},
		{"an environment variable that is not set is reported",
			server + "env = { T = \"${env:GATEKIT_TEST_NOT_SET}\" }", []string{
				`3:9: server.a.env.T: ${env:GATEKIT_TEST_NOT_SET} is not set in the environment`}},
		{"a missing file in a substitution is reported",
			server + "env = { T = \"${file:nowhere}\" }",
			[]string{
				`3:9: server.a.env.T: ${file:nowhere} cannot be read: no such file or directory`}},
		{"an unknown substitution is reported", server + "args = [\"${HOME}\"]", []string{
			`3:9: server.a.args[0]: ${HOME} is not a substitution; write ${env:NAME} or ${file:PATH}, or $${ for a literal ${`}},
		{"a substitution without an end is reported", server + "args = [\"${env:A\"]", []string{
			`3:9: server.a.args[0]: "${" has no closing "}"; write $${ for a literal "${"`}},
		{"a value from the environment is quoted as it was written",
			server + "era = \"${env:GATEKIT_TEST_BAD}\"\ntimeout = \"${env:GATEKIT_TEST_BAD}\"",
			[]string{
				`3:1: server.a.era must be one of "auto", "legacy", "modern", not "${env:GATEKIT_TEST_BAD}"`,
				`4:1: server.a.timeout must be a duration such as "60s" or "1m30s", not "${env:GATEKIT_TEST_BAD}"`}},
		{"listening on all addresses is refused", server + "[listen]\nhttp = \":7777\"", []string{
			`4:1: listen.http = ":7777" can be reached from other machines, and clients are not authenticated; listen on 127.0.0.1, or add [listen.auth]`}},
		{"an address without a port is reported", server + "[listen]\nhttp = \"127.0.0.1\"",
			[]string{
				`4:1: listen.http must be an address and port such as "127.0.0.1:7777", not "127.0.0.1"`}},
		{"an admin address that other machines can reach is refused",
			server + "[admin]\nhttp = \"0.0.0.0:7778\"",
			[]string{
				`4:1: admin.http = "0.0.0.0:7778" can be reached from other machines, and clients are not authenticated; listen on 127.0.0.1, and put a proxy that authenticates in front of it`}},
		{"an admin address without a port is reported",
			server + "[admin]\nhttp = \"localhost\"", []string{
				`4:1: admin.http must be an address and port such as "127.0.0.1:7778", not "localhost"`}},
		{"telemetry settings without a collector are reported",
			server + "[telemetry]\ntraces = true", []string{
				`4:1: telemetry.traces needs telemetry.url, which is not set`}},
		{"a collector on another machine without TLS is refused",
			server + "[telemetry]\nurl = \"http://collector.example:4317\"", []string{
				`4:1: telemetry.url sends to another machine without encryption; use https, or set telemetry.insecure = true if the network is trusted`}},
		{"a sample above one is reported",
			server + "[telemetry]\nurl = \"http://127.0.0.1:4317\"\ntraces = true\nsample = 20",
			[]string{
				`6:1: telemetry.sample must be between 0 and 1`}},
		{"a gRPC collector with a path and a collector without data are reported",
			server + "[telemetry]\nurl = \"https://127.0.0.1:4317/otlp\"\nmetrics = false",
			[]string{
				`4:1: telemetry.url has a path, which gRPC does not use; set telemetry.protocol = "http" for OTLP over HTTP`,
				`4:1: nothing is sent to telemetry.url: telemetry.metrics and telemetry.traces are both false`}},
		{"an unknown format of the log is reported",
			server + "[log]\nformat = \"logfmt\"", []string{
				`4:1: log.format must be one of "text", "json", not "logfmt"`}},
		{"nothing to listen on is reported", server + "[listen]\nstdio = false", []string{
			`4:1: nothing to listen on: listen.stdio is false and listen.http is not set`}},
		{"sse without http is reported", server + "[listen]\nsse = true", []string{
			`4:1: listen.sse needs listen.http, which is not set`}},
		{"drain without http is reported", server + "[listen]\ndrain = \"30s\"", []string{
			`4:1: listen.drain needs listen.http, which is not set: it is for clients that a ` +
				`balancer sends here`}},
		{"a path without a leading slash is reported",
			server + "[listen]\npath = \"mcp\"", []string{
				`4:1: listen.path must be a plain path such as "/mcp", not "mcp"`}},
		{"an origin with a path is reported",
			server + "[listen]\nallowed_origins = [\"https://a.example/page\"]", []string{
				`4:20: listen.allowed_origins[0] must be an origin such as "https://app.example", not "https://a.example/page"`}},
		{"a host with a scheme is reported", server + "[listen]\nallowed_hosts = [\"http://a\"]",
			[]string{
				`4:18: listen.allowed_hosts[0] must be a host such as "gatekit.example" or "gatekit.example:7777", not "http://a"`}},
		{"a short state_key is refused without showing it",
			server + "[listen]\nstate_key = \"hunter2\"",
			[]string{
				`4:1: listen.state_key must be at least 32 random bytes`}},
		{"an empty path of the audit log is reported", server + "[audit]\nfile = \"\"", []string{
			`4:1: audit.file must name a file: every message is recorded`}},
		{"a url with a fragment is reported", "[server.a]\nurl = \"http://x/#y\"", []string{
			`2:1: server.a.url has a fragment, which is never sent`}},
		{"an invalid header name is reported",
			"[server.a]\nurl = \"http://x/\"\nheaders = { \"a b\" = \"1\" }", []string{
				`3:13: server.a.headers: "a b" is not a valid header name`}},
		{"an invalid name of an environment variable is reported",
			server + "env = { \"a=b\" = \"1\" }",
			[]string{
				`3:9: server.a.env.a=b is not a valid environment variable`}},
		{"a path that listen.sse uses is reported",
			server + "[listen]\nhttp = \"127.0.0.1:1\"\nsse = true\npath = \"/sse\"", []string{
				`6:1: listen.path = "/sse" is a path that listen.sse uses`}},
		{"a plugin without a name is reported", server + "[[plugin]]\nuse = \"p\"", []string{
			`3:1: plugin[0] has no name`}},
		{"an invalid plugin name is reported",
			server + "[[plugin]]\nname = \"P\"\nuse = \"p\"", []string{
				`4:1: plugin "P": name must start with a-z and contain only a-z, 0-9 and "-", not "P"`}},
		{"a plugin with use and command is reported",
			server + "[[plugin]]\nname = \"p\"\nuse = \"p\"\ncommand = [\"./p\"]", []string{
				`6:1: plugin "p" has both use (a built-in plugin) and command (your own program): remove one of them`}},
		{"a plugin with an empty command is reported",
			server + "[[plugin]]\nname = \"p\"\ncommand = []", []string{
				`5:1: plugin "p": command is empty`}},
		{"a checksum of a built-in plugin is reported",
			server + "[[plugin]]\nname = \"p\"\nuse = \"p\"\nsha256 = \"" + strings.Repeat("0",
				64) + "\"", []string{
				`6:1: plugin "p": sha256 applies to a plugin with a command, and this one is built in`}},
		{"a checksum without a program is not that of a built-in plugin",
			server + "[[plugin]]\nname = \"p\"\nsha256 = \"" + strings.Repeat("0", 64) + "\"",
			[]string{
				`3:1: plugin "p" needs use (a built-in plugin) or command (your own program)`}},
		{"a checksum of a plugin with use and command is not that of a built-in plugin",
			server + "[[plugin]]\nname = \"p\"\nuse = \"p\"\ncommand = [\"p\"]\nmtls = false\n" +
				"sha256 = \"" + strings.Repeat("0", 64) + "\"", []string{
				`6:1: plugin "p" has both use (a built-in plugin) and command (your own program): remove one of them`}},
		{"a checksum that is no string is reported once",
			server + "[[plugin]]\nname = \"p\"\ncommand = [\"p\"]\nsha256 = 7", []string{
				`6:1: plugin "p": sha256 must be a string, not an integer`}},
		{"a variable of a built-in plugin is reported once",
			server + "[[plugin]]\nname = \"p\"\nuse = \"p\"\nenv = 7", []string{
				`6:1: plugin "p": env must be a table, not an integer`}},
		{"a url of a webhook with a fragment is reported",
			sinkOf("webhook", `url = "https://x/a#b"`), []string{
				`6:1: audit.sink "s": url has a fragment, which is never sent`}},
		{"a url of a syslog sink with a path is reported",
			sinkOf("syslog", `url = "tls://x:1/a"`), []string{
				`6:1: audit.sink "s": url must contain only a scheme, a host and a port`}},
		{"a url of a syslog sink with a fragment is reported",
			sinkOf("syslog", `url = "tls://x:1#a"`), []string{
				`6:1: audit.sink "s": url must contain only a scheme, a host and a port`}},
		{"invalid keys of bundles are reported",
			server + "[policy.key.a]\nalgorithm = \"none\"\n[policy.key.b]\nkey = " +
				"\"b.pub\"\n[policy.key.c]\nkey = '''-----BEGIN PRIVATE KEY-----\n-----END " +
				"PRIVATE KEY-----'''", []string{
				`3:1: policy.key.a.key is missing or empty; to read the key from a file, write key = "${file:bundle.pub}"`,
				`4:1: policy.key.a.algorithm must be one of "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "HS256", "HS384", "HS512", not "none"`,
				`6:1: policy.key.b.key must be a public key or a certificate in PEM format; to read it from a file, write key = "${file:bundle.pub}"`,
				`8:1: policy.key.c.key is a private key; use the public key, or everybody who can read this file can sign bundles`}},
		{"invalid services, bundles and reports are reported",
			server + "[policy.service.s]\nurl = \"http://far.example\"\nca = " +
				"\"ca.pem\"\n[policy.service.t]\nheaders = {\"a b\" = " +
				"\"\"}\n[policy.bundle.One]\nservice = " +
				"\"u\"\n[policy.bundle.two]\n[policy.bundle.three]\nservice = \"s\"\nkey = " +
				"\"k\"\nmin_delay = \"1.5s\"\nmax_delay = " +
				"\"1s\"\n[policy.status]\n[policy.decision_logs]\nservice = \"x\"\nmin_delay = " +
				"\"30s\"\nmax_delay = \"20s\"", []string{
				`5:1: policy.service.s.ca must hold certificates in PEM format; to read them from a file, write ca = "${file:ca.pem}"`,
				`6:1: policy.service.t has no url`,
				`7:12: policy.service.t.headers: "a b" is not a valid header name`,
				`8:1: "One" is not a valid bundle name: it must start with a-z and contain only a-z, 0-9 and "-"`,
				`9:1: policy.bundle.One.service: service "u" does not exist; known: s, t`,
				`10:1: policy.bundle.two.service must name one of the [policy.service.NAME] tables`,
				`11:1: policy.bundle.three comes over http and is not signed, so its policies could be changed in transit; use https, or verify its signature with [policy.key.NAME]`,
				`13:1: policy.bundle.three.key: key "k" does not exist`,
				`14:1: policy.bundle.three.min_delay must be whole seconds, not "1.5s"`,
				`15:1: policy.bundle.three.max_delay must not be shorter than min_delay, which is 1.5s`,
				`16:1: policy.status.service must name one of the [policy.service.NAME] tables`,
				`18:1: policy.decision_logs.service: service "x" does not exist; known: s, t`,
				`20:1: policy.decision_logs.max_delay must not be shorter than min_delay, which is 30s`}},
		{"a policy that is not a table is reported", "policy = \"x\"\n" + server, []string{
			`1:1: policy must be a table, not a string`}},
		{"a date for a duration is reported", server + "timeout = 1979-05-27", []string{
			`3:1: server.a.timeout must be a duration such as "60s", not a date`}},
		{"a device in a substitution is refused",
			server + "env = { T = \"${file:/dev/zero}\" }", []string{
				`3:9: server.a.env.T: ${file:/dev/zero} cannot be read: it is not a regular file`}},
		{"a folder in a substitution is refused", server + "env = { T = \"${file:.}\" }", []string{
			`3:9: server.a.env.T: ${file:.} cannot be read: it is a folder`}},
		{"columns are counted in characters", server + "args = [\"žluťoučký\", 7]", []string{
			`3:22: server.a.args[1] must be a string, not an integer`}},

		{"a line with a syntax error does not hide the mistakes after it",
			server + "args = [\n[deny]\nreasons = 1\n[names]\nprefix = \"x\"", []string{
				`4:2: `, `5:1: deny.reasons must be true or false, not an integer`,
				`7:1: names.prefix must be one of "always", "never", not "x"`}},
		{"a missing quote does not hide the mistakes after it",
			"[server.a]\ncommand = \"a\nargs = 1\ncolour = 2", []string{
				`2:13: `, `3:1: server.a.args must be a list, not an integer`,
				`4:1: unknown key "colour" in [server.a]; known: args, auth, command, cwd, env, era, headers, keep, max_timeout, methods, pins, restart, sandbox, timeout, url`}},
		{"a key given twice is reported at the second position",
			server + "era = \"auto\"\nera = \"new\"\n[deny]\nreasons = 1", []string{
				`4:1: `, `6:1: deny.reasons must be true or false, not an integer`}},
		{"a table given twice does not hide the mistakes after it",
			server + "[server.a]\ncommand = \"b\"\n[deny]\nreasons = 1", []string{
				`3:2: `, `6:1: deny.reasons must be true or false, not an integer`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.doc)
			got := mistakes(t, err)
			// For an error of the TOML parser, the test compares only the position.
			same := slices.EqualFunc(got, tt.want, func(g, w string) bool {
				return g == w || strings.HasSuffix(w, ": ") && strings.HasPrefix(g, w)
			})
			if !same {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tt.want,
					"\n\t"))
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error shows a value from the environment: %v", err)
			}
		})
	}
}

func TestParserErrorsHaveTheStyleOfOtherErrors(t *testing.T) {
	_, err := load(t, server+server)
	if got, want := mistakes(t,
		err), []string{"3:2: key 'server.a' has already been defined"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorsOfChecksAreReportedWithErrorsOfLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gatekit.toml")
	write(t, path, "[[plugin]]\nname = \"p\"\nuse = \"p\"\n"+server+"[deny]\nreasons = 1\n")
	_, err := config.Load(path, func(c *config.Config) config.Errors {
		return config.Errors{{Position: c.Plugins[0].Position, Message: "no plugins"}}
	})
	if got, want := mistakes(t, err), []string{"1:1: no plugins",
		"7:1: deny.reasons must be true or false, not an integer"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSixMistakesAreReportedAtOnceInOrder(t *testing.T) {
	_, err := load(t, `[listen]
http = "0.0.0.0:7777"

[server.files]
comand = "npx"
timeout = 60

[server.My_Files]
command = "npx"
env = { TOKEN = "${env:GATEKIT_TEST_NOT_SET}" }

[names]
prefix = "sometimes"
`)
	var got []int
	for _, e := range err.(config.Errors) {
		got = append(got, e.Position.Line)
	}
	if want := []int{2, 5, 6, 8, 10, 13}; !slices.Equal(got, want) {
		t.Errorf("got mistakes in lines %v, want %v:\n%v", got, want, err)
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		if !strings.Contains(line, "gatekit.toml:") {
			t.Errorf("the error line %q does not name the file, want gatekit.toml: in it", line)
		}
	}
}

func TestAbsentKeysHaveTheDocumentedDefaults(t *testing.T) {
	c, err := load(t, server)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(c.File)
	a := c.Servers[0]
	for _, tt := range []struct {
		key       string
		got, want any
	}{
		{"listen.stdio", c.Listen.Stdio, true},
		{"listen.path", c.Listen.Path, "/mcp"},
		{"server.cwd", a.Cwd, dir},
		{"server.restart", a.Restart, true},
		{"server.era", a.Era, "auto"},
		{"server.timeout", a.Timeout, time.Minute},
		{"server.max_timeout", a.MaxTimeout, 10 * time.Minute},
		{"names", c.Names, config.Names{Prefix: "always", Resources: "scheme"}},
		{"audit", c.Audit, config.Audit{File: filepath.Join(dir, "audit/gatekit.jsonl"),
			Bodies: "digest", Durability: "write", SegmentBytes: 64 << 20}},
		{"deny", c.Deny, config.Deny{ToolCalls: "error"}},
		{"limits.message_bytes", c.Limits.MessageBytes, 16 << 20},
		{"policy", c.Policy, (*config.Policy)(nil)},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.key, tt.got, tt.want)
		}
	}
	if c, err := load(t, server+"[listen]\nhttp = \"localhost:0\"\n"); err != nil ||
		c.Listen.Stdio {
		t.Errorf("with http only: got stdio %v, error %v; want false and no error",
			c.Listen.Stdio, err)
	}
}

func TestServersKeepTheOrderOfTheFile(t *testing.T) {
	c, err := load(t, "[server.z]\ncommand = \"z\"\n[server.a]\ncommand = "+
		"\"a\"\n[server.m]\ncommand = \"m\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.Servers), "[z a m]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAuditPathsAreRelativeToTheFile(t *testing.T) {
	c, err := load(t, `[server.a]
command = "a"
[audit]
key = "keys/log"
anchor = "/mnt/anchors"
keep_files = 3
keep_for = "24h"
`)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(c.File)
	want := config.Audit{File: filepath.Join(dir, "audit/gatekit.jsonl"), Bodies: "digest",
		Durability: "write", SegmentBytes: 64 << 20,
		KeepFiles: 3, KeepFor: 24 * time.Hour, Key: filepath.Join(dir, "keys/log"),
		Anchor: "/mnt/anchors"}
	if !reflect.DeepEqual(c.Audit, want) {
		t.Errorf("got %+v, want %+v", c.Audit, want)
	}
}

func TestSubstitutionsAreMadeInEveryString(t *testing.T) {
	t.Setenv("GATEKIT_TEST_A", "one")
	c, err := load(t, `[server.a]
command = "./bin/${env:GATEKIT_TEST_A}"
args = ["${env:GATEKIT_TEST_A}-${file:sub/b}", "$${env:HOME} costs $5"]
env = { "K.1" = "${file:sub/b}" }
[[plugin]]
name = "p"
use = "p"
config = { list = [{ x = "${env:GATEKIT_TEST_A}" }], n = 3 }
`, "sub/b", "two\n")
	if err != nil {
		t.Fatal(err)
	}
	a, dir := c.Servers[0], filepath.Dir(c.File)
	if want := filepath.Join(dir, "bin/one"); a.Command != want {
		t.Errorf("command: got %q, want %q", a.Command, want)
	}
	if want := []string{"one-two", "${env:HOME} costs $5"}; !slices.Equal(a.Args, want) {
		t.Errorf("args: got %q, want %q", a.Args, want)
	}
	if got := string(a.Env["K.1"]); got != "two" {
		t.Errorf("env: got %q, want two", got)
	}
	want := map[string]any{"list": []any{map[string]any{"x": "one"}}, "n": int64(3)}
	if got := c.Plugins[0].Config; !reflect.DeepEqual(got, want) {
		t.Errorf("plugin config: got %v, want %v", got, want)
	}
}

func TestPrintedConfigShowsNoSecret(t *testing.T) {
	t.Setenv("GATEKIT_TEST_TOKEN", "hunter2hunter2hunter2hunter2hunter2")
	c, err := load(t, `[listen]
state_key = "${env:GATEKIT_TEST_TOKEN}"
[server.a]
command = "a"
args = ["--token=${env:GATEKIT_TEST_TOKEN}"]
env = { T = "${env:GATEKIT_TEST_TOKEN}" }
[server.b]
url = "https://example.com/?key=${env:GATEKIT_TEST_TOKEN}"
headers = { Authorization = "Bearer ${env:GATEKIT_TEST_TOKEN}" }
`)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	log.Info("x", "config", c, "value", *c, "server", c.Servers[0], "env", c.Servers[0].Env,
		"headers", c.Servers[1].Headers, "listen", c.Listen)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "config", c, "env", c.Servers[0].Env,
		"listen", c.Listen, "key", c.Listen.StateKey)
	for _, v := range []any{c, *c, c.Servers, c.Servers[0], &c.Servers[1], c.Listen,
		c.Servers[0].Env} {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("the output contains a secret, want none:\n%s", out.String())
	}
}

func TestMissingFileIsReportedAsMissing(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "gatekit.toml"))
	if !os.IsNotExist(unwrap(err)) {
		t.Errorf("got %v, want an error that the file does not exist", err)
	}
}

func unwrap(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// setting matches a line of the example that sets a key or begins a table.
var setting = regexp.MustCompile(`^("?[a-z_0-9/]+"? = |\[[^ ]+\]\n$)`)

// Users copy gatekit.toml.example, and look up keys in it. So it must load, and show every key.
func TestTheExampleDocumentsEveryKey(t *testing.T) {
	t.Setenv("FILES_TOKEN", "x")
	t.Setenv("GITHUB_TOKEN", "x")
	t.Setenv("OTLP_TOKEN", "x")
	t.Setenv("GATEKIT_ADMIN_TOKEN", "01234567890123456789012345678901")
	text, err := os.ReadFile("../../gatekit.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("BUNDLES_TOKEN", "x")
	key := strings.Repeat("k", 32)
	if _, err := load(t, string(text), "policies/x.rego", "", "state.key", key); err != nil {
		t.Errorf("the example as it is: got error %v, want none", err)
	}

	// The example must also load when all commented-out lines are active.
	cert, certKey := certificate(t)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if bare, ok := strings.CutPrefix(line, "# "); ok && setting.MatchString(bare) &&
			(!strings.HasPrefix(bare, "sha256") || len(bare) > 64) {
			line = bare
		}
		if strings.HasPrefix(line, "use =") { // a plugin cannot have both use and command
			continue
		}
		lines = append(lines, line)
	}
	if _, err := load(t, strings.Join(lines, ""), "policies/x.rego", "", "bundle.pub", pub,
		"collector.pem", cert, "ca.pem", cert, "state.key", key, "siem.pem", cert, "us.pem", cert,
		"us.key", certKey, "webhook.key", key, "gatekit.pem", cert, "gatekit.key", certKey,
		"clients.pem", cert, "introspect.secret", key, "connect.secret", key, "jira.secret",
		"s", "linear.secret", "s", "idp.secret", "s", "valkey-ca.pem", cert, "valkey.password",
		"s"); err != nil {
		t.Errorf("the example with all commented-out lines: got error %v, want none", err)
	}
	for _, k := range keys(reflect.TypeFor[config.Config]()) {
		if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
			line = strings.TrimPrefix(line, "# ")
			return strings.HasPrefix(line, k+" = ") || strings.HasPrefix(line, `"`+k+`" = `) ||
				strings.HasPrefix(line, "["+k) ||
				strings.HasPrefix(line, "[["+k) || strings.HasPrefix(line, "[policy."+k+".") ||
				strings.HasPrefix(line, "[policy."+k+"]") ||
				strings.HasPrefix(line, "[") && (strings.HasSuffix(line, "."+k+"]]") ||
					strings.HasSuffix(line, "."+k+"]") || strings.Contains(line, "."+k+"."))
		}) {
			t.Errorf("gatekit.toml.example does not show the key %q", k)
		}
	}
}

// pub resembles a public key.
const pub = "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"

// certificate returns a certificate and its private key in PEM format.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	b, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}))
}

func TestBadCertificatesAreReportedWithTheirPosition(t *testing.T) {
	_, key := certificate(t)
	telemetry := server + "[telemetry]\nurl = \"https://127.0.0.1:4317\"\nca = \"bad.pem\""
	for doc, want := range map[string]string{
		sinkOf("syslog", `url = "tls://x:1"`,
			`ca = "bad.pem"`): `:7:1: audit.sink "s": ca: `,
		sinkOf("syslog", `url = "tls://x:1"`, `cert = "bad.pem"`,
			`cert_key = "bad.pem"`): `:7:1: audit.sink "s": cert: `,
		telemetry: `:5:1: telemetry.ca: `,
	} {
		if _, err := load(t, doc, "bad.pem", key); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("got error %v, want an error that contains %q", err, want)
		}
	}
}

// TestTheExampleShowsTheDefaults compares the values in gatekit.toml.example with the defaults of
// the package.
func TestTheExampleShowsTheDefaults(t *testing.T) {
	t.Setenv("FILES_TOKEN", "x")
	t.Setenv("GITHUB_TOKEN", "x")
	t.Setenv("OTLP_TOKEN", "x")
	t.Setenv("GATEKIT_ADMIN_TOKEN", "01234567890123456789012345678901")
	text, err := os.ReadFile("../../gatekit.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	example, err := load(t, string(text), "policies/x.rego", "")
	if err != nil {
		t.Fatal(err)
	}
	bare, err := load(t, "[server.files]\ncommand = \"npx\"\n[listen]\nhttp = "+
		"\"127.0.0.1:7777\"\n[[plugin]]\nname=\"secrets\"\nuse=\"secrets\"\n[policy]\n")
	if err != nil {
		t.Fatal(err)
	}
	// The example contains these lists as empty lists. By default they are nil.
	example.Listen.AllowedHosts, example.Listen.AllowedOrigins = nil, nil
	strip := func(s config.Server) config.Server {
		s.Position, s.Args, s.Env, s.Methods, s.Cwd = config.Position{}, nil, nil, nil, ""
		return s
	}
	for _, tt := range []struct {
		table     string
		got, want any
	}{
		{"listen", example.Listen, bare.Listen},
		{"server", strip(example.Servers[0]), strip(bare.Servers[0])},
		{"names", example.Names, bare.Names},
		{"plugin.servers", example.Plugins[0].Servers, bare.Plugins[0].Servers},
		{"plugin.process", example.Plugins[0].Process, bare.Plugins[0].Process},
		{"plugin.on_error", example.Plugins[0].OnError, bare.Plugins[0].OnError},
		{"plugin.timeout", example.Plugins[0].Timeout, bare.Plugins[0].Timeout},
		{"policy.mode", example.Policy.Mode, bare.Policy.Mode},
		{"policy.labels", example.Policy.Labels, bare.Policy.Labels},
		{"policy.tests", example.Policy.Tests, bare.Policy.Tests},
		{"audit.bodies", example.Audit.Bodies, bare.Audit.Bodies},
		{"audit.durability", example.Audit.Durability, bare.Audit.Durability},
		{"audit.receipts", example.Audit.Receipts, bare.Audit.Receipts},
		{"audit.segment_bytes", example.Audit.SegmentBytes, bare.Audit.SegmentBytes},
		{"deny", example.Deny, bare.Deny},
		{"limits", example.Limits, bare.Limits},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: the example shows %+v, want the default %+v", tt.table, tt.got, tt.want)
		}
	}
}

// keys returns the names of all keys of a configuration type. It takes them from the struct tags.
func keys(t reflect.Type) []string {
	var out []string
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return keys(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if tag := f.Tag.Get("toml"); tag != "" && tag != "-" && tag[0] != ',' {
				out = append(append(out, tag), keys(f.Type)...)
			}
		}
	}
	return out
}

// Built-in plugins share a process, but for limits, whose counters must survive the others.
func TestDefaultProcessOfAPlugin(t *testing.T) {
	for plugin, want := range map[string]string{
		`use = "secrets"`:                        "shared",
		"use = \"secrets\"\nprocess = \"own\"":   "own",
		`use = "limits"`:                         "own",
		"use = \"limits\"\nprocess = \"shared\"": "shared",
		`command = ["p"]`:                        "own",
		"command = [\"p\"]\nprocess = \"own\"":   "own",
	} {
		c, err := load(t, "[server.a]\ncommand = \"a\"\n[[plugin]]\nname = \"p\"\n"+plugin)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Plugins[0].Process; got != want {
			t.Errorf("%s: the process is %q, want %q", plugin, got, want)
		}
	}
	for name, want := range map[string]string{"secrets": "shared", "limits": "own"} {
		if got := config.BuiltIn(name, nil).Process; got != want {
			t.Errorf("%s of gatekit wrap: the process is %q, want %q", name, got, want)
		}
	}
}
