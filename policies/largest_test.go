package policies_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
)

// argumentOf returns a call whose argument "text" is a text.
func argumentOf(text string) *mcp.Message { return called("x", `{"text":`+quoted(text)+`}`) }

// TestTextsOfTheLargestSize calls the functions of policies with texts of the largest size that
// they examine, and with texts that are a byte longer.
func TestTextsOfTheLargestSize(t *testing.T) {
	const path, text = 8 << 10, 64 << 10
	outside := func(size int) string { return "/etc/" + strings.Repeat("x", size-len("/etc/")) }
	hidden := func(dots string) func(int) string {
		return func(size int) string {
			return strings.Repeat("a", size-len(dots)-2) + "/" + dots + "/"
		}
	}
	const bounds = `{"roots": ["/data"], "base": "", "home": "", "relative": false, "links": false}`
	for name, c := range map[string]struct {
		rego          string // the denial's reason
		text          func(size int) string
		size          int
		largest, more string // the verdicts
	}{
		"a path outside the folders": {`gatekit.path.fault(input.params.arguments.text, ` + bounds + `)`,
			outside, path,
			"denied: t: the path leaves the allowed folders", "denied: t: the path is too long"},
		"a local path": {`"local" if gatekit.path.local(input.params.arguments.text, ` + bounds +
			`)`, outside, path, "denied: t: local", "allowed"},
		"a possible path": {`"possible" if gatekit.path.possible(input.params.arguments.text)`,
			outside, path, "denied: t: possible", "allowed"},
		"an encoded traversal": {"gatekit.path.disguise(input.params.arguments.text)",
			hidden("%2e%2e"), text, "denied: t: the path hides `../` in an encoded form",
			"denied: t: the path is too long"},
		"dots that only normalization finds": {"gatekit.path.disguise(input.params.arguments.text)",
			hidden("︰"), text, "denied: t: the path hides `../` in an encoded form",
			"denied: t: "},
		"a URL that hides nothing": {
			`"disguised" if gatekit.path.disguised(input.params.arguments.text)`,
			func(size int) string {
				return "https://h/?" + strings.Repeat("a", size-len("https://h/?/..%2f")) + "/..%2f"
			}, path, "allowed", "denied: t: disguised"},
		"a text without dots": {
			`"disguised" if gatekit.path.disguised(input.params.arguments.text)`,
			func(size int) string { return strings.Repeat("a;", size/2) }, path, "allowed",
			"allowed"},
		"a text beyond ASCII": {
			`"disguised" if gatekit.path.disguised(input.params.arguments.text)`,
			func(int) string { return "．．／" }, path, "denied: t: disguised",
			"denied: t: disguised"},
		"a URI": {`"read" if gatekit.uri.readings(input.params.arguments.text)`,
			func(size int) string { return "x://" + strings.Repeat("x", size-4) }, path,
			"denied: t: read", "error: "},
	} {
		s := loaded(t, "deny contains "+c.rego)
		for size, want := range map[int]string{c.size: c.largest, c.size + 1: c.more} {
			got := verdictOf(t, s, argumentOf(c.text(size)))
			if want == "allowed" && strings.HasPrefix(got, "{") {
				continue
			}
			if want != got && (want != "error: " || !strings.HasPrefix(got, want)) {
				t.Errorf("%s of %d bytes: %.200s, want %s", name, size, got, want)
			}
		}
	}
}

// TestTextsWithTheLargestNumberOfDecodings checks texts with 64 and with 65 decodings.
func TestTextsWithTheLargestNumberOfDecodings(t *testing.T) {
	s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{"/data"},
		"relative": true})
	for n, want := range map[int]bool{64: false, 65: true} {
		text := "%" + strings.Repeat("25", n-1)
		if got := refused(t, s, called("x", `{"path":`+quoted(text)+`}`)); got != want {
			t.Errorf("a text with %d decodings is denied: %v, want %v", n, got, want)
		}
	}
}

// TestLongestChainOfLinks checks paths over links whose targets do not exist, within an allowed
// folder. The system follows 40 links.
func TestLongestChainOfLinks(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for i := range 41 {
		must(t, os.Symlink(fmt.Sprint("link", i), filepath.Join(root, fmt.Sprint("link", i+1))))
	}
	s := fromLibrary(t, "roots/traversal", map[string]any{"roots": []any{root}})
	for n, want := range map[int]bool{40: false, 41: true} {
		path := filepath.Join(root, fmt.Sprint("link", n))
		if got := refused(t, s, called("x", `{"path":`+quoted(path)+`}`)); got != want {
			t.Errorf("a chain of %d links is denied: %v, want %v", n, got, want)
		}
	}
}

