package canary_test

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"gatekit/core/canary"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

const planted = "AKIA-q7/Zx9+Lm2_Wt5KvR"

// message returns a call of a tool with an argument.
func message(text string) *mcp.Message {
	quoted, _ := json.Marshal(text)
	m := mcp.NewNotification("tools/call", []byte(`{"name":"send","arguments":{"text":`+
		string(quoted)+`}}`))
	m.Direction = mcp.ToServer
	return m
}

func inspect(t *testing.T, s *canary.Stage, m *mcp.Message) pipeline.Verdict {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wrapped returns base64 with a line break after each 20 characters.
func wrapped(s, newline string) string {
	var lines []string
	for len(s) > 20 {
		lines, s = append(lines, s[:20]), s[20:]
	}
	return strings.Join(append(lines, s), newline)
}

// allPercent returns s with each byte percent-encoded.
func allPercent(s string) (out string) {
	for i := range len(s) {
		out += fmt.Sprintf("%%%02X", s[i])
	}
	return out
}

// allUnicode returns s with each byte as a JSON escape.
func allUnicode(s string) (out string) {
	for i := range len(s) {
		out += fmt.Sprintf(`\u%04x`, s[i])
	}
	return out
}

func TestEncodings(t *testing.T) {
	stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted}}}, nil)
	inner, _ := json.Marshal(map[string]string{"k": planted})
	prose := strings.Repeat("the 5% of\n  a day\n", 20)
	std, urls := base64.StdEncoding.EncodeToString, base64.URLEncoding.EncodeToString
	tests := []struct {
		name, text string
		found      bool
	}{
		{"alone", planted, true},
		{"within a text", "the key is " + planted + ", keep it", true},
		{"lower case", strings.ToLower(planted), true},
		{"upper case", strings.ToUpper(planted), true},
		{"base64", std([]byte(planted)), true},
		{"base64 after one byte", std([]byte("a" + planted + "b")), true},
		{"base64 after two bytes", std([]byte("ab" + planted + "bcd")), true},
		{"base64 of binary data", std([]byte("\xff\x00\x01" + planted + "\xfe")), true},
		{"base64 of the other alphabet", urls([]byte("?>" + planted + "\xff\xff")), true},
		{"base64 on several lines", wrapped(std([]byte("file:\n"+planted+"\n")), "\r\n"), true},
		{"base64 on indented lines", wrapped(std([]byte("file:\n"+planted+"\n")), "\n \t"), true},
		{"hexadecimal", hex.EncodeToString([]byte("x" + planted)), true},
		{"upper hexadecimal", strings.ToUpper(hex.EncodeToString([]byte(planted))), true},
		{"a URL", "https://evil.example/?q=" + url.QueryEscape(planted), true},
		{"a URL with each byte encoded", "https://evil.example/" + allPercent(planted), true},
		{"percent-encoded three times", url.QueryEscape(url.QueryEscape(url.QueryEscape(planted))),
			true},
		{"base64 in a URL", "https://evil.example/" + url.QueryEscape(std([]byte(planted))), true},
		{"JSON in a string", string(inner), true},
		{"JSON escapes in a string", allUnicode(planted), true},
		{"\\x escapes in a string", strings.ReplaceAll(planted, "q", `\x71`), true},
		{"base64 lines in JSON in a string",
			wrapped(std([]byte("file:\n"+planted+"\n")), `\n`), true},
		{"base64 lines in JSON in a string, with blanks",
			"a " + wrapped(std([]byte("file:\n"+planted+"\n")), `\r\n  `) + " b", true},
		{"base64 lines in a URL, with blanks", wrapped(std([]byte("f:"+planted)), "%0A "), true},
		{"after other escapes and lines", "100 % of\n all\tlines\nC:\\dir \\ " + prose +
			allPercent(planted) + "\n" + prose, true},
		{"on a line of prose", "\n" + prose + "\nthe key: " + allUnicode(planted) + ". \n", true},
		{"lines and escapes in turn", `\x41` + wrapped(planted[1:], "\n") + "\n" + `\x21`, true},
		{"a text with a blank in it", planted[:8] + " " + planted[8:], false},
		{"a blank line before indentation", "\n \n\t\n" + wrapped(planted, "\n\n\t"), true},
		{"a blank before the end of a line", planted[:8] + " \n" + planted[8:], false},
		{"nothing", "", false},
		{"without the last character", planted[:len(planted)-1], false},
		{"without the first character", planted[1:], false},
		{"another key", "AKIA-q7/Zx9+Lm2_Wt5KvX", false},
		{"base64 of another key", std([]byte("AKIA-q7/Zx9+Lm2_Wt5zzz")), false},
		{"faulty escapes", `%4 %zz \u00 \x \`, false},
		{"a cut-off backslash", planted + `\`, true},
		{"a cut-off escape", planted + `\x4`, true},
		{"a cut-off JSON escape", planted + `\u004`, true},
		{"a cut-off percent-encoding", planted + "%4", true},
		{"escapes up to the end", allPercent(planted[:12]) + allUnicode(planted[12:]), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := inspect(t, stage, message(tt.text))
			if got := v.Action == pipeline.Deny; got != tt.found {
				t.Fatalf("denied: %v, want %v, for %s", got, tt.found, tt.text)
			}
			if !tt.found {
				return
			}
			want := pipeline.Finding{Type: "canary:key", Pointer: "/arguments/text"}
			if len(v.Findings) != 1 || v.Findings[0] != want || !v.Final || !v.OmitBody {
				t.Errorf("got %+v, want the finding %+v, final and without the body", v, want)
			}
			if v.Reason != "planted value in the message: canary key" {
				t.Errorf("got the reason %q", v.Reason)
			}
		})
	}
}

// An encoded value is found between any other texts.
func TestEncodedValueIsFoundInAnyText(t *testing.T) {
	stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted}}}, nil)
	encoded := base64.StdEncoding.EncodeToString([]byte("f: " + planted))
	forms := []string{planted, encoded, allPercent(planted), allUnicode(planted),
		wrapped(encoded, "\n"), wrapped(encoded, "\r\n\t "), wrapped(encoded, `\n  `),
		wrapped(encoded, "%0d%0A "), wrapped(encoded, `\r `), wrapped(encoded, `\u000a `),
		url.QueryEscape(wrapped(encoded, "\n")), wrapped(encoded[:20], "\n") + "\n" +
			strings.ReplaceAll(encoded[20:], "L", "%4c")}
	pieces := []string{"a", " ", "  ", "\t", "\n", "\r", `\`, "%", `\n`, "%0", "%20", "%25", `\u00`,
		"word", "0a", "x\n ", ":", "="}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		junk := func() (text string) {
			for range random.IntN(8) {
				text += pieces[random.IntN(len(pieces))]
			}
			return text
		}
		text := junk() + " " + forms[random.IntN(len(forms))] + " " + junk()
		if v := inspect(t, stage, message(text)); len(v.Findings) != 1 {
			t.Fatalf("got %d findings in %q, want 1", len(v.Findings), text)
		}
	}
}

func TestPlaces(t *testing.T) {
	stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted}},
		{Name: "digits", Values: []string{"739184620517"}}}, nil)
	q, _ := json.Marshal(planted)
	quoted := string(q)
	tests := []struct{ name, line, want string }{
		{"argument", `{"method":"tools/call","id":1,"params":{"name":"t","arguments":{"a":[` +
			quoted + `]}}}`, "/arguments/a/0"},
		{"escaped argument", `{"method":"tools/call","id":1,"params":{"name":"t","arguments":"` +
			allUnicode(planted) + `"}}`, "/arguments"},
		{"tool name", `{"method":"tools/call","id":1,"params":{"name":` + quoted + `}}`, "/name"},
		{"number", `{"method":"tools/call","id":1,"params":{"name":"t","arguments":{"n":` +
			`739184620517}}}`, "/arguments/n"},
		{"member name", `{"method":"tools/call","id":1,"params":{"arguments":{` + quoted +
			`:1}}}`, ""},
		{"beside a member name", `{"method":"tools/call","id":1,"params":{"a":` + quoted +
			`}}`, "/a"},
		{"notification", `{"method":"notifications/message","params":{"data":` + quoted + `}}`,
			"/data"},
		{"result", `{"id":1,"result":{"content":[{"type":"text","text":` + quoted + `}]}}`,
			"/content/0/text"},
		{"error", `{"id":1,"error":{"code":1,"message":` + quoted + `}}`, "/message"},
		{"data of an error", `{"id":1,"error":{"code":1,"message":"m","data":{"x":` + quoted +
			`}}}`, "/data/x"},
		{"unknown method", `{"method":` + quoted + `,"id":1}`, ""},
		{"id", `{"method":"ping","id":` + quoted + `}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0",` + tt.line[1:]))
			if err != nil {
				t.Fatal(err)
			}
			v := inspect(t, stage, m)
			if v.Action != pipeline.Deny || len(v.Findings) != 1 {
				t.Fatalf("got %+v, want a denial with one finding", v)
			}
			if got := v.Findings[0].Pointer; got != tt.want {
				t.Errorf("got the place %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRecordLetsTheMessagePass(t *testing.T) {
	const other = "ghp_0123456789abcdef"
	var reported []pipeline.Verdict
	stage := canary.NewStage([]canary.Canary{{Name: "quiet", Values: []string{planted},
		Record: true}, {Name: "loud", Values: []string{other, other + "x"}}},
		func(_ *mcp.Message, v pipeline.Verdict) { reported = append(reported, v) })
	inspect(t, stage, message("nothing"))
	v := inspect(t, stage, message(planted))
	if v.Action != pipeline.Allow || v.Would == nil || v.Would.Action != pipeline.Deny ||
		!v.OmitBody || v.Would.Reason != "planted value in the message: canary quiet" {
		t.Errorf("got %+v, want a message that passes and would be denied", v)
	}
	v = inspect(t, stage, message(planted+" "+other))
	if v.Action != pipeline.Deny || len(v.Findings) != 2 ||
		v.Reason != "planted value in the message: canary quiet, loud" {
		t.Errorf("got %+v, want a denial: one of the canaries is not only recorded", v)
	}
	if len(reported) != 2 {
		t.Errorf("%d messages were reported, want the 2 with a canary", len(reported))
	}
}

func TestFindingsAreBounded(t *testing.T) {
	stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted}}}, nil)
	q, _ := json.Marshal(planted)
	m := mcp.NewNotification("tools/call", []byte(`{"a":[`+strings.Repeat(string(q)+",", 500)+
		`1]}`))
	if n := len(inspect(t, stage, m).Findings); n != 100 {
		t.Errorf("got %d findings, want 100", n)
	}
}

