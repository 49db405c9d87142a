package limits

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/plugins/sdk"
)

//go:embed schema.json
var schema []byte

// Plugin returns the plugin limits.
func Plugin() sdk.Plugin {
	c, err := parse([]byte("{}"))
	if err != nil {
		panic("limits: the defaults are invalid: " + err.Error())
	}
	return sdk.Plugin{
		Name:    "limits",
		Version: "1.0.0",
		Doc: "limits the rate of calls, the number of open calls, repeated calls, and the size " +
			"of results",
		Wants:  c.wants(),
		Needs:  sdk.Needs{Body: true},
		Schema: schema,
		// The verdict on a message depends on earlier messages.
		Stateful:    true,
		SharedState: true,
		New: func(raw []byte) (sdk.Stage, error) {
			c, err := parse(raw)
			if err != nil {
				return nil, err
			}
			return &stage{config: c, limiter: newLimiter()}, nil
		},
		SelfTest: selfTest,
	}
}

// stage is the plugin with a configuration.
type stage struct {
	config  config
	limiter *limiter
	shared  *sharedLimits // nil if this process counts by itself
}

// Wants implements sdk.StageWithWants.
func (s *stage) Wants() pipeline.Wants { return s.config.wants() }

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	return s.inspect(ctx, m, &sdk.Count{})
}

// inspect returns the verdict on a message. It adds to c what the message changes in the state that
// replicas share.
func (s *stage) inspect(ctx context.Context, m *mcp.Message, c *sdk.Count) (sdk.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, fmt.Errorf("count the message: %w", context.Cause(ctx))
	}
	switch m.Kind {
	case mcp.Request:
		return s.admit(ctx, m, c)
	case mcp.Notification:
		if m.Method == "notifications/cancelled" && m.Direction == mcp.ToServer {
			s.finish(m, c)
		} else {
			s.extend(m, s.config.timeout, c)
		}
		if v, err := s.admit(ctx, m, c); err != nil || v.Action == pipeline.Deny {
			return v, err
		}
	default:
		if m.Direction == mcp.ToServer { // the client answers a request of the server
			s.extend(m, s.config.timeout, c)
			return sdk.Allow(), nil
		}
		s.finish(m, c)
		return s.inspectAnswer(ctx, m)
	}
	v, err := s.limitSize(ctx, m)
	if settle := c.Settle; settle != nil { // of the notification
		c.Settle = func(r shared.Admitted, err error) (sdk.Verdict, shared.Lease) {
			settled, lease := settle(r, err)
			if settled.Action == pipeline.Allow {
				settled = v
			}
			return settled, lease
		}
	}
	return v, err
}

// limitSize returns the verdict on the size of a message.
func (s *stage) limitSize(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if !s.config.Result.isOn() {
		return sdk.Allow(), nil
	}
	return s.config.Result.limitSize(ctx, m)
}

// inspectAnswer limits the size of an answer to a client, and records it in the history of calls.
func (s *stage) inspectAnswer(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	v, err := s.limitSize(ctx, m)
	if err == nil && s.config.Loop.isOn() && m.Method == "tools/call" {
		var hash uint64
		if v.Action != pipeline.Deny {
			hash = s.limiter.hashResult(m)
		}
		s.limiter.recordResult(m, hash)
	}
	return v, err
}

// serverRequestTimeout is how long a client may take to answer a request of the server. The call
// that the request belongs to stays open meanwhile.
const serverRequestTimeout = 10 * time.Minute

// admit counts a request or notification, or denies it.
func (s *stage) admit(ctx context.Context, m *mcp.Message, c *sdk.Count) (sdk.Verdict, error) {
	now := time.Now()
	a := admission{message: m, now: now, timeout: s.config.timeout}
	for i := range s.config.Calls {
		if r := &s.config.Calls[i]; r.appliesTo(m) {
			a.rules = append(a.rules, indexedRule{r, i})
		}
	}
	if l := &s.config.Loop; l.isOn() && m.Method == "tools/call" && m.Kind == mcp.Request &&
		m.Direction == mcp.ToServer && !matchAny(l.Except, m.Name) {
		call, err := newRecordedCall(m)
		if err != nil {
			return sdk.Verdict{}, fmt.Errorf("digest of the arguments: %w", err)
		}
		a.loop, a.call = l, call
	}
	if m.Kind == mcp.Request && m.Direction == mcp.ToClient {
		s.extend(m, max(s.config.timeout, serverRequestTimeout), c)
	}
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, fmt.Errorf("count the message: %w", context.Cause(ctx))
	}
	switch {
	case len(a.rules) == 0 && a.loop == nil:
		return sdk.Allow(), nil
	case s.shared == nil || len(a.rules) == 0:
		return a.verdict(s.limiter.admit(a)), nil
	}
	return s.admitShared(a, c), nil
}

// verdict returns the verdict on a message from the result of limiter.admit.
func (a admission) verdict(repetitions int, denied *denial) sdk.Verdict {
	if denied != nil {
		return sdk.Deny(denied.reason, pipeline.Finding{Type: denied.findingType})
	}
	v := sdk.Allow()
	if a.alone {
		v.Reason = reasonAlone
		v.Findings = []pipeline.Finding{{Type: findingAlone}}
	}
	if a.loop != nil && repetitions >= a.loop.Flag {
		v.Reason = a.loop.reason(repetitions)
		v.Findings = append(v.Findings, pipeline.Finding{Type: findingLoop})
	}
	return v
}

// extend keeps the call that m belongs to open for some time from now on.
func (s *stage) extend(m *mcp.Message, by time.Duration, c *sdk.Count) {
	now := time.Now()
	c.Calls.Renew = s.limiter.extend(m, now.Add(by), now.Add(leaseTime(by)))
	c.Calls.RenewTTL = leaseTime(by)
}

// finish closes the call that m belongs to.
func (s *stage) finish(m *mcp.Message, c *sdk.Count) {
	c.Calls.Release = s.limiter.finish(m)
}

// maxSelfTest is the largest limit that the self-test exceeds. For a larger limit, the message
// would exceed the maximum size of messages.
const maxSelfTest = 8 << 20

// selfTest returns a result that is too large. The other limits cannot be tested with one message.
func selfTest(raw []byte) *sdk.SelfTest {
	c, err := parse(raw)
	if err != nil || !c.Result.isOn() || c.Result.Bytes > maxSelfTest {
		return nil
	}
	text := make([]byte, c.Result.Bytes+1)
	for i := range text {
		text[i] = 'x'
	}
	content := append([]byte(`{"content":[{"type":"text","text":`), mcp.Quote(string(text))...)
	m := mcp.NewResponse("1", append(content, "}]}"...))
	m.Direction, m.Method, m.Server, m.Name = mcp.ToClient, "tools/call", "canary", "canary"
	m.Session, m.Exchange = "canary", "1"
	action := pipeline.Modify
	if c.Result.Action == actionDeny {
		action = pipeline.Deny
	}
	return &sdk.SelfTest{Description: "a tool's result that is a byte too long", Message: m,
		Action: action}
}