// TestLargestSchemas lists tools with schemas at the bounds of a check, and beyond them. The call
// of a tool whose schema is beyond a bound passes with a note.
func TestLargestSchemas(t *testing.T) {
	const empty = `{}`
	for name, c := range map[string]struct {
		schema, arguments func(n int) string
		most              int
		note              string // with one more
	}{
		"bytes of a schema": {func(n int) string {
			return `{"title":"` + strings.Repeat("x", n-len(`{"title":""}`)) + `"}`
		}, nil, 256 << 10, "the schema is too large"},
		"levels of a schema": {func(n int) string {
			return strings.Repeat(`{"items":`, n) + empty + strings.Repeat(`}`, n)
		}, nil, 64, "the schema is too deep"},
		"subschemas": {func(n int) string {
			return `{"prefixItems":[` + strings.Repeat(empty+",", n-1) + empty + `]}`
		}, nil, 20_000, "the schema is too large"},
		"bytes of arguments": {nil, func(n int) string {
			return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}`
		}, 1 << 20, "the value is too large to check"},
		"comparisons": {func(int) string { return `{"properties":{"a":{"items":{}}}}` },
			func(n int) string { return `{"a":[` + strings.Repeat("1,", n-3) + `1]}` }, 200_000,
			"the check takes too many steps"},
	} {
		for n, want := range map[int]string{c.most: "", c.most + 1: c.note} {
			schema, arguments := empty, empty
			if c.schema != nil {
				schema = c.schema(n)
			}
			if c.arguments != nil {
				arguments = c.arguments(n)
			}
			s := schemaStage(t, nil, `{"name":"x","inputSchema":`+schema+`}`)
			notes := notesOf(t, s, called("x", arguments))
			if !strings.Contains(notes, want) || want == "" && notes != "" {
				t.Errorf("%d %s: the notes are %q, want %q", n, name, notes, want)
			}
		}
	}
}

// TestLongestPatternOfASchema lists tools with a pattern of 4 KiB, and with a longer pattern, which
// every text matches.
func TestLongestPatternOfASchema(t *testing.T) {
	for size, want := range map[int]bool{4 << 10: true, 4<<10 + 1: false} {
		s := schemaStage(t, map[string]any{"arguments": "deny"}, `{"name":"x","inputSchema":`+
			`{"properties":{"a":{"pattern":"`+strings.Repeat("a", size)+`"}}}}`)
		if got := refused(t, s, called("x", `{"a":"b"}`)); got != want {
			t.Errorf("a pattern of %d bytes denies another text: %v, want %v", size, got, want)
		}
	}
}

// TestNamesOfCallsAreBounded calls tools until the names of a session have 256 KiB. The call of
// another tool is denied, since it could not be counted.
func TestNamesOfCallsAreBounded(t *testing.T) {
	const most = ((256 << 10) - 64) / 2 // each name counts twice, and 64 bytes for its counters
	for size, want := range map[int]bool{most: false, most + 1: true} {
		s := loaded(t, `deny contains "no" if input.session.calls[""] > 9`)
		name := strings.Repeat("x", size-len("a "))
		if got := refused(t, s, called(name, `{}`)); got != want {
			t.Errorf("the call of a tool with a key of %d bytes is denied: %v, want %v", size, got,
				want)
		}
		if want {
			continue
		}
		if refused(t, s, called(name, `{}`)) || !refused(t, s, called("y", `{}`)) {
			t.Error("want a further call of the tool allowed, and that of another tool denied")
		}
	}
}

// TestBoundsOfSessionsAreSeparate has sessions whose definitions are a byte above their bound while
// the other state is at its own bound, and the reverse. Only what is above its bound is forgotten.
func TestBoundsOfSessionsAreSeparate(t *testing.T) {
	const prompt = `{"name":"x"}`
	label := func(session, label string) *mcp.Message {
		return in(request("ping", `{}`, label), "", session)
	}
	list := func(session string) *mcp.Message {
		return in(answered(request("prompts/list", `{}`, ""), `{"prompts":[`+prompt+`]}`), "",
			session)
	}
	for name, c := range map[string]struct {
		definitions, state int // how much is above the bound
		messages           []*mcp.Message
		want               string // the labels and definitions of the sessions
	}{
		"nothing above": {0, 0, []*mcp.Message{list("1"), list("2"), label("1", "a"),
			label("2", "b"), label("3", "long")}, "11 11 10"},
		"definitions above": {1, 0, []*mcp.Message{label("1", "a"), label("2", "b"),
			label("3", "long"), list("1"), list("2")}, "10 11 10"},
		"state above": {0, 1, []*mcp.Message{list("1"), list("2"), label("1", "a"),
			label("2", "b"), label("3", "long")}, "11 11 00"},
	} {
		s, err := policies.Load(policies.Options{Files: loaded(t,
			`label contains input.name if input.method == "ping"
note contains sprintf("%d%d", [count(input.session.labels), count([1 | input.item])]) if {
	input.method == "prompts/get"
}`).Files(),
			Sessions: &policies.SessionStore{MaxDefinitionBytes: int64(2*len(prompt) -
				c.definitions), MaxStateBytes: int64(len("a"+"b"+"long") - c.state)}})
		must(t, err)
		for _, m := range c.messages {
			verdictOf(t, s, m)
		}
		var got []string
		for _, session := range []string{"1", "2", "3"} {
			got = append(got, noteOf(t, s, in(request("prompts/get", `{}`, "x"), "", session)))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: the sessions have the labels and definitions %s, want %s", name, got,
				c.want)
		}
	}
}

// TestLargestBundle reads a bundle whose files have together the largest size, and one that has a
// byte more.
func TestLargestBundle(t *testing.T) {
	const most = 64 << 20
	for size, want := range map[int]bool{most: false, most + 1: true} {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		must(t, err)
		archive := tar.NewWriter(z)
		for name, n := range map[string]int{"a.txt": most / 2, "b.txt": size - most/2} {
			must(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(n)}))
			_, err := archive.Write(make([]byte, n))
			must(t, err)
		}
		must(t, archive.Close())
		must(t, z.Close())
		_, err = policies.ReadBundle("b", b.Bytes(), nil)
		if got := strings.Contains(fmt.Sprint(err), "when unpacked"); got != want {
			t.Errorf("%d bytes: error %v, want that the bundle is too large: %v", size, err, want)
		}
	}
}
