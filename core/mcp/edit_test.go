package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

func TestEditChangesNothingElse(t *testing.T) {
	set := func(pointer, value string) mcp.Edit { return mcp.Set(pointer, []byte(value)) }
	tests := []struct {
		name  string
		body  string // params of a tools/call before the edits
		edits []mcp.Edit
		want  string
	}{
		{"no edits", `{ "a" : 1.0 }`, nil, `{ "a" : 1.0 }`},
		{"a value replaced", `{ "name" : "x" , "n":1e400 }`, []mcp.Edit{set("/name", `"y"`)},
			`{ "name" : "y" , "n":1e400 }`},
		{"a value replaced under an escaped name", `{"n\u0061me":"x"}`,
			[]mcp.Edit{set("/name", `"y"`)}, `{"n\u0061me":"y"}`},
		{"an array replaced by an object", `{"a":[1,2]}`, []mcp.Edit{set("/a", `{"b":null}`)},
			`{"a":{"b":null}}`},
		{"blanks around a new value are removed", `{"a":1}`, []mcp.Edit{set("/a", " 2\n")}, `{"a":2}`},
		{"a member added", `{"a":1 }`, []mcp.Edit{set("/b", `2`)}, `{"a":1,"b":2 }`},
		{"a member added to an empty object", `{ }`, []mcp.Edit{set("/b", `2`)}, `{"b":2 }`},
		{"members added, in order", `{"a":1}`, []mcp.Edit{set("/c", `2`), set("/b", `3`)},
			`{"a":1,"c":2,"b":3}`},
		{"a member added with its parents", `{}`, []mcp.Edit{set("/_meta/x/progressToken", `2`)},
			`{"_meta":{"x":{"progressToken":2}}}`},
		{"two members added below one new parent", `{"a":1}`, []mcp.Edit{set("/_meta/x", `1`),
			set("/_meta/y", `2`)}, `{"a":1,"_meta":{"x":1,"y":2}}`},
		{"a member added to a nested object that is empty", `{"a":{ } , "b":{}}`,
			[]mcp.Edit{set("/a/x", `1`), set("/b/y", `2`)}, `{"a":{"x":1 } , "b":{"y":2}}`},
		{"the first member of a nested object removed", `{"a":{ "b":1, "c":2}}`,
			[]mcp.Edit{mcp.Remove("/a/b")}, `{"a":{ "c":2}}`},
		{"a member added whose name needs escapes", `{}`, []mcp.Edit{set("/a~1b~0\"\\", `1`)},
			`{"a/b~\"\\":1}`},
		{"a null parent is replaced by an object", `{"_meta":null}`, []mcp.Edit{set("/_meta/x", `1`)},
			`{"_meta":{"x":1}}`},
		{"an element replaced", `{"a":[1, 2 ,3]}`, []mcp.Edit{set("/a/1", `"x"`)},
			`{"a":[1, "x" ,3]}`},
		{"members of elements replaced and added", `{"a":[{"b":1},{"b":2}]}`, []mcp.Edit{set("/a/1/b", `3`),
			set("/a/0/c", `4`)}, `{"a":[{"b":1,"c":4},{"b":3}]}`},
		{"the first member removed", `{ "a" : 1 , "b" : 2 }`, []mcp.Edit{mcp.Remove("/a")},
			`{ "b" : 2 }`},
		{"the last member removed", `{ "a" : 1 , "b" : 2 }`, []mcp.Edit{mcp.Remove("/b")},
			`{ "a" : 1 }`},
		{"the only member removed", `{ "a" : 1 }`, []mcp.Edit{mcp.Remove("/a")}, `{  }`},
		{"all members removed", `{"a":1 , "b":2,"c":3}`, []mcp.Edit{mcp.Remove("/c"),
			mcp.Remove("/a"), mcp.Remove("/b")}, `{}`},
		{"all members removed and one added", `{"a":1,"b":2}`, []mcp.Edit{mcp.Remove("/a"),
			mcp.Remove("/b"), set("/c", `3`)}, `{"c":3}`},
		{"neighbours removed from the middle", `{"a":[0, 1, 2, 3]}`, []mcp.Edit{mcp.Remove("/a/1"),
			mcp.Remove("/a/2")}, `{"a":[0, 3]}`},
		{"neighbours removed from the start", `{"a":[0, 1, 2, 3]}`, []mcp.Edit{mcp.Remove("/a/0"),
			mcp.Remove("/a/1")}, `{"a":[2, 3]}`},
		{"neighbours removed from the end", `{"a":[0, 1, 2, 3]}`, []mcp.Edit{mcp.Remove("/a/3"),
			mcp.Remove("/a/2")}, `{"a":[0, 1]}`},
		{"every other element removed", `{"a":[0, 1, 2, 3]}`, []mcp.Edit{mcp.Remove("/a/0"),
			mcp.Remove("/a/2")}, `{"a":[1, 3]}`},
		{"first and last removed, the rest changed", `{"a":[0,1,2,3]}`,
			[]mcp.Edit{mcp.Remove("/a/0"), set("/a/1", `"x"`), set("/a/2", `"y"`),
				mcp.Remove("/a/3")}, `{"a":["x","y"]}`},
		{"all elements removed", `{"a":[ 0, 1 ]}`, []mcp.Edit{mcp.Remove("/a/0"),
			mcp.Remove("/a/1")}, `{"a":[  ]}`},
		{"indices refer to the array before the edits", `{"a":["0","1","2"]}`,
			[]mcp.Edit{mcp.Remove("/a/0"), set("/a/2", `"x"`)}, `{"a":["1","x"]}`},
		{"an element added", `{"a":[1, 2 ]}`, []mcp.Edit{set("/a/-", `3`)}, `{"a":[1, 2,3 ]}`},
		{"an element added to an empty array", `{"a":[ ]}`, []mcp.Edit{set("/a/-", `3`)},
			`{"a":[3 ]}`},
		{"an element added, and the last element edited", `{"a":[1,[2]]}`,
			[]mcp.Edit{set("/a/-", `3`), set("/a/1/-", `4`)}, `{"a":[1,[2,4],3]}`},
		{"an element added, and the last element removed", `{"a":[1, 2]}`,
			[]mcp.Edit{set("/a/-", `3`), mcp.Remove("/a/1")}, `{"a":[1,3]}`},
		{"an element added, and all old elements removed", `{"a":[1,2]}`,
			[]mcp.Edit{mcp.Remove("/a/0"), set("/a/-", `3`), mcp.Remove("/a/1")}, `{"a":[3]}`},
		{"removing /- of an array does nothing", `{"a":[1]}`, []mcp.Edit{mcp.Remove("/a/-")},
			`{"a":[1]}`},
		{"the value of a member with the name - replaced", `{"a":{"-":1}}`,
			[]mcp.Edit{set("/a/-", `2`)}, `{"a":{"-":2}}`},
		{"removing absent values does nothing", `{"a":[1],"s":"x","n":null}`, []mcp.Edit{mcp.Remove("/b"),
			mcp.Remove("/x/c"), mcp.Remove("/a/7"), mcp.Remove("/a/x"), mcp.Remove("/s/t"),
			mcp.Remove("/n/o")}, `{"a":[1],"s":"x","n":null}`},
		{"one member removed and one added below an absent parent", `{}`, []mcp.Edit{mcp.Remove("/m/a"),
			set("/m/b", `1`)}, `{"m":{"b":1}}`},
		{"a member with an empty name replaced", `{"":1}`, []mcp.Edit{set("/", `2`)}, `{"":2}`},
		{"the whole body replaced", `{"a":1}`, []mcp.Edit{set("", ` {"b":2} `)}, `{"b":2}`},
		{"a string that looks like JSON stays as it is", `{"t":"}],\"name\":1,{[","name":"x"}`,
			[]mcp.Edit{set("/name", `"y"`)}, `{"t":"}],\"name\":1,{[","name":"y"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, frame := range []string{
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}`,
				` { "params" : %s , "method":"tools/call", "x":{"params":1}, "id":1,"jsonrpc":"2.0"} `,
			} {
				m := parse(t, fmt.Appendf(nil, frame, tt.body))
				m.Session = "s"
				before := string(m.Append(nil))
				e, err := m.Edit(tt.edits...)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := string(e.Append(nil)), fmt.Sprintf(frame, tt.want); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				if string(m.Append(nil)) != before {
					t.Errorf("Edit changed its receiver to %s, want %s", m.Append(nil), before)
				}
				if e.Session != "s" || e.ID() != "1" || e.WithID("22").Size() != e.Size()+1 {
					t.Errorf("session %q, id %q, size %d; want session s, id 1, and one byte "+
						"more with the id 22", e.Session, e.ID(), e.Size())
				}
				parse(t, e.WithID("22").Append(nil))
				agrees(t, e)
				for _, x := range tt.edits {
					if _, ok := e.Get(x.Pointer); ok && x.Value == nil &&
						!strings.HasPrefix(x.Pointer, "/a/") {
						t.Errorf("%q was removed, and Get still finds it", x.Pointer)
					}
				}
			}
		})
	}
}

