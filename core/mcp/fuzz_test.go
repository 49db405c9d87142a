package mcp_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/mcp"
)

// messages are the seeds of the fuzz tests: messages of every kind, and texts that Parse refuses.
var messages = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__b","arguments":{"x":[1.0,-0,1e400,12345678901234567890,"\ud83d\ude00","\ud83d"],"":{}},"_meta":{"progressToken":0}}}`,
	` {"params" : { "uri":"file:///x" , "a/b~":null, "ref":{"type":"ref/prompt","name":"p"} },"method":"resources/read","jsonrpc":"2.0","id":"\u0061"}` + "\r\n",
	`{"jsonrpc":"2.0","id":9007199254740993,"result":{"tools":[{"name":"t","_meta":{"ui":{"resourceUri":"ui://x"},"ui/resourceUri":"ui://y"}},{"n\u0061me":"u"},1],"nextCursor":""}}`,
	`{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"resource_link","uri":"a:b"},{"type":"resource","resource":{"uri":"c:d","text":""}},{"type":"text","text":"e:f","uri":"no"}]}}`,
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32002,"message":"x","data":{"uri":"file:///x"}}}`,
	`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	`{"jsonrpc":"2.0","method":"a","params":null}`,
	`{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":1,"Name":2}}`,
	`{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":1,"\u0061":2}}`, `[]`, `{`, ``,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"\ud83d":{"x\uD83D":"\ude00","y\ud83d":[{"\ude00":1}]},"z?":2}}}`,
}

// Parse and Append keep the bytes of an accepted message. The methods of the message read the same
// values as encoding/json.
func FuzzParseKeepsBytes(f *testing.F) {
	for _, s := range messages {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := mcp.Parse(slices.Clone(raw))
		if err != nil {
			var e *mcp.ParseError
			if !errors.As(err, &e) || m != nil || e.Offset < 0 || e.Offset > int64(len(raw)) ||
				e.Reason == "" {
				t.Fatalf("got %v, %#v; want no message, and an error with an offset in the text "+
					"and a reason", m, err)
			}
			return
		}
		if got := m.Append(nil); !bytes.Equal(got, raw) || m.Size() != len(raw) {
			t.Fatalf("Append returned %q and Size %d, want %q and %d", got, m.Size(), raw, len(raw))
		}
		agrees(t, m)
		other := m.WithID(`"other"`)
		if got := other.Append(nil); len(got) != other.Size() {
			t.Fatalf("with another id, Append returned %d bytes and Size %d, want the same",
				len(got), other.Size())
		} else if again := parse(t, got); m.Kind != mcp.Notification && again.ID() != `"other"` {
			t.Fatalf("%q has the id %s, want \"other\"", got, again.ID())
		}
		if got := other.WithID(m.ID()).Append(nil); !bytes.Equal(got, raw) && m.ID() != "" {
			t.Fatalf("after WithID with the original id, the message is %q, want %q", got, raw)
		}
	})
}

// In an accepted message, no parser that reads lone surrogates in its own way finds two members
// with the same name, or another member of the protocol.
func FuzzNamesWithLoneSurrogates(f *testing.F) {
	for _, names := range [][3]string{{`\ud83d`, `\ud83e`, `x`}, {`a\ud83d`, `a?`, `a`},
		{`na\uD83Dme`, `name`, `\ude00`}, {`\ud83d\ude00`, `\ude00\ud83d`, `?`},
		{`\\ud83d`, `\ud83d`, `\ufffd`}, {`U\ud83dRI`, `b`, `_\udfffmeta`}} {
		f.Add(names[0], names[1], names[2])
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		object := `{"` + a + `":1,"` + b + `":{"` + c + `":2},"` + c + `":3}`
		for _, raw := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":` +
				object + `}}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + object + `}`,
			`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + object + `],"_meta":` + object + `}}`,
		} {
			m, err := mcp.Parse([]byte(raw))
			if err != nil {
				continue
			}
			agrees(t, m)
			for _, replacement := range []string{"\uFFFD", "\uFFFD\uFFFD\uFFFD", "?", ""} {
				other := replaceLoneSurrogates(raw, replacement)
				if _, err := mcp.Parse([]byte(other)); err != nil {
					t.Errorf("Parse accepts %q, but a parser may read it as %q: %v", raw,
						other, err)
				}
			}
		}
	})
}