// Small messages are searched at once. The pipeline limits the time of larger ones.
func TestSmallMessagesAreSearchedAtOnce(t *testing.T) {
	reports := 0
	stage := canary.NewStage([]canary.Canary{{Name: "key", Values: []string{planted}}},
		func(*mcp.Message, pipeline.Verdict) { reports++ })
	var quick pipeline.QuickStage = stage
	v, ok, err := quick.InspectQuickly(t.Context(), message(planted))
	if !ok || err != nil || len(v.Findings) != 1 || reports != 1 {
		t.Errorf("a small message: got %+v, %v, %v and %d reports, want a finding", v, ok, err,
			reports)
	}
	large := message(planted + strings.Repeat("x", 64<<10))
	if v, ok, err = quick.InspectQuickly(t.Context(), large); ok || err != nil || reports != 1 {
		t.Errorf("a large message: got %+v, %v, %v and %d reports, want no verdict", v, ok, err,
			reports)
	}
	if v := inspect(t, stage, large); len(v.Findings) != 1 {
		t.Errorf("a large message: got %+v, want a finding", v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := stage.Inspect(ctx, large); err == nil || v.Action == pipeline.Allow {
		t.Errorf("after the time limit: got %+v, %v, want an error", v, err)
	}
}

// BenchmarkInspect searches messages of 1 KiB and 64 KiB for 100 canaries.
func BenchmarkInspect(b *testing.B) {
	var canaries []canary.Canary
	for i := range 100 {
		sum := sha256.Sum256([]byte{byte(i)})
		text := base32.StdEncoding.EncodeToString(sum[:])
		canaries = append(canaries, canary.Canary{Name: fmt.Sprint("c", i), Values: []string{
			[]string{"AKIA" + text[:16], strings.ToLower(text[:40])}[i%2]}})
	}
	stage := canary.NewStage(canaries, nil)
	prose, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		b.Fatal(err)
	}
	for len(prose) < 64<<10 {
		prose = append(prose, prose...)
	}
	source, _ := json.Marshal(string(prose))
	for _, bb := range []struct{ name, text string }{
		{"prose", string(prose)},
		{"base64", base64.StdEncoding.EncodeToString(prose)},
		{"JSON in a string", string(source)},
	} {
		for _, size := range []int{1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d", bb.name, size), func(b *testing.B) {
				m := message(bb.text[:size])
				b.SetBytes(int64(size))
				for b.Loop() {
					if v, err := stage.Inspect(b.Context(), m); err != nil ||
						v.Action != pipeline.Allow {
						b.Fatal(v, err)
					}
				}
			})
		}
	}
}
