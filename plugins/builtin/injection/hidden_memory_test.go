package injection

import (
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// TestManyHiddenSpansTakeLittleMemory inspects a text with an invisible character between all its
// letters. A list of all these spans would take many times the memory of the text.
func TestManyHiddenSpansTakeLittleMemory(t *testing.T) {
	const size, allowed = 4 << 20, 20 // bytes, and allocated bytes for each of them
	const word = "i\u200bg\u200bn\u200bo\u200br\u200be "
	text := strings.Repeat(word, size/len(word))
	s := newTestStage(t, `{}`)
	m := labelled{Text: text}.message()
	m.Kind, m.Direction = mcp.Request, mcp.ToServer
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			inspect(b, s, m)
		}
	})
	if got := result.AllocedBytesPerOp() / int64(len(text)); got > allowed {
		t.Errorf("the inspection allocates %d bytes for each byte of the text, want at most %d",
			got, allowed)
	}
}

// TestTooManyHiddenSpansAreNotStripped inspects results with the largest number of hidden spans
// that are removed, and with one more.
func TestTooManyHiddenSpansAreNotStripped(t *testing.T) {
	s := newTestStage(t, `{}`)
	for _, c := range []struct {
		spans int
		want  pipeline.Action
	}{{maxRedactions, pipeline.Modify}, {maxRedactions + 1, pipeline.Deny}} {
		m := labelled{Text: strings.Repeat("a\u2060", c.spans) + "a"}.message()
		if v := inspect(t, s, m); v.Action != c.want {
			t.Errorf("with %d hidden spans, the action is %v (%s), want %v", c.spans, v.Action,
				v.Reason, c.want)
		}
	}
}