// replaceLoneSurrogates replaces each escape of a lone surrogate in valid JSON.
func replaceLoneSurrogates(raw, replacement string) string {
	var out strings.Builder
	unit := func(s string) rune { // the UTF-16 unit of the escape with which s begins, or -1
		if len(s) < 6 || s[:2] != `\u` {
			return -1
		}
		n, err := strconv.ParseUint(s[2:6], 16, 16)
		if err != nil {
			return -1
		}
		return rune(n)
	}
	for raw != "" {
		n := 1
		switch u := unit(raw); {
		case u >= 0 && !utf16.IsSurrogate(u):
			n = 6
		case u >= 0 && utf16.DecodeRune(u, unit(raw[6:])) != '\uFFFD':
			n = 12
		case u >= 0:
			out.WriteString(replacement)
			raw = raw[6:]
			continue
		case raw[0] == '\\':
			n = 2
		}
		out.WriteString(raw[:n])
		raw = raw[n:]
	}
	return out.String()
}

// The scanner and jsontext agree on which values are strict JSON, without duplicate names and
// without bad UTF-8. Two differences are allowed. The scanner refuses lone surrogates only in some
// names, and jsontext refuses them everywhere. The scanner and jsontext have different limits of
// depth.
func FuzzParseAgreesWithJSONText(f *testing.F) {
	files, err := filepath.Glob("testdata/json-test-suite/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(raw) < 1<<10 {
			f.Add(raw)
		}
	}
	f.Add([]byte(`{` + many(20) + `,"n3":1}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		_, err := mcp.Parse(slices.Concat([]byte(
			`{"jsonrpc":"2.0","id":1,"method":"a","params":{"v":`), value, []byte(`}}`)))
		want := jsontext.Value(value).IsValid()
		if e, ok := err.(*mcp.ParseError); ok && strings.Contains(e.Reason, "nested too deep") {
			return
		}
		if want == (err == nil) {
			return
		}
		valid := jsontext.Value(value).IsValid(jsontext.AllowInvalidUTF8(true))
		if err == nil && valid && bytes.Contains(value, []byte(`\u`)) {
			return
		}
		if !want && err == nil {
			// A value like 1},"a":{"b":2 closes the object around it and opens another.
			if whole := slices.Concat([]byte(`{"v":`), value,
				[]byte(`}`)); jsontext.Value(whole).IsValid(jsontext.AllowInvalidUTF8(true)) {
				return
			}
		}
		t.Fatalf("Parse of %q: error %v; valid for jsontext: %v", value, err, want)
	})
}

// An edit changes only the value at its pointer. The edited message can be parsed again.
func FuzzEditKeepsTheRest(f *testing.F) {
	for _, s := range messages {
		f.Add([]byte(s), "/name", []byte(`"y"`), "/_meta/progressToken", []byte(`1`),
			"/arguments/x/1")
		f.Add([]byte(s), "/arguments/x/0", []byte(` {"a":[]} `), "/a~1b~0", []byte(`null`),
			"/tools/0")
		f.Add([]byte(s), "/x/y/z", []byte(`1`), "/x/y/w", []byte(`2`), "/arguments/x/0")
		f.Add([]byte(s), "/tools/-", []byte(`1`), "/arguments/x/-", []byte(`2`), "/tools/0")
	}
	f.Fuzz(func(t *testing.T, raw []byte, p1 string, v1 []byte, p2 string, v2 []byte, p3 string) {
		m, err := mcp.Parse(raw)
		if err != nil {
			return
		}
		// with a nil Value, the edit would be a removal
		v1, v2 = append([]byte{}, v1...), append([]byte{}, v2...)
		for _, edits := range [][]mcp.Edit{
			{mcp.Set(p1, v1)},
			{mcp.Remove(p1)},
			{mcp.Set(p1, v1), mcp.Set(p2, v2), mcp.Remove(p3)},
			{mcp.Remove(p1), mcp.Remove(p2), mcp.Remove(p3)},
		} {
			e, err := m.Edit(edits...)
			if got := m.Append(nil); !bytes.Equal(got, raw) {
				t.Fatalf("Edit changed its receiver to %q, want %q", got, raw)
			}
			if err != nil {
				continue
			}
			after := e.Append(nil)
			if _, err := mcp.Parse(after); err != nil {
				t.Fatalf("%q with %q is %q: %v", raw, edits, after, err)
			}
			agrees(t, e)
			if mangled(string(raw)+p1+p2+p3) || bytes.Contains(raw, []byte(`\u`)) ||
				bytes.Contains(v1, []byte(`\u`)) || bytes.Contains(v2, []byte(`\u`)) {
				continue // encoding/json may read another name, so skip the comparison
			}
			whole, was := decode(t, after).(map[string]any), decode(t, raw).(map[string]any)
			name := map[mcp.Kind]string{mcp.Request: "params", mcp.Notification: "params",
				mcp.Response: "result", mcp.Error: "error"}[m.Kind]
			body, ok := was[name]
			if !ok {
				body = gone
			}
			want, err := edited(body, edits)
			if err != nil {
				t.Fatalf("%q with %q: %v", raw, edits, err)
			}
			got, ok := whole[name]
			if !ok {
				got = gone
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q with %q is %q, want %v", raw, edits, after, want)
			}
			delete(whole, name)
			delete(was, name)
			if !reflect.DeepEqual(whole, was) {
				t.Fatalf("%q with %q is %q: a member outside the body differs", raw, edits, after)
			}
			if old, ok := m.Get(p1); ok && len(edits) == 1 && edits[0].Value != nil {
				// The old value stands at some offset i. Nothing else may differ.
				for i := 0; i <= len(raw)-len(old); i++ {
					if bytes.Equal(slices.Concat(raw[:i], bytes.Trim(v1, " \t\r\n"),
						raw[i+len(old):]), after) {
						return
					}
				}
				t.Fatalf("%q with %q is %q: more than the value at %q differs", raw, edits, after,
					p1)
			}
		}
	})
}

// NewResponse does not check its result. Reading a result that is not JSON must not panic.
func FuzzReadingInvalidJSONDoesNotPanic(f *testing.F) {
	for _, s := range append(messages, `{"_meta"`, `{"content":[{"type":"resource","resource"`,
		`{"tools":[,{"name":`, `{"content":["`, `{"tools":["\\`) {
		f.Add([]byte(s), "/tools/0/name")
	}
	f.Fuzz(func(t *testing.T, result []byte, pointer string) {
		m := mcp.NewResponse("1", result)
		if raw, ok := m.Get(pointer); ok && len(raw) > len(result)+1 {
			t.Fatalf("Get(%q) of %q returned %q, which is longer than the body", pointer, result,
				raw)
		}
		m.Text(pointer)
		m.Items(pointer, func(_ int, raw []byte) bool { return len(raw) < 100 })
		m.Members("", func(name string, raw []byte) bool { return m.Len("/"+name) < 100 })
	})
}

// If RewriteNames adds prefixes and then removes them, the message is the same as before, except
// for escapes in names.
func FuzzRewriteNamesThereAndBack(f *testing.F) {
	for _, s := range messages {
		for _, method := range []string{"tools/list", "tools/call", "prompts/get", "resources/read",
			"completion/complete", "sampling/createMessage", "x"} {
			f.Add([]byte(s), method, true)
			f.Add([]byte(s), method, false)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, method string, toClient bool) {
		m, err := mcp.Parse(raw)
		if err != nil {
			return
		}
		if m.Kind == mcp.Response || m.Kind == mcp.Error {
			m.Method = method
		}
		m.Direction = mcp.ToServer
		if toClient {
			m.Direction = mcp.ToClient
		}
		seen := 0
		prefixed, err := mcp.RewriteNames(m, func(p mcp.NamePlace, s string) (string, error) {
			seen++
			return "s__" + s, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if seen == 0 && prefixed != m {
			t.Fatal("RewriteNames without names returned another message, want the same")
		}
		agrees(t, prefixed)
		parse(t, prefixed.Append(nil))
		if seen > 0 && bytes.Equal(prefixed.Append(nil), raw) {
			t.Fatalf("%d names were rewritten, but the message %q is unchanged", seen, raw)
		}
		back, err := mcp.RewriteNames(prefixed, func(p mcp.NamePlace, s string) (string, error) {
			clean, ok := strings.CutPrefix(s, "s__")
			if !ok {
				t.Fatalf("the name %q has no prefix, want one", s)
			}
			seen--
			return clean, nil
		})
		if err != nil || seen != 0 {
			t.Fatalf("%d names got a prefix and did not lose it, want 0; error %v", seen, err)
		}
		agrees(t, back)
		if got, want := decode(t, back.Append(nil)), decode(t, raw); !reflect.DeepEqual(got, want) {
			t.Fatalf("the restored message is %q, want %q", back.Append(nil), raw)
		}
		if !bytes.ContainsRune(raw, '\\') && !bytes.Equal(back.Append(nil), raw) {
			t.Fatalf("the restored message is %q, want %q", back.Append(nil), raw)
		}
	})
}
