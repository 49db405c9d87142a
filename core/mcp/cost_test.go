package mcp_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"gatekit/core/mcp"
)

// TestLeavesAreReadOnce reads the leaves of a message twice. With a body of at most 1 MiB, the
// second time allocates no texts.
func TestLeavesAreReadOnce(t *testing.T) {
	for size, want := range map[int]bool{1 << 20: true, 1<<20 + 1: false} {
		body := `["` + strings.Repeat(`text","`, 500)
		body += strings.Repeat("x", size-len(body)-2) + `"]`
		m := mcp.NewNotification("x", []byte(body)).WithLeaves()
		length := 0
		read := func() {
			m.Leaves(func(l mcp.Leaf) bool {
				length += len(l.Text())
				return true
			})
		}
		read()
		if n := testing.AllocsPerRun(5, read); n < 100 != want {
			t.Errorf("a body of %d bytes: %v allocations, want less than 100: %v", size, n, want)
		}
	}
}

// TestShortTextsShareMemory reads a thousand texts of 64 bytes, the largest that share memory.
func TestShortTextsShareMemory(t *testing.T) {
	text := `"` + strings.Repeat("x", 64) + `",`
	m := mcp.NewNotification("x", []byte("["+strings.Repeat(text, 999)+text[:66]+"]"))
	if n := testing.AllocsPerRun(5, func() {
		m.WithLeaves().Leaves(func(mcp.Leaf) bool { return true })
	}); n > 300 {
		t.Errorf("1000 texts take %v allocations, want at most 300", n)
	}
	if n := allocated(func() {
		m.WithLeaves().Leaves(func(mcp.Leaf) bool { return true })
	}); n > 400<<10 {
		t.Errorf("1000 texts of 64 bytes take %d bytes, want at most 400 KiB", n)
	}
}

// allocated returns how many bytes a function allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestEditTakesNoMemoryForWhatItRemoves replaces a text of 4 MiB by a short one.
func TestEditTakesNoMemoryForWhatItRemoves(t *testing.T) {
	m := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"`+
		strings.Repeat("x", 4<<20)+`"}}`))
	if n := allocated(func() {
		if _, err := m.Edit(mcp.Set("/x", []byte(`"y"`))); err != nil {
			t.Error(err)
		}
	}); n > 1<<20 {
		t.Errorf("the edit takes %d bytes, want at most 1 MiB", n)
	}
}

// TestNamesOfMethodsAreShared looks at the methods of two messages.
func TestNamesOfMethodsAreShared(t *testing.T) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	a, b := parse(t, raw), parse(t, raw)
	if unsafe.StringData(a.Method) != unsafe.StringData(b.Method) {
		t.Error("each message has its own copy of the method's name")
	}
}

// TestParseReusesItsMemory parses messages with short names, and with names that are longer than
// those of the protocol.
func TestParseReusesItsMemory(t *testing.T) {
	allocations := func(format string) float64 {
		var members []string
		for i := range 20 {
			members = append(members, fmt.Sprintf(format, i))
		}
		raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` +
			strings.Join(members, ",") + `}}`)
		return testing.AllocsPerRun(100, func() {
			if _, err := mcp.Parse(raw); err != nil {
				t.Error(err)
			}
		})
	}
	short, long := allocations(`"%02d":1`), allocations(`"%032d":1`)
	if short > 8 || long > short+5 {
		t.Errorf("Parse takes %v allocations with short names, and %v with long names", short, long)
	}
}

// TestMembersAreFoundWithoutReadingTheBody looks up members that come after a large value: in a
// message that was parsed, and in one with a body of 64 KiB that Gatekit built.
func TestMembersAreFoundWithoutReadingTheBody(t *testing.T) {
	large := strings.Repeat("123456789012345,", 400_000) + "1"
	parsed := parse(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"l":[`+
		large+`],"x":"y"},"l":[`+large+`],"x":"y"}}`))
	body := `{"_meta":{"x":"y"},"l":[` + strings.Repeat("1,", 32730) + `1],"x":"y"}`
	body = strings.Replace(body, `[1,`, `[`+strings.Repeat(" ", 64<<10-len(body))+`1,`, 1)
	built := mcp.NewRequest("1", "a", []byte(body))
	if got := len(built.Body()); got != 64<<10 {
		t.Fatalf("the body has %d bytes, want 64 KiB", got)
	}
	for _, c := range []struct {
		m       *mcp.Message
		pointer string
		times   int
	}{{parsed, "/x", 2000}, {parsed, "/_meta/x", 2000}, {built, "/x", 100_000}} {
		started := time.Now()
		for range c.times {
			if text, _ := c.m.Text(c.pointer); text != "y" {
				t.Fatalf("%s is %q, want y", c.pointer, text)
			}
			if took := time.Since(started); took > time.Second {
				t.Fatalf("%d look-ups of %s took more than a second", c.times, c.pointer)
			}
		}
	}
}

// TestBuiltMessagesOfAnyLength builds messages in which one part is longer than all others.
func TestBuiltMessagesOfAnyLength(t *testing.T) {
	long := strings.Repeat("x", 500)
	for _, m := range []*mcp.Message{
		mcp.NewRequest(mcp.ID(`"`+long+`"`), "a", nil), mcp.NewRequest("1", long, nil),
		mcp.NewRequest("1", "a", []byte(`{"a":"`+long+`"}`)),
		mcp.NewResponse(mcp.ID(`"`+long+`"`), nil), mcp.NewError("", 1, long, nil),
	} {
		agrees(t, parse(t, m.Append(nil)))
	}
}
