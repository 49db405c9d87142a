package mcp_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"gatekit/core/mcp"

	"github.com/go-json-experiment/json/jsontext"
)

func TestLeaves(t *testing.T) {
	m, err := mcp.Parse([]byte(
		`{"jsonrpc":"2.0","method":"x","params":{"a":"x\ny","b/c~":[1.50,true,{"d":"\ud800z"},[],{}],"e":null,"f":{"":"v"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*mcp.Message{m, m.WithLeaves()} {
		checkLeaves(t, m)
		checkLeaves(t, m)
	}
	mcp.NewNotification("x", nil).Leaves(func(mcp.Leaf) bool {
		t.Error("a message without a body has a leaf, want none")
		return true
	})
}

// checkLeaves checks the leaves of the message of TestLeaves.
func checkLeaves(t *testing.T, m *mcp.Message) {
	t.Helper()
	var got []string
	m.Leaves(func(l mcp.Leaf) bool {
		kind := map[mcp.LeafKind]string{mcp.StringLeaf: "string", mcp.NumberLeaf: "number",
			mcp.NameLeaf: "name"}[l.Kind]
		got = append(got, kind+" "+l.Pointer()+" "+l.Text()+" in "+l.MemberName())
		if raw, ok := m.Get(l.Pointer()); !ok || l.Kind != mcp.NameLeaf &&
			string(raw) != string(l.Raw) {
			t.Errorf("the leaf at %s is %s, want the value that Get returns, %s",
				l.Pointer(), l.Raw, raw)
		}
		return true
	})
	want := []string{"name /a a in a", "string /a x\ny in a", "name /b~1c~0 b/c~ in b/c~",
		"number /b~1c~0/0 1.50 in b/c~", "name /b~1c~0/2/d d in d",
		"string /b~1c~0/2/d \uFFFDz in d", "name /e e in e", "name /f f in f", "name /f/  in ",
		"string /f/ v in "}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	n := 0
	m.Leaves(func(mcp.Leaf) bool {
		n++
		return n < 3
	})
	if n != 3 {
		t.Errorf("Leaves visited %d leaves, want 3: yield returned false for the third", n)
	}
}

func TestWithLeavesKeepsSomeLeavesOnly(t *testing.T) {
	var items []string
	for i := range 10_000 {
		items = append(items, strconv.Itoa(i), `"\n`+strconv.Itoa(i)+`"`)
	}
	large := strings.Repeat("x", 2<<20)
	for name, body := range map[string]string{
		"many":  `{"a":[` + strings.Join(items, ",") + `]}`,
		"large": `{"a":"` + large + `","b":["` + large + `\t"]}`,
	} {
		m := mcp.NewNotification("x", []byte(body))
		want, kept := leafTexts(m), m.WithLeaves()
		for range 2 {
			if got := leafTexts(kept); !slices.Equal(got, want) {
				t.Errorf("%s: WithLeaves has %d leaves, want the %d leaves of the message", name,
					len(got), len(want))
			}
		}
	}
}

func TestLeavesOfInvalidJSONDoNotPanic(t *testing.T) {
	const body = `{"a":["x\n",-1.5e3,{"b":"c","\"":[]}],"d":"\u00e9"} `
	for i := range body {
		for _, body := range []string{body[:i], body[i:], body[:i] + body[i+1:],
			body[:i] + `"` + body[i:]} {
			m := mcp.NewNotification("x", []byte(body))
			leafTexts(m)
			leafTexts(m.WithLeaves())
		}
	}
}

func TestEditedMessageHasOtherLeaves(t *testing.T) {
	m := mcp.NewNotification("x", []byte(`{"a":"old"}`)).WithLeaves()
	leafTexts(m)
	edited, err := m.Edit(mcp.Set("/a", []byte(`"new"`)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := leafTexts(edited), []string{"/a a", "/a new"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := leafTexts(m), []string{"/a a", "/a old"}; !slices.Equal(got, want) {
		t.Errorf("the first message has %q, want %q", got, want)
	}
}

// leafTexts returns the pointers and the texts of the leaves.
func leafTexts(m *mcp.Message) (all []string) {
	m.Leaves(func(l mcp.Leaf) bool {
		all = append(all, l.Pointer()+" "+l.Text())
		return true
	})
	return all
}

func FuzzLeafText(f *testing.F) {
	for _, s := range []string{`plain`, `a\"b\\c\/d\b\f\n\r\te`, `\u0041\u00e9é\ud83d\ude00`,
		`\ud800`, `\ud800x`, `\udc00\ud800`, `\ud83d\u0041\ude00`, `\\u0041\\`, `\ud83d\n\ude00`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := `"` + s + `"`
		if !utf8.ValidString(s) ||
			!jsontext.Value(quoted).IsValid(jsontext.AllowInvalidUTF8(true)) {
			t.Skip("not the text of a JSON string")
		}
		want, _ := jsontext.AppendUnquote(nil, quoted)
		m := mcp.NewNotification("x", []byte(`[`+quoted+`]`))
		for _, m := range []*mcp.Message{m, m.WithLeaves()} {
			m.Leaves(func(l mcp.Leaf) bool {
				if got := l.Text(); got != string(want) {
					t.Errorf("%s: got %q, want %q", quoted, got, want)
				}
				return true
			})
		}
	})
}