func TestEditAddsAndRemovesParams(t *testing.T) {
	set := func(pointer, value string) mcp.Edit { return mcp.Set(pointer, []byte(value)) }
	tests := []struct {
		name string
		raw  string
		edit mcp.Edit
		want string
	}{
		{"a member added to absent params", `{"jsonrpc":"2.0","id":1,"method":"a"}`,
			set("/_meta/progressToken", `1`),
			`{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":1}}}`},
		{"absent params set as a whole", `{"jsonrpc":"2.0","method":"a" }`, set("", `{}`),
			`{"jsonrpc":"2.0","method":"a","params":{} }`},
		{"a member added to null params", `{"params":null,"jsonrpc":"2.0","id":1,"method":"a"}`,
			set("/b", `1`), `{"params":{"b":1},"jsonrpc":"2.0","id":1,"method":"a"}`},
		{"params removed from the front", `{"params":{"a":1},"jsonrpc":"2.0","id":1,"method":"a"}`,
			mcp.Remove(""), `{"jsonrpc":"2.0","id":1,"method":"a"}`},
		{"params removed from the end", `{"jsonrpc":"2.0","id":1,"method":"a","params":{}}`,
			mcp.Remove(""), `{"jsonrpc":"2.0","id":1,"method":"a"}`},
		{"params removed under an escaped name",
			`{"jsonrpc":"2.0","id":1,"p\u0061rams":{},"method":"a"}`, mcp.Remove(""),
			`{"jsonrpc":"2.0","id":1,"method":"a"}`},
		{"absent params removed", `{"jsonrpc":"2.0","id":1,"method":"a"}`, mcp.Remove(""),
			`{"jsonrpc":"2.0","id":1,"method":"a"}`},
		{"a member of absent params removed", `{"jsonrpc":"2.0","id":1,"method":"a"}`,
			mcp.Remove("/x"), `{"jsonrpc":"2.0","id":1,"method":"a"}`},
		{"an element replaced in a result that is an array",
			`{"jsonrpc":"2.0","id":1,"result":[1,2]}`, set("/1", `3`),
			`{"jsonrpc":"2.0","id":1,"result":[1,3]}`},
		{"a member added to a null result", `{"jsonrpc":"2.0","id":1,"result":null}`,
			set("/a", `3`), `{"jsonrpc":"2.0","id":1,"result":{"a":3}}`},
		{"the member message of an error replaced",
			`{"jsonrpc":"2.0","error":{"code":-1,"message":"a"},"id":1}`,
			set("/message", `"b"`), `{"jsonrpc":"2.0","error":{"code":-1,"message":"b"},"id":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := parse(t, []byte(tt.raw)).Edit(tt.edit)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(e.Append(nil)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			parse(t, e.WithID("22").Append(nil))
			agrees(t, e)
		})
	}
}

func TestEditRefuses(t *testing.T) {
	set := func(pointer, value string) mcp.Edit { return mcp.Set(pointer, []byte(value)) }
	request := `{"jsonrpc":"2.0","id":1,"method":"a","params":{"s":"x","o":{"p":1},"l":[1,2]}}`
	response := `{"jsonrpc":"2.0","id":1,"result":{"s":"x"}}`
	failure := `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`
	tests := []struct {
		name   string
		raw    string
		edits  []mcp.Edit
		reason string
	}{
		{"a value that is not JSON", request, []mcp.Edit{set("/s", `x`)}, "a value expected"},
		{"an empty value", request, []mcp.Edit{set("/s", ``)}, "unexpected end"},
		{"two values", request, []mcp.Edit{set("/s", `1,"name":2`)}, "more after"},
		{"an object with two equal names", request, []mcp.Edit{set("/s", `{"a":1,"a":2}`)},
			"duplicate"},
		{"a value with bad UTF-8", request, []mcp.Edit{set("/s", "\"\xff\"")}, "UTF-8"},
		{"a value too deep", request,
			[]mcp.Edit{set("/o/p", strings.Repeat("[", 198)+strings.Repeat("]", 198))}, "too deep"},
		{"a pointer too deep", request, []mcp.Edit{set(strings.Repeat("/x", 200), `1`)},
			"too deep"},
		{"a member of a string", request, []mcp.Edit{set("/s/a", `1`)},
			"neither an object nor an array"},
		{"an index that is one too large", request, []mcp.Edit{set("/l/2", `1`)}, "2 elements"},
		{"an index with a leading zero", request, []mcp.Edit{set("/l/01", `1`)}, "2 elements"},
		{"an index that is a name", request, []mcp.Edit{set("/l/x", `1`)}, "2 elements"},
		{"a member of a new element", request, []mcp.Edit{set("/l/-/a", `1`)},
			"2 elements"},
		{"two elements added to one array", request, []mcp.Edit{set("/l/-", `1`),
			set("/l/-", `2`)}, "overlaps"},
		{"one pointer set twice", request, []mcp.Edit{set("/s", `1`), set("/s", `2`)}, "overlaps"},
		{"one pointer set and removed", request, []mcp.Edit{set("/s", `1`), mcp.Remove("/s")},
			"overlaps"},
		{"a pointer below another", request, []mcp.Edit{set("/o", `{}`), set("/o/p", `2`)},
			"within"},
		{"a pointer above another", request, []mcp.Edit{set("/o/p", `2`), mcp.Remove("/o")},
			"overlaps"},
		{"a pointer without a slash", request, []mcp.Edit{set("s", `1`)}, "not a JSON pointer"},
		{"a pointer with a bad escape", request, []mcp.Edit{set("/s~2", `1`)},
			"not a JSON pointer"},
		{"a pointer that is not UTF-8", request, []mcp.Edit{set("/\xff", `1`)}, "not UTF-8"},
		{"a name that can be confused with another", request, []mcp.Edit{set("/Name", `1`)},
			"taken for name"},
		{"a body with a name that can be confused with another", request,
			[]mcp.Edit{set("", `{"Name":1}`)}, "taken for name"},
		{"params that are an array", request, []mcp.Edit{set("", `[]`)}, "an object expected"},
		{"an error that is a string", failure, []mcp.Edit{set("", `"x"`)}, "an object expected"},
		{"removal of the result", response, []mcp.Edit{mcp.Remove("")}, "cannot be without"},
		{"removal of the error", failure, []mcp.Edit{mcp.Remove("")}, "cannot be without"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := parse(t, []byte(tt.raw))
			e, err := m.Edit(tt.edits...)
			if e != nil || err == nil || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("got %v, want an error with %q", err, tt.reason)
			}
			if got := string(m.Append(nil)); got != tt.raw {
				t.Errorf("Edit changed its receiver to %s, want %s", got, tt.raw)
			}
		})
	}
}

func TestEditOfAMessageWithMoreMembersThanTheIndexHolds(t *testing.T) {
	m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{`+many(100)+`,"_meta":{`+
		many(100)+`}}}`))
	agrees(t, m)
	for _, pointer := range []string{"/n0", "/n31", "/n32", "/n99", "/_meta/n0", "/_meta/n31",
		"/_meta/n99", "/new", "/_meta/new", "/_meta"} {
		for _, edit := range []mcp.Edit{mcp.Set(pointer, []byte(`{"x":"y"}`)),
			mcp.Remove(pointer)} {
			e, err := m.Edit(edit)
			if err != nil {
				t.Fatal(err)
			}
			agrees(t, e)
			if _, ok := e.Get(pointer); ok != (edit.Value != nil) {
				t.Errorf("after the edit %+v, Get(%q) finds a value: %v, want the opposite",
					edit, pointer, ok)
			}
		}
	}
}

