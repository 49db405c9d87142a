package trace

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

//go:embed schema.json
var schema []byte

// Plugin returns the plugin trace.
func Plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:    "trace",
		Version: "1.0.0",
		Doc: "adds a trace to each tool result: what was called, how long it took, and where " +
			"it is recorded",
		Wants:    toolCalls(mcp.Request, mcp.Response),
		Needs:    sdk.Needs{Body: true, Request: true},
		Stateful: true,
		Schema:   schema,
		New: func(config []byte) (sdk.Stage, error) {
			s, err := newStage(config)
			if err != nil {
				return nil, err // not s: a nil *stage would be a non-nil sdk.Stage
			}
			return s, nil
		},
		SelfTest: selfTest,
	}
}

// toolCalls selects the messages of tools/call that have one of the kinds.
func toolCalls(kinds ...mcp.Kind) pipeline.Wants {
	return pipeline.Wants{Methods: []string{"tools/call"}, Kinds: kinds}
}

// stage adds a trace to results.
type stage struct {
	fields       []string // the fields of the trace, in their order
	maxArguments int      // characters of the arguments that are shown
	starts       startTimes
}

// Wants implements sdk.StageWithWants. Requests are only needed for the duration.
func (s *stage) Wants() pipeline.Wants {
	if slices.Contains(s.fields, "duration") {
		return toolCalls(mcp.Request, mcp.Response)
	}
	return toolCalls(mcp.Response)
}

// Inspect implements sdk.Stage.
func (s *stage) Inspect(_ context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if m.Method != "tools/call" {
		return sdk.Allow(), nil
	}
	c, now := call{m.Session, m.Exchange}, time.Now()
	switch m.Kind {
	case mcp.Request:
		if m.Exchange != "" {
			s.starts.add(c, now)
		}
	case mcp.Response:
		start, ok := s.starts.take(c)
		if !canHaveTrace(m) {
			break
		}
		duration := ""
		if ok {
			duration = now.Sub(start).Round(time.Millisecond).String()
		}
		return sdk.Modify("trace added",
			[]mcp.Edit{mcp.Set("/content/-", textBlock(s.text(m, duration, now)))}), nil
	}
	return sdk.Allow(), nil
}

// canHaveTrace reports whether m is a complete and successful result with a list of content.
func canHaveTrace(m *mcp.Message) bool {
	if failed, _ := m.Get("/isError"); string(failed) == "true" {
		return false
	}
	if _, typed := m.Get("/resultType"); typed && !m.TextEquals("/resultType", "complete") {
		return false // a task, or questions to the client
	}
	return !m.CarriesInput && m.Len("/content") >= 0
}

// textBlock returns a text content block for the audience "user".
func textBlock(text string) []byte {
	b := append([]byte(`{"type":"text","text":`), mcp.Quote(text)...)
	return append(b, `,"annotations":{"audience":["user"]}}`...)
}

// text returns the trace of the call with the result m. An empty field is left out.
func (s *stage) text(m *mcp.Message, duration string, now time.Time) string {
	var b strings.Builder
	b.WriteString("[gatekit trace]")
	for _, field := range s.fields {
		value := ""
		switch field {
		case "server":
			value = m.Server
		case "tool":
			value = m.Name
		case "arguments":
			value = s.arguments(m)
		case "size":
			value = formatSize(len(m.Body()))
		case "duration":
			value = duration
		case "record":
			value = fmt.Sprintf("session %s, exchange %s", m.Session, m.Exchange)
		case "time":
			value = now.UTC().Format(time.RFC3339)
		}
		if value != "" {
			b.WriteString("\n" + field + ": " + value)
		}
	}
	return b.String()
}

// arguments returns the arguments of the call as they were sent to the server, cut between two
// characters to maxArguments.
func (s *stage) arguments(m *mcp.Message) string {
	if m.Request == nil {
		return ""
	}
	raw, _ := m.Request.Get("/arguments")
	if len(raw) <= s.maxArguments || utf8.RuneCount(raw) <= s.maxArguments {
		return string(raw)
	}
	end := 0
	for range s.maxArguments {
		_, n := utf8.DecodeRune(raw[end:])
		end += n
	}
	return string(raw[:end]) + "…"
}

// formatSize returns a number of bytes for people, such as "1.2 KiB".
func formatSize(n int) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// selfTest returns a result that gets a trace.
func selfTest([]byte) *sdk.SelfTest {
	m := mcp.NewResponse("1", []byte(`{"content":[]}`))
	m.Direction, m.Method, m.Server, m.Name = mcp.ToClient, "tools/call", "canary", "canary"
	return &sdk.SelfTest{Description: "a tool's result", Message: m, Action: pipeline.Modify}
}
