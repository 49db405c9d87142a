package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/core/config"
)

func TestValuesAtTheirBounds(t *testing.T) {
	const (
		origin = "listen.allowed_origins[0] must be an origin such as \"https://app.example\", not "
		admin  = "admin.http must be an address and port such as \"127.0.0.1:7778\", not "
		sample = "telemetry.sample must be between 0 and 1"
	)
	origins := func(o string) string {
		return server + "[listen]\nallowed_origins = [\"" + o + "\"]"
	}
	adminAt := func(a string) string { return server + "[admin]\nhttp = \"" + a + "\"" }
	sampled := func(s string) string {
		return server + "[telemetry]\nurl = \"http://127.0.0.1:4317\"\ntraces = true\nsample = " + s
	}
	bundle := server + "[policy.service.s]\nurl = \"https://x/\"\n[policy.bundle.b]\n"
	const empty = `"${env:GATEKIT_TEST_EMPTY}"`
	t.Setenv("GATEKIT_TEST_EMPTY", "")
	for _, tt := range []struct{ name, doc, want string }{ // want is a mistake; "" is none
		{"an origin", origins("https://a.example"), ""},
		{"an origin that is no URL", origins("https://a b"), "4:20: " + origin + `"https://a b"`},
		{"an origin without a scheme", origins("//a.example"), "4:20: " + origin + `"//a.example"`},
		{"an origin without a host", origins("https://"), "4:20: " + origin + `"https://"`},
		{"an origin with a query", origins("https://a.example?b"),
			"4:20: " + origin + `"https://a.example?b"`},
		{"an origin with a fragment", origins("https://a.example#b"),
			"4:20: " + origin + `"https://a.example#b"`},
		{"an empty host", server + "[listen]\nallowed_hosts = [\"\"]", "4:18: listen." +
			`allowed_hosts[0] must be a host such as "gatekit.example" or ` +
			`"gatekit.example:7777", not ""`},
		{"a host", server + "[listen]\nallowed_hosts = [\"a.example\"]", ""},
		{"names.prefix = never with one server", server + "[names]\nprefix = \"never\"", ""},
		{"the highest port", adminAt("127.0.0.1:65535"), ""},
		{"a port that is too high", adminAt("127.0.0.1:65536"),
			`4:1: ` + admin + `"127.0.0.1:65536"`},
		{"the port 0", adminAt("127.0.0.1:0"), ""},
		{"a negative port", adminAt("127.0.0.1:-1"), `4:1: ` + admin + `"127.0.0.1:-1"`},
		{"the lowest sample", sampled("0.0"), ""},
		{"the highest sample", sampled("1.0"), ""},
		{"a sample below 0", sampled("-0.1"), "6:1: " + sample},
		{"a sample that is no number", sampled("nan"), "6:1: " + sample},
		{"a key of 24 bytes", sinkOf("webhook", `url = "https://x/"`,
			`signing_key = "123456789012345678901234"`), ""},
		{"a key of 23 bytes", sinkOf("webhook", `url = "https://x/"`,
			`signing_key = "12345678901234567890123"`),
			`7:1: audit.sink "s": signing_key must be at least 24 random bytes`},
		{"a max_timeout as long as the timeout",
			server + "timeout = \"60s\"\nmax_timeout = \"60s\"", ""},
		{"a max_delay as long as the min_delay",
			bundle + "min_delay = \"60s\"\nmax_delay = \"60s\"", ""},
		{"a max_delay shorter than the min_delay",
			bundle + "min_delay = \"61s\"\nmax_delay = \"60s\"",
			"7:1: policy.bundle.b.max_delay must not be shorter than min_delay, which is 1m1s"},
		{"an empty duration", server + "timeout = \"\"",
			`3:1: server.a.timeout must be a duration such as "60s" or "1m30s", not ""`},
		{"a duration whose variable is not set",
			server + "timeout = \"${env:GATEKIT_TEST_NOT_SET}\"",
			"3:1: server.a.timeout: ${env:GATEKIT_TEST_NOT_SET} is not set in the environment"},
		{"a duration whose variable is empty", server + "timeout = " + empty,
			"3:1: server.a.timeout must be a duration such as \"60s\" or \"1m30s\", not " + empty},
		{"a path whose variable is empty", server + "cwd = " + empty,
			"3:1: server.a.cwd is empty, because " + empty +
				" is empty: give it a value, or remove the key"},
		{"a format whose variable is empty", sinkOf("stderr", "format = "+empty),
			`6:1: audit.sink "s": format is empty, because ` + empty +
				" is empty: give it a value, or remove the key"},
		{"a secret whose variable is empty", server + "[listen]\nstate_key = " + empty,
			"4:1: listen.state_key is empty, because " + empty +
				" is empty: give it a value, or remove the key"},
		{"an argument, a variable and a setting whose variable is empty", server +
			"args = [" + empty + "]\nenv = { A = " + empty +
			" }\n[[plugin]]\nname = \"p\"\nuse = \"p\"\nconfig = { a = " + empty + " }", ""},
		{"an empty path that was not substituted", server + "[audit]\nanchor = \"\"", ""},
		{"an empty path of policies", server + "[policy]\nfiles = [\"\"]",
			"4:10: policy.files[0] is empty"},
		{"an empty path of policies after substitution",
			server + "[policy]\ndata = [" + empty + "]",
			"4:9: policy.data[0] is empty"},
		{"an empty name of a built-in plugin", server + "[[plugin]]\nname = \"p\"\nuse = \"\"",
			`5:1: plugin "p": use is empty`},
		{"an empty program of a plugin",
			server + "[[plugin]]\nname = \"p\"\ncommand = [" + empty + "]",
			`5:1: plugin "p": command is empty`},
		{"a command of a plugin that is no list",
			server + "[[plugin]]\nname = \"p\"\ncommand = \"p\"",
			`5:1: plugin "p": command must be a list, not a string`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.doc)
			if got := strings.Join(mistakes(t, err), "\n"); got != tt.want {
				t.Errorf("got the mistakes %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFilesHaveALimit(t *testing.T) {
	const doc = server + "args = [\"${file:big}\"]"
	big := strings.Repeat("x", 1<<20)
	if c, err := load(t, doc, "big", big); err != nil || c.Servers[0].Args[0] != big {
		t.Errorf("a file of 1 MiB: got the error %v, want its contents", err)
	}
	_, err := load(t, doc, "big", big+"x")
	if got, want := mistakes(t, err), []string{"3:9: server.a.args[0]: ${file:big} cannot be " +
		"read: it is larger than 1048576 bytes"}; !slices.Equal(got, want) {
		t.Errorf("a file of 1 MiB and a byte: got %q, want %q", got, want)
	}
}

// The lines of syntax errors are left out, and the rest of the file is checked.
func TestSyntaxErrorsHideNoOtherMistakes(t *testing.T) {
	const prefix = `: names.prefix must be one of "always", "never", not "x"`
	for _, tt := range []struct {
		name, doc string
		want      []string // the lines of the mistakes
	}{
		{"two lines with syntax errors", server + "a b\nargs = []\nc d\n[names]\nprefix = \"x\"",
			[]string{"3", "5", "7"}},
		{"a list that is not closed, some lines before a header",
			server + "args = [\n  \"x\",\n  \"y\",\n[names]\nprefix = \"x\"", []string{"6", "7"}},
		{"a list in the first line that is not closed",
			"x = [\n  1,\n" + server + "[names]\nprefix = \"x\"", []string{"3", "6"}},
		{"a string that is not closed is reported once", server + "args = [\"\"\"x", []string{"3"}},
		{"a string that is not closed, in the first line of a list",
			server + "args = [\"x,\n  \"y\",\n]\n[names]\nprefix = \"x\"", []string{"3", "7"}},
		{"a string that is not closed, in the first line of an inline table",
			server + "env = { A = \"x,\n  B = \"y\",\n}\n[names]\nprefix = \"x\"",
			[]string{"3", "7"}},
		{"a string that is not closed, in a list that is not closed",
			server + "args = [\"x,\nera = \"x\"\n[names]\nprefix = \"x\"",
			[]string{"3", "4", "6"}},
		{"an inline table that is not closed is reported once", server + "env = {\n",
			[]string{"4"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.doc)
			var lines []string
			got := mistakes(t, err)
			for _, m := range got {
				line, _, _ := strings.Cut(m, ":")
				lines = append(lines, line)
			}
			if !slices.Equal(lines, tt.want) {
				t.Errorf("got mistakes in the lines %v, want %v:\n%s", lines, tt.want,
					strings.Join(got, "\n"))
			}
			if last := got[len(got)-1]; strings.Contains(tt.doc, "prefix") &&
				!strings.HasSuffix(last, prefix) {
				t.Errorf("the last mistake is %q, want that of names.prefix", last)
			}
		})
	}
}

// A line with a syntax error may set a key. So the key is not reported as absent, and no other key
// is blamed for the default of the key.
func TestLineWithSyntaxErrorIsTheOnlyMistake(t *testing.T) {
	lines := func(all ...string) string { return server + strings.Join(all, "\n") + "\n" }
	sink := func(all ...string) string {
		return lines("[[audit.sink]]", strings.Join(all, "\n"))
	}
	service := func(all ...string) string {
		return lines("[policy.service.s]", `url = "http://far.example/"`, strings.Join(all, "\n"))
	}
	key := "-----BEGIN PUBLIC KEY-----\\n-----END PUBLIC KEY-----\\n"
	for name, doc := range map[string]string{
		"the name of a sink": sink(`name = "s`, `kind = "stderr"`),
		"the kind of a sink": sink(`name = "s"`, `kind = "stderr`),
		"the path of a sink": sink(`name = "s"`, `kind = "file"`, `path = "x`),
		"the url of a sink":  sink(`name = "s"`, `kind = "webhook"`, `url = "https://x/`),
		"the insecure of a sink": sink(`name = "s"`, `kind = "webhook"`, `url = "http://x/"`,
			"insecure = yes"),
		"the cert_key of a sink": sink(`name = "s"`, `kind = "webhook"`, `url = "https://x/"`,
			`cert = "gatekit.toml"`, `cert_key = "x`),
		"listen.http":          lines("[listen]", `http = "127.0.0.1:7777`, "stdio = false"),
		"listen.http with sse": lines("[listen]", `http = "127.0.0.1:7777`, "sse = true"),
		"listen.public_url": lines("[listen]", `http = "127.0.0.1:1"`, `public_url = "https://x`,
			"[[listen.auth.issuer]]", `issuer = "https://i"`),
		"listen.auth.token": lines("[listen]", `http = "0.0.0.0:1"`, "[listen.auth.token.a]",
			`sha256 = "x`),
		"telemetry.url": lines("[telemetry]", `url = "https://x:4317`, "traces = true"),
		"telemetry.traces": lines("[telemetry]", `url = "https://x:4317"`, "metrics = false",
			"traces = yes"),
		"telemetry.protocol": lines("[telemetry]", `url = "https://x:4317/otlp"`,
			`protocol = "http`),
		"telemetry.insecure":     lines("[telemetry]", `url = "http://x:4317"`, "insecure = yes"),
		"the key of a key":       lines("[policy.key.k]", `key = "x`),
		"the algorithm of a key": lines("[policy.key.k]", `key = "x"`, `algorithm = "HS256`),
		"the url of a service":   lines("[policy.service.s]", `url = "https://x/`),
		"the key of a bundle":    service("[policy.bundle.b]", "[policy.key.k", `key = "`+key+`"`),
		"the shortest delay": service("[policy.bundle.b]", `min_delay = "10s`,
			`max_delay = "30s"`, "[policy.key.k]", `key = "`+key+`"`),
		"the timeout of a server": lines(`timeout = "10s`, `max_timeout = "30s"`),
		"the name of a plugin":    lines("[[plugin]]", `name = "p`, `use = "p"`),
		"the rules":               lines("[policy]", `rules = ["r]`, "[policy.config.r]", "x = 1"),

		// The same holds for a value of a wrong type.
		"a delay that is no text": service("[policy.bundle.b]", "min_delay = 10",
			`max_delay = "30s"`, "[policy.key.k]", `key = "`+key+`"`),
		"a timeout that is no text": lines("timeout = 10", `max_timeout = "30s"`),
		"an audience that is no list": lines("[listen]", `http = "127.0.0.1:1"`,
			`public_url = "https://x"`, "[[listen.auth.issuer]]", `issuer = "https://i"`,
			`audience = "a"`),
		"rules that are no list": lines("[policy]", `rules = "r"`, "[policy.config.r]", "x = 1"),
	} {
		_, err := load(t, doc)
		if got := mistakes(t, err); len(got) != 1 {
			t.Errorf("%s: got the mistakes\n\t%s\nwant one:\n%s", name,
				strings.Join(got, "\n\t"), doc)
		}
	}
}

func TestDefaultsOfBundles(t *testing.T) {
	c, err := load(t, server+`[policy.service.s]
url = "https://x/"
[policy.bundle.a]
persist = "kept"
[policy.bundle.b]
service = "s"
resource = "b.tar.gz"
min_delay = "300s"
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Policy.Bundles[0], c.Policy.Bundles[1]
	if a.Service != "s" || a.Resource != "bundles/a" ||
		a.Persist != filepath.Join(filepath.Dir(c.File), "kept") {
		t.Errorf("got the bundle %+v, want the only service, the resource bundles/a and the "+
			"absolute path of kept", a)
	}
	if b.Service != "s" || b.Resource != "b.tar.gz" || b.Persist != "" {
		t.Errorf("got the bundle %+v, want the given resource, and no path to persist", b)
	}
	if b.MaxDelay < b.MinDelay {
		t.Errorf("max_delay is %v, want at least min_delay, %v", b.MaxDelay, b.MinDelay)
	}
}

func TestPathsInThePluginCommandAreAbsolute(t *testing.T) {
	c, err := load(t, server+`[[plugin]]
name = "p"
command = ["bin/p", "a/b", "./c", "../d", "e"]
[[plugin]]
name = "q"
command = ["node", "f/g"]
`)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(c.File)
	want := []string{filepath.Join(dir, "bin/p"), "a/b", filepath.Join(dir, "c"),
		filepath.Join(filepath.Dir(dir), "d"), "e"}
	if got := c.Plugins[0].Command; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := c.Plugins[1].Command, []string{"node", "f/g"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNamesOfServersFromClientJSON(t *testing.T) {
	for _, tt := range []struct{ name, doc, want, without string }{
		{"equal names get numbers", `{"mcpServers": {"a b": {"command": "x"}, ` +
			`"a-b": {"command": "y"}, "a_b": {"command": "z"}}}`,
			"[server.a-b]\ncommand = \"x\"\n\n[server.a-b-2]\ncommand = \"y\"\n\n[server.a-b-3]\n" +
				"command = \"z\"", ""},
		{"a url without headers", `{"web": {"url": "https://x/"}}`,
			"[server.web]\nurl = \"https://x/\"", "headers"},
		{"servers below three keys", `{"a": {"b": {"c": {"command": "x"}}}}`,
			"[server.c]\ncommand = \"x\"", ""},
		{"servers below four keys are not found", `{"a": {"b": {"c": {"d": {"command": "x"}}}}}`,
			"the file is JSON, and Gatekit's configuration is TOML", "[server.d]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.doc)
			got := strings.Join(mistakes(t, err), "\n")
			if !strings.Contains(got, tt.want) ||
				tt.without != "" && strings.Contains(got, tt.without) {
				t.Errorf("got\n%s\nwant it with %q and without %q", got, tt.want, tt.without)
			}
		})
	}
}

func TestSubstitutedValuesAreMasked(t *testing.T) {
	t.Setenv("GATEKIT_TEST_LONG", "s3cret/with more")
	t.Setenv("GATEKIT_TEST_PART", "s3cret")
	t.Setenv("GATEKIT_TEST_SHORT", "debug")
	t.Setenv("GATEKIT_TEST_ESCAPED", "to%2Fken")
	t.Setenv("GATEKIT_TEST_PATH", "folder")
	c, err := load(t, `[server.a]
command = "./${env:GATEKIT_TEST_PATH}/x"
args = ["${env:GATEKIT_TEST_PART}", "${env:GATEKIT_TEST_LONG}", "${env:GATEKIT_TEST_SHORT}",
  "${env:GATEKIT_TEST_ESCAPED}", "${env:GATEKIT_TEST_PART}"]
[audit]
file = "${env:GATEKIT_TEST_PATH}/log"
`)
	if err != nil {
		t.Fatal(err)
	}
	mask := config.NewMask(c.Substituted())
	for text, want := range map[string]string{
		"a s3cret/with more b":   "a [redacted] b",
		"s3cret":                 "[redacted]",
		"?k=s3cret%2Fwith+more":  "?k=[redacted]",
		"/s3cret%2Fwith%20more/": "/[redacted]/",
		"to/ken and to%2Fken":    "[redacted] and [redacted]",
		"debug in the folder":    "debug in the folder",
	} {
		if got := mask.Replace(text); got != want {
			t.Errorf("%q is masked as %q, want %q", text, got, want)
		}
	}
	if got := len(c.Substituted()); got != len(slices.Compact(slices.Sorted(slices.Values(
		c.Substituted())))) {
		t.Errorf("%d values, want each only once: %q", got, c.Substituted())
	}
	if got := new(config.Config).Substituted(); got != nil {
		t.Errorf("a configuration that was not loaded: got %q, want no values", got)
	}
}

func TestMaskLeavesNoPartOfAValue(t *testing.T) {
	mask := config.NewMask([]string{"abcdef", "defghi", "ghijkl", "abcdefgh", "xyxyxy"})
	for text, want := range map[string]string{
		"-abcdefghi-":         "-[redacted]-",
		"-abcdefghijkl-":      "-[redacted]-",
		"abcdefabcdef defghi": "[redacted][redacted] [redacted]",
		"abcdefgh ghijkl":     "[redacted] [redacted]",
		"-xyxyxyxy-":          "-[redacted]-",
		"abcde efghi":         "abcde efghi",
		"":                    "",
	} {
		if got := mask.Replace(text); got != want {
			t.Errorf("%q is masked as %q, want %q", text, got, want)
		}
	}
}

// Names that the user chooses, such as those of variables, do not make a value public.
func TestOnlyPublicKeysAreNotMasked(t *testing.T) {
	cert, _ := certificate(t)
	doc := func(lines ...string) string { return strings.Join(lines, "\n") }
	const v = `"${env:GATEKIT_TEST_VALUE}"`
	for _, tt := range []struct {
		name, doc string
		masked    bool
	}{
		{"the variable file of a server", doc(server, `env = { file = `+v+` }`), true},
		{"a variable with dots in its name", doc(server, `env = { "x.command" = `+v+` }`), true},
		{"the header http of a server",
			doc("[server.a]", `url = "http://x/"`, `headers = { http = `+v+` }`), true},
		{"an argument of a server", doc(server, `args = ["x", `+v+`]`), true},
		{"the command of a server", doc("[server.a]", "command = "+v), false},
		{"the cwd of a server", doc(server, `cwd = "./${env:GATEKIT_TEST_VALUE}"`), false},
		{"the setting data of a plugin", doc(server, "[[plugin]]", `name = "p"`, `use = "p"`,
			`config = { data = `+v+` }`), true},
		{"the setting command[0] of a plugin", doc(server, "[[plugin]]", `name = "p"`,
			`use = "p"`, `config = { command = [`+v+`] }`), true},
		{"the variable ca of a plugin", doc(server, "[[plugin]]", `name = "p"`,
			`command = ["p"]`, `env = { ca = `+v+` }`), true},
		{"the program of a plugin", doc(server, "[[plugin]]", `name = "p"`,
			`command = [`+v+`]`), false},
		{"an argument of a plugin", doc(server, "[[plugin]]", `name = "p"`,
			`command = ["p", `+v+`]`), true},
		{"the setting files of a rule", doc(server, "[policy]", `rules = ["r"]`,
			"[policy.config.r]", "files = ["+v+"]"), true},
		{"the files and data of the policy", doc(server, "[policy]",
			`files = ["${env:GATEKIT_TEST_VALUE}"]`, `data = ["${env:GATEKIT_TEST_VALUE}"]`), false},
		{"the header ca of a sink", sinkOf("webhook", `url = "https://x/"`,
			`headers = { ca = `+v+` }`), true},
		{"the ca of a sink", sinkOf("webhook", `url = "https://x/"`,
			`ca = "${env:GATEKIT_TEST_VALUE}/ca.pem"`), false},
		{"the ca of a service", doc(server, "[policy.service.s]", `url = "https://x/"`,
			`ca = "${file:folder/ca.pem}"`), false},
		{"the files of the audit log", doc(server, "[audit]", `file = "${env:GATEKIT_TEST_VALUE}"`,
			`anchor = "${env:GATEKIT_TEST_VALUE}.anchor"`), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GATEKIT_TEST_VALUE", "folder")
			c, err := load(t, tt.doc, "folder/ca.pem", cert)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Substituted(); (len(got) > 0) != tt.masked {
				t.Errorf("got the values to mask %q, want that some are masked: %v", got, tt.masked)
			}
		})
	}
}

// A check knows only the values after substitution.
func TestSubstitutedValuesAreMaskedInErrorsOfChecks(t *testing.T) {
	t.Setenv("GATEKIT_TEST_VALUE", "s3cret")
	path := filepath.Join(t.TempDir(), "gatekit.toml")
	write(t, path, server+"[[plugin]]\nname = \"p\"\nuse = \"${env:GATEKIT_TEST_VALUE}\"\n")
	_, err := config.Load(path, func(c *config.Config) config.Errors {
		return config.Errors{{Position: c.Plugins[0].Position, Message: "no " + c.Plugins[0].Use}}
	})
	if got, want := mistakes(t, err), []string{"3:1: no [redacted]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
