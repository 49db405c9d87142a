package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/audit"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// outcomeWith returns an outcome with s in every field whose text comes from a peer or a stage.
func outcomeWith(s string) pipeline.Outcome {
	m := &mcp.Message{Kind: mcp.Request, Direction: mcp.ToServer, Session: s,
		Principal: identity.FromID(s),
		Exchange:  s,
		Method:    s, Server: s, Name: s}
	return pipeline.Outcome{Time: recordTime, Before: m, Action: s, Reason: s, Err: errors.New(s),
		Steps: []pipeline.Step{
			{Stage: s, Action: s, Reason: s, Findings: []pipeline.Finding{{Type: s, Pointer: s}},
				Changed: []string{s}},
		}}
}

// line returns the line that the log writes for o, without its line feed.
func line(t testing.TB, o pipeline.Outcome) string {
	t.Helper()
	var log bytes.Buffer
	record(t, open(t, audit.Options{Writer: &log}), o)
	text, more, ok := strings.Cut(log.String(), "\n")
	if !ok || more != "" {
		t.Fatalf("the log is %q, want one line", log.String())
	}
	if !jsontext.Value(text).IsValid() {
		t.Fatalf("the line is not valid JSON: %q", text)
	}
	return text
}

func TestHostileStrings(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	tests := []struct {
		name, in, want string // want is the JSON string without its quotes
	}{
		{"quotes and backslashes", `"a\`, `\"a\\`},
		{"a line break and a forged record", "x\n{\"seq\":2}\r", `x\u000a{\"seq\":2}\u000d`},
		{"a NUL", "a\x00b", `a\u0000b`},
		{"an escape sequence of a terminal", "\x1b[2J", `\u001b[2J`},
		{"DEL and C1 controls", "\x7f\u0085", `\u007f\u0085`},
		{"line and paragraph separators", "\u2028\u2029", `\u2028\u2029`},
		{"a right-to-left override", "a\u202eb", `a\u202eb`},
		{"an invisible character beyond 16 bits", "\U000e0041", `\udb40\udc41`},
		{"printable characters", "żółw 亀 🐢", "żółw 亀 🐢"},
		{"invalid UTF-8", "a\xffb\xc3", "a\ufffdb\ufffd"},
		{"half of a surrogate pair", "\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
		{"a real replacement character", "\ufffd", "\ufffd"},
		{"a character that Unicode never assigns", "\uffff", `\uffff`},
		{"as many bytes as fit", long[:1024], long[:1024]},
		{"bytes that never begin a character", strings.Repeat("\x80", 2000), "… (2000 bytes)"},
		{"a megabyte", long, long[:1024] + "… (1048576 bytes)"},
		{"a cut in the middle of a character", long[:1023] + "亀", long[:1023] + "… (1026 bytes)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := line(t, outcomeWith(tt.in))
			if n := strings.Count(text, `:"`+tt.want+`"`); n != 14 || !strings.Contains(text,
				`"changed":["`+tt.want+`"]`) {
				t.Errorf("%d members have the value %.100q, want 14; the list \"changed\" must "+
					"contain it, too:\n%.1000s", n, tt.want, text)
			}
		})
	}
	t.Run("hidden items", func(t *testing.T) {
		o := event("")
		o.Steps = []pipeline.Step{{Stage: "s", Action: "hide", Hidden: append([]string{"read\n", "",
			"https://user:pass@x.example/a?key=S3CRET"}, make([]string, 1000)...)}}
		text := line(t, o)
		if !strings.Contains(text, `"hidden":["read\u000a","…","https://…`) ||
			!strings.Contains(text, `"… and 903 more"]`) || strings.Contains(text, "S3CRET") ||
			strings.Contains(text, "user:pass") || len(text) > 4<<10 {
			t.Errorf("the line has %d bytes, want at most 4096, with 100 names without secrets "+
				"and the number of the others:\n%s", len(text), text)
		}
	})
	t.Run("a thousand findings", func(t *testing.T) {
		o := event("")
		o.Steps = []pipeline.Step{{Stage: "s", Action: "pass", Findings: make([]pipeline.Finding,
			1000)}}
		if text := line(t, o); !strings.Contains(text, `{"type":"… and 900 more"}]`) ||
			len(text) > 4<<10 {
			t.Errorf("the line has %d bytes, want at most 4096, with 100 findings and the number "+
				"of the others:\n%s", len(text), text)
		}
	})
}

// FuzzStrings checks that a line is valid and bounded for any string, and that a short string of
// valid UTF-8 can be read back.
func FuzzStrings(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\x00\u2028\xff", strings.Repeat("亀", 400)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := line(t, outcomeWith(s))
		if limit := 15*(7<<10) + 1<<10; len(text) > limit {
			t.Errorf("the line has %d bytes, want at most %d", len(text), limit)
		}
		var back struct {
			Name  string
			Steps []struct{ Reason string }
		}
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(s) && len(s) <= 1024 && (back.Name != s || back.Steps[0].Reason != s) {
			t.Errorf("read back %q and %q, want %q", back.Name, back.Steps[0].Reason, s)
		}
	})
}

// How the principal was authenticated is in the records of messages to servers. The records of
// messages to clients refer to these.
func TestRecordsOfAnAuthenticatedPrincipal(t *testing.T) {
	ann, err := identity.New(identity.Attributes{Method: identity.JWT, Subject: "ann",
		Issuer: "https://login.example", Client: "cursor", Scopes: []string{"mcp", "files:read"},
		Claims: []byte(`{"email":"ann@example.com"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for direction, want := range map[mcp.Direction]map[string]any{
		mcp.ToServer: {"principal": "https://login.example#ann", "client": "cursor",
			"authentication": "jwt", "scope": "mcp files:read"},
		mcp.ToClient: {"principal": "https://login.example#ann", "client": "cursor",
			"authentication": nil, "scope": nil},
	} {
		text := line(t, pipeline.Outcome{Time: recordTime, Action: "pass", Before: &mcp.Message{
			Kind: mcp.Notification, Direction: direction, Principal: ann, Method: "x/y"}})
		var record map[string]any
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if record[name] != value {
				t.Errorf("%s: %s is %v, want %v", direction, name, record[name], value)
			}
		}
		if strings.Contains(text, "example.com") {
			t.Errorf("%s: the record has a claim: %s", direction, text)
		}
	}
}