func TestAddedMembersAreFoundAndRemovedMembersAreNot(t *testing.T) {
	for _, params := range []string{
		`{"a":1,"_meta":{"m":1}}`,
		`{` + many(40) + `,"_meta":{"m":1}}`,
		`{"_meta":{` + many(40) + `}}`,
	} {
		m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":`+params+`}`))
		for _, edits := range [][]mcp.Edit{
			{mcp.Set("/_meta/new", []byte(`1`))}, {mcp.Set("/new", []byte(`1`))},
			{mcp.Set("/_meta", []byte(`{"x":{"y":1}}`))}, {mcp.Remove("/_meta/n0")},
			{mcp.Remove("/n0")}, {mcp.Remove("/n0"), mcp.Remove("/n1"), mcp.Remove("/_meta/m")},
			{mcp.Remove("/_meta/n0"), mcp.Remove("/_meta/n31")},
		} {
			e, err := m.Edit(edits...)
			if err != nil {
				t.Fatal(err)
			}
			agrees(t, e)
			if got, want := string(e.Body()),
				string(parse(t, e.Append(nil)).Body()); got != want {
				t.Errorf("after %+v: got the body %s, want %s", edits, got, want)
			}
			agrees(t, parse(t, e.Append(nil)))
		}
	}
}

func TestEditsHaveTheDepthLimitOfMessages(t *testing.T) {
	m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{}}`))
	for depth, want := range map[int]bool{198: true, 199: true, 200: false, 300: false} {
		e, err := m.Edit(mcp.Set(strings.Repeat("/x", depth), []byte(`1`)))
		if (err == nil) != want {
			t.Errorf("an edit %d members deep: error %v, want it accepted: %v", depth, err, want)
		}
		if err == nil {
			parse(t, e.Append(nil))
		}
	}
}

func TestManyEditsOfOneMessage(t *testing.T) {
	const n = 300
	var elements []string
	var edits []mcp.Edit
	for i := range n {
		elements = append(elements, fmt.Sprintf(`{"n%d":%d}`, i, i))
		edits = append(edits, mcp.Set(fmt.Sprintf("/l/%d/n%d", n-1-i, n-1-i), []byte(`"x"`)),
			mcp.Remove(fmt.Sprintf("/n%d", i)), mcp.Set(fmt.Sprintf("/m%d", i), []byte(`1`)))
	}
	m := parse(t, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"a","params":{"l":[%s],%s}}`,
		strings.Join(elements, ","), many(n)))
	e, err := m.Edit(edits...)
	if err != nil {
		t.Fatal(err)
	}
	agrees(t, parse(t, e.Append(nil)))
	members := 0
	e.Members("", func(name string, raw []byte) bool {
		members++
		return !strings.HasPrefix(name, "n")
	})
	changed := 0
	e.Items("/l", func(i int, raw []byte) bool {
		changed++
		return string(raw) == fmt.Sprintf(`{"n%d":"x"}`, i)
	})
	if members != n+1 || changed != n {
		t.Errorf("got %d members and %d changed elements, want %d and %d", members, changed, n+1, n)
	}
	if _, err := m.Edit(append(edits, mcp.Remove("/n77"))...); err == nil {
		t.Error("Edit returned no error although /n77 is removed twice")
	}
}
