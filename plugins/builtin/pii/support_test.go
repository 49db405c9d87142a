package pii_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/pii"
	"gatekit/plugins/sdk"
)

func stageOf(t testing.TB, config string) sdk.Stage {
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

// said is the result of a tool that says text.
func said(text string) *mcp.Message {
	return result(`{"content":[{"type":"text","text":` + string(mcp.Quote(text)) + `}]}`)
}

func result(body string) *mcp.Message {
	m := mcp.NewResponse("1", []byte(body))
	m.Method, m.Direction, m.Server, m.Name = "tools/call", mcp.ToClient, "files", "read"
	return m
}

func findingsOf(t testing.TB, s sdk.Stage, text string) (found []string) {
	t.Helper()
	for _, f := range inspect(t, s, said(text)).Findings {
		found = append(found, f.Type)
	}
	return found
}

// after is the body of m after s; it fails when s does not let m pass.
func after(t testing.TB, s sdk.Stage, m *mcp.Message) string {
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

func contextThatEnds(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// left is what a stage leaves of a text, the placeholders without their names.
func left(t testing.TB, s sdk.Stage, text string) string {
	t.Helper()
	m := said(text)
	next, err := m.Edit(inspect(t, s, m).Edits...)
	if err != nil {
		t.Fatal(err)
	}
	left, _ := next.Text("/content/0/text")
	return placeholder.ReplaceAllString(left, "]")
}

var placeholder = regexp.MustCompile(`:[0-9a-f]{6}\]`)
