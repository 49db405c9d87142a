package mcp_test

import (
	"slices"
	"testing"

	"gatekit/core/mcp"
)

func TestLeaves(t *testing.T) {
	m, err := mcp.Parse([]byte(
		`{"jsonrpc":"2.0","method":"x","params":{"a":"x\ny","b/c~":[1.50,true,{"d":"\ud800z"},[],{}],"e":null,"f":{"":"v"}}}`))
	if err != nil {
		t.Fatal(err)
	}
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
	mcp.NewNotification("x", nil).Leaves(func(mcp.Leaf) bool {
		t.Error("a message without a body has a leaf, want none")
		return true
	})
}
