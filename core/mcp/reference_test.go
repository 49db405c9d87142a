package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// decode returns the value that encoding/json reads from raw, with numbers as text. The tests
// compare this value with what package mcp reads.
func decode(t testing.TB, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json cannot read %.300q: %v", raw, err)
	}
	return v
}

// places calls visit for v and for each value in it, with the value's pointer.
func places(pointer string, v any, visit func(pointer string, v any)) {
	visit(pointer, v)
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			places(pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), x, visit)
		}
	case []any:
		for i, x := range v {
			places(pointer+"/"+strconv.Itoa(i), x, visit)
		}
	}
}

// agrees fails the test if a method of m reads another value than encoding/json does.
func agrees(t testing.TB, m *mcp.Message) {
	t.Helper()
	whole := decode(t, m.Append(nil)).(map[string]any)
	body, ok := whole[map[mcp.Kind]string{mcp.Request: "params", mcp.Notification: "params",
		mcp.Response: "result", mcp.Error: "error"}[m.Kind]]
	if !ok || body == nil && m.Kind != mcp.Response {
		if m.Body() != nil {
			t.Fatalf("the body is %q, want none", m.Body())
		}
		return
	}
	places("", body, func(pointer string, want any) {
		raw, ok := m.Get(pointer)
		if !ok {
			t.Fatalf("Get(%q) finds no value in %q, want %v", pointer, m.Append(nil), want)
		}
		if got := decode(t, raw); !reflect.DeepEqual(got, want) {
			t.Fatalf("Get(%q) returned %q, want %v", pointer, raw, want)
		}
		s, isText := m.Text(pointer)
		switch want := want.(type) {
		case string:
			if isText && s != want || !isText && !mangled(want) {
				t.Fatalf("Text(%q) returned %q, %v, want %q", pointer, s, isText, want)
			}
		case []any:
			if n := m.Len(pointer); n != len(want) {
				t.Fatalf("Len(%q) returned %d, want %d", pointer, n, len(want))
			}
			n := 0
			m.Items(pointer, func(i int, raw []byte) bool {
				if got := decode(t, raw); i != n || !reflect.DeepEqual(got, want[i]) {
					t.Fatalf("element %d of %q is %q, want %v", i, pointer, raw, want[n])
				}
				n++
				return true
			})
			if n != len(want) {
				t.Fatalf("Items(%q) visited %d elements, want %d", pointer, n, len(want))
			}
		case map[string]any:
			n := 0
			m.Members(pointer, func(name string, raw []byte) bool {
				if got := decode(t, raw); !reflect.DeepEqual(got, want[name]) {
					t.Fatalf("member %q of %q is %q, want %v", name, pointer, raw, want[name])
				}
				n++
				return true
			})
			if n != len(want) {
				t.Fatalf("Members(%q) visited %d members, want %d", pointer, n, len(want))
			}
		}
		if _, isArray := want.([]any); !isArray && m.Len(pointer) != -1 {
			t.Fatalf("Len(%q) returned %d, want -1 for a value that is no array", pointer,
				m.Len(pointer))
		}
	})
}

// mangled reports whether s contains U+FFFD, which encoding/json puts in place of a lone surrogate.
func mangled(s string) bool { return strings.ContainsRune(s, '\uFFFD') }

// edited does to a decoded body what Edit must do to a message. First it sets values, then it
// removes values, and then it appends elements to arrays.
func edited(body any, edits []mcp.Edit) (result any, err error) {
	for _, appends := range []bool{false, true} {
		for _, e := range edits {
			if e.Value == nil || appends != strings.HasSuffix(e.Pointer, "/-") {
				continue
			}
			var v any
			d := json.NewDecoder(bytes.NewReader(e.Value))
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				return nil, err
			}
			if body, err = at(body, e.Pointer, func(any) any { return v }); err != nil {
				return nil, err
			}
		}
		for _, e := range edits {
			if e.Value == nil && !appends {
				body, _ = at(body, e.Pointer, func(any) any { return gone })
			}
		}
	}
	return compact(body), nil
}

// compact deletes from the arrays in v the elements with the value gone. These are the elements
// that edits removed.
func compact(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for name := range x {
			x[name] = compact(x[name])
		}
	case []any:
		x = slices.DeleteFunc(x, func(e any) bool { return e == gone })
		for i := range x {
			x[i] = compact(x[i])
		}
		return x
	}
	return v
}

var gone any = new(int) // the value of an absent or removed place

// at replaces the value at pointer by the result of change, and returns the changed v. If the
// value is absent, change gets the value gone.
func at(v any, pointer string, change func(any) any) (any, error) {
	if pointer == "" {
		return change(v), nil
	}
	token, rest, _ := strings.Cut(pointer[1:], "/")
	if strings.Contains(pointer[1:], "/") {
		rest = "/" + rest
	}
	token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	switch x := v.(type) {
	case map[string]any:
		old, ok := x[token]
		if !ok {
			old = gone
		}
		value, err := at(old, rest, change)
		if value == gone {
			delete(x, token)
		} else {
			x[token] = value
		}
		return x, err
	case []any:
		if token == "-" && rest == "" {
			return append(x, change(gone)), nil
		}
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(x) || strconv.Itoa(i) != token {
			return v, fmt.Errorf("no element %q", token)
		}
		x[i], err = at(x[i], rest, change)
		return x, err
	}
	if v != gone && v != nil {
		return v, fmt.Errorf("nothing below %v", v)
	}
	value, err := at(gone, rest, change)
	if value == gone {
		return v, err
	}
	return map[string]any{token: value}, err
}
