package mcp_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"gatekit/core/mcp"
)

// surrogateNames has members whose names have a lone surrogate.
const surrogateNames = `{"jsonrpc":"2.0","id":1,"method":"tools/call",` +
	`"params":{"name":"t","arguments":{"a\ud83d":{"b\uDE00":"x"},"c":1}}}`

func TestNameWithLoneSurrogateIsReadWithReplacement(t *testing.T) {
	m := parse(t, []byte(surrogateNames))
	if got, ok := m.Text("/arguments/a\uFFFD/b\uFFFD"); !ok || got != "x" {
		t.Errorf("Text returned %q, %v, want x", got, ok)
	}
	var names, pointers []string
	m.Members("/arguments", func(name string, _ []byte) bool {
		names = append(names, name)
		return true
	})
	if want := []string{"a\uFFFD", "c"}; !slices.Equal(names, want) {
		t.Errorf("Members visited %q, want %q", names, want)
	}
	m.Leaves(func(l mcp.Leaf) bool {
		pointers = append(pointers, l.Pointer())
		return true
	})
	if want := []string{"/name", "/name", "/arguments", "/arguments/a\uFFFD",
		"/arguments/a\uFFFD/b\uFFFD", "/arguments/a\uFFFD/b\uFFFD", "/arguments/c",
		"/arguments/c"}; !slices.Equal(pointers, want) {
		t.Errorf("Leaves has the pointers %q, want %q", pointers, want)
	}
}

func TestEditKeepsNameWithLoneSurrogate(t *testing.T) {
	const start = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{`
	tests := []struct {
		name string
		edit mcp.Edit
		want string // the arguments; "" if the edit is an error
	}{
		{"a value in it is replaced", mcp.Set("/arguments/a\uFFFD/b\uFFFD", []byte(`2`)),
			`"a\ud83d":{"b\uDE00":2},"c":1`},
		{"a member is added to it", mcp.Set("/arguments/a\uFFFD/d", []byte(`2`)),
			`"a\ud83d":{"b\uDE00":"x","d":2},"c":1`},
		{"it is removed", mcp.Remove("/arguments/a\uFFFD"), `"c":1`},
		{"another member is replaced", mcp.Set("/arguments/c", []byte(`2`)),
			`"a\ud83d":{"b\uDE00":"x"},"c":2`},
		{"another name with a lone surrogate is added",
			mcp.Set("/arguments/d", []byte(`{"\ud83d":1}`)),
			`"a\ud83d":{"b\uDE00":"x"},"c":1,"d":{"\ud83d":1}`},
		{"a name that can be taken for it is added", mcp.Set("/arguments/a?", []byte(`2`)), ""},
		{"a name that can be taken for the name in it is added",
			mcp.Set("/arguments/a\uFFFD/b", []byte(`2`)), ""},
		{"a name of _meta with a lone surrogate is added",
			mcp.Set("/_meta", []byte(`{"a\ud83d":1}`)), ""},
		{"names that can be confused are added",
			mcp.Set("/arguments/c", []byte(`{"\ud83d":1,"":2}`)), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			edited, err := parse(t, []byte(surrogateNames)).Edit(tt.edit)
			switch want := start + tt.want + `}}}`; {
			case tt.want == "" && (err == nil || edited != nil):
				t.Errorf("got %q, want an error", edited.Append(nil))
			case tt.want == "":
			case err != nil:
				t.Error(err)
			case string(edited.Append(nil)) != want:
				t.Errorf("got %s, want %s", edited.Append(nil), want)
			}
		})
	}
}

// The check of the edited names must not refuse a name that Parse accepts in this kind of message.
func TestEditBesideLoneSurrogateKeepsOtherNames(t *testing.T) {
	for _, raw := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"Content":1,"x":{"\ud83d":1}}}`,
		`{"jsonrpc":"2.0","method":"a","params":{"Content":1,"x":{"\ud83d":1}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"Name":1,"x":{"\ud83d":1}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"Name":1,"x":{"\ud83d":1}}}`,
	} {
		if _, err := parse(t, []byte(raw)).Edit(mcp.Set("/y", []byte(`1`))); err != nil {
			t.Errorf("edit of %s: %v", raw, err)
		}
	}
}

// An approval of a call must not hold for a call with another name or text.
func TestDigestsOfLoneSurrogatesDiffer(t *testing.T) {
	digests := map[string]string{}
	for _, raw := range []string{`{"\ud83d":1}`, `{"\ud83e":1}`, "{\"\uFFFD\":1}",
		`{"a":"\ud83d"}`, `{"a":"\ud83e"}`, `{"a":"\ufffd"}`} {
		digest, err := mcp.CanonicalDigest([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("%x", digest)
		if digests[key] != "" {
			t.Errorf("%s has the same digest as %s", raw, digests[key])
		}
		digests[key] = raw
	}
	one, _ := mcp.CanonicalDigest([]byte(`{"a":"\ud83d\ude00"}`))
	if two, _ := mcp.CanonicalDigest([]byte("{ \"a\": \"\U0001F600\" }")); !bytes.Equal(one, two) {
		t.Error("the digest of a pair of surrogates depends on its spelling")
	}
}
