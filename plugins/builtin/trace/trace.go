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

// Plugin is the plugin, for the list of built-ins.
func Plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:    "trace",
		Version: "1.0.0",
		Doc: "says at the end of a tool's result what was called, how long it took and " +
			"where it is recorded",
		Wants:    wants(mcp.Request, mcp.Response),
		Needs:    sdk.Needs{Body: true, Request: true},
		Stateful: true,
		Schema:   schema,
		New: func(config []byte) (sdk.Stage, error) {
			s, err := newStage(config)
			if err != nil {
				return nil, err // and no *stage that is nil
			}
			return s, nil
		},
		SelfTest: canary,
	}
}

func wants(kinds ...mcp.Kind) pipeline.Wants {
	return pipeline.Wants{Methods: []string{"tools/call"}, Kinds: kinds}
}

// stage says its fields of each call.
type stage struct {
	fields []string
	most   int // characters of the arguments
	began  began
}

// Wants implements sdk.StageWithWants: requests are seen for the sake of their time only.
func (s *stage) Wants() pipeline.Wants {
	if slices.Contains(s.fields, "duration") {
		return wants(mcp.Request, mcp.Response)
	}
	return wants(mcp.Response)
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
			s.began.note(c, now)
		}
	case mcp.Response:
		at, ok := s.began.take(c)
		if !traceable(m) {
			break
		}
		took := ""
		if ok {
			took = now.Sub(at).Round(time.Millisecond).String()
		}
		return sdk.Modify("a trace was added",
			[]mcp.Edit{mcp.Set("/content/-", block(s.text(m, took, now)))}), nil
	}
	return sdk.Allow(), nil
}

// traceable says whether m is a result that a text may be added to: complete, no failure, with
// content.
func traceable(m *mcp.Message) bool {
	if failed, _ := m.Get("/isError"); string(failed) == "true" {
		return false
	}
	if _, typed := m.Get("/resultType"); typed && !m.TextEquals("/resultType", "complete") {
		return false // a task, or a question
	}
	return !m.CarriesInput && m.Len("/content") >= 0
}

// block is a text content block, for people rather than for the model.
func block(text string) []byte {
	b := append([]byte(`{"type":"text","text":`), mcp.Quote(text)...)
	return append(b, `,"annotations":{"audience":["user"]}}`...)
}

// text is what is said of the call that m answers. took is "" when nobody knows.
func (s *stage) text(m *mcp.Message, took string, now time.Time) string {
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
			value = size(len(m.Body()))
		case "duration":
			value = took
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

// arguments are those of the call as it was judged, cut between characters.
func (s *stage) arguments(m *mcp.Message) string {
	if m.Request == nil {
		return ""
	}
	raw, _ := m.Request.Get("/arguments")
	if len(raw) <= s.most || utf8.RuneCount(raw) <= s.most {
		return string(raw)
	}
	end := 0
	for range s.most {
		_, n := utf8.DecodeRune(raw[end:])
		end += n
	}
	return string(raw[:end]) + "…"
}

// size is n bytes in the unit that reads best.
func size(n int) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// canary is a result that a trace is added to.
func canary([]byte) *sdk.SelfTest {
	m := mcp.NewResponse("1", []byte(`{"content":[]}`))
	m.Direction, m.Method, m.Server, m.Name = mcp.ToClient, "tools/call", "canary", "canary"
	return &sdk.SelfTest{Description: "a tool's result", Message: m, Action: pipeline.Modify}
}
