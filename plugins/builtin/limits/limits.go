package limits

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

//go:embed schema.json
var schema []byte

// Plugin is limits.
func Plugin() sdk.Plugin {
	c, err := parse([]byte("{}"))
	if err != nil {
		panic("limits: its defaults are wrong: " + err.Error())
	}
	return sdk.Plugin{
		Name:    "limits",
		Version: "1.0.0",
		Doc: "limits calls a minute, calls at once, the same call again and again, and the " +
			"size of results",
		Wants:    c.wants(),
		Needs:    sdk.Needs{Body: true},
		Schema:   schema,
		Stateful: true,
		New: func(raw []byte) (sdk.Stage, error) {
			c, err := parse(raw)
			if err != nil {
				return nil, err
			}
			return &stage{config: c, ledger: newLedger()}, nil
		},
		SelfTest: canary,
	}
}

// stage is limits with a configuration, and what it has counted.
type stage struct {
	config config
	ledger *ledger
}

// Wants implements sdk.StageWithWants.
func (s *stage) Wants() pipeline.Wants { return s.config.wants() }

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, fmt.Errorf("not counted: %w", context.Cause(ctx))
	}
	switch m.Kind {
	case mcp.Request:
		return s.admit(ctx, m)
	case mcp.Notification:
		if m.Method == "notifications/cancelled" && m.Direction == mcp.ToServer {
			s.ledger.end(m)
		} else {
			s.ledger.alive(m, time.Now().Add(s.config.timeout))
		}
		if v, err := s.admit(ctx, m); err != nil || v.Action == pipeline.Deny {
			return v, err
		}
	default:
		if m.Direction == mcp.ToServer { // what the client says to a server's question
			s.ledger.alive(m, time.Now().Add(s.config.timeout))
			return sdk.Allow(), nil
		}
		s.ledger.end(m)
	}
	if !s.config.Result.on() {
		return sdk.Allow(), nil
	}
	return s.config.Result.hold(ctx, m)
}

// admit counts a request or notification, or refuses it.
func (s *stage) admit(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	now := time.Now()
	q := question{m: m, now: now, timeout: s.config.timeout}
	for i := range s.config.Calls {
		if r := &s.config.Calls[i]; r.fits(m) {
			q.rules = append(q.rules, numbered{r, i})
		}
	}
	if l := &s.config.Loop; l.on() && m.Method == "tools/call" && m.Kind == mcp.Request &&
		m.Direction == mcp.ToServer && !match(l.Except, m.Name) {
		step, err := digest(m)
		if err != nil {
			return sdk.Verdict{}, fmt.Errorf("digest of the arguments: %w", err)
		}
		q.loop, q.step = l, step
	}
	if m.Kind == mcp.Request && m.Direction == mcp.ToClient {
		s.ledger.alive(m, now.Add(max(s.config.timeout, asking)))
	}
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, fmt.Errorf("not counted: %w", context.Cause(ctx))
	}
	if len(q.rules) == 0 && q.loop == nil {
		return sdk.Allow(), nil
	}
	if refused := s.ledger.admit(q); refused != nil {
		return sdk.Deny(refused.reason, pipeline.Finding{Type: refused.kind}), nil
	}
	return sdk.Allow(), nil
}

// asking is how long a client may take for a server's question; the call that it belongs to is open
// all the while.
const asking = 10 * time.Minute

// canary is a result that is too large. What depends on more than one message cannot be shown by
// one.
func canary(raw []byte) *sdk.SelfTest {
	c, err := parse(raw)
	if err != nil || !c.Result.on() || c.Result.Bytes > largestCanary {
		return nil
	}
	text := make([]byte, c.Result.Bytes+1)
	for i := range text {
		text[i] = 'x'
	}
	content := append([]byte(`{"content":[{"type":"text","text":`), mcp.Quote(string(text))...)
	m := mcp.NewResponse("1", append(content, "}]}"...))
	m.Direction, m.Method, m.Server, m.Name, m.Session, m.Exchange = mcp.ToClient,
		"tools/call", "canary",
		"canary", "canary", "1"
	action := pipeline.Modify
	if c.Result.Action == "deny" {
		action = pipeline.Deny
	}
	return &sdk.SelfTest{Description: "a tool's result that is a byte too long", Message: m,
		Action: action}
}

const largestCanary = 8 << 20 // beyond it the message would be larger than messages may be
