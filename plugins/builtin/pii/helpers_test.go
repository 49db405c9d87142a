package pii_test

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/pii"
	"gatekit/plugins/sdk"
)

func newStage(t testing.TB, config string) sdk.Stage {
	t.Helper()
	s, err := pii.Plugin().New([]byte(config))
	if err != nil {
		t.Fatalf("New(%s): %v", config, err)
	}
	return s
}

func inspect(t testing.TB, s sdk.Stage, m *mcp.Message) sdk.Verdict {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	return v
}

// textResult returns the result of a tool with the text.
func textResult(text string) *mcp.Message {
	return rawResult(`{"content":[{"type":"text","text":` + string(mcp.Quote(text)) + `}]}`)
}

// rawResult returns the result of a tool with the body.
func rawResult(body string) *mcp.Message {
	m := mcp.NewResponse("1", []byte(body))
	m.Method, m.Direction, m.Server, m.Name = "tools/call", mcp.ToClient, "files", "read"
	return m
}

// findingTypes returns the types of the stage's findings in a text.
func findingTypes(t testing.TB, s sdk.Stage, text string) (found []string) {
	t.Helper()
	for _, f := range inspect(t, s, textResult(text)).Findings {
		found = append(found, f.Type)
	}
	return found
}

// bodyAfter returns the body of m after the edits of s. It fails the test if s denies m.
func bodyAfter(t testing.TB, s sdk.Stage, m *mcp.Message) string {
	t.Helper()
	v := inspect(t, s, m)
	if v.Action != pipeline.Allow && v.Action != pipeline.Modify {
		t.Fatalf("action %d (%s) for %s, want it to pass", v.Action, v.Reason, m.Body())
	}
	next, err := m.Edit(v.Edits...)
	if err != nil {
		t.Fatalf("edits: %v", err)
	}
	return string(next.Body())
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// redactedBy returns a text after the edits of a stage. Each placeholder is written without its
// digits, as in "[card]".
func redactedBy(t testing.TB, s sdk.Stage, text string) string {
	t.Helper()
	m := textResult(text)
	next, err := m.Edit(inspect(t, s, m).Edits...)
	if err != nil {
		t.Fatal(err)
	}
	text, _ = next.Text("/content/0/text")
	return placeholder.ReplaceAllString(text, "]")
}

var placeholder = regexp.MustCompile(`:[0-9a-f]{6}\]`)
