package sdktest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// promise is a stage that lets Gatekit keep its verdicts.
type promise struct {
	sdk.StageFunc
	reuse *sdk.Reuse
}

func (p promise) Reuse() *sdk.Reuse { return p.reuse }

func TestBrokenPromiseOfReuseFails(t *testing.T) {
	finding := func(kind string) sdk.Verdict {
		v := sdk.Allow()
		v.Findings = []pipeline.Finding{{Type: kind}}
		return v
	}
	for _, c := range []struct {
		name    string
		reuse   *sdk.Reuse
		change  func(*sdk.Plugin)
		inspect func(count int64, m *mcp.Message) sdk.Verdict
		want    string // "" if the promise holds
	}{
		{"by body and server", &sdk.Reuse{}, nil, func(_ int64, m *mcp.Message) sdk.Verdict {
			return finding(m.Server + m.Method)
		}, ""},
		{"by session", &sdk.Reuse{}, nil, func(_ int64, m *mcp.Message) sdk.Verdict {
			return finding(m.Session)
		}, "for another session"},
		{"by principal", &sdk.Reuse{}, nil, func(_ int64, m *mcp.Message) sdk.Verdict {
			return finding("for " + m.Principal.ID())
		}, "for another session"},
		{"by principal, if lists are compared", &sdk.Reuse{Principals: 9},
			func(p *sdk.Plugin) { p.Stateful = true }, func(_ int64, m *mcp.Message) sdk.Verdict {
				return finding("for " + m.Principal.ID())
			}, ""},
		{"by what came before", &sdk.Reuse{}, nil, func(n int64, _ *mcp.Message) sdk.Verdict {
			return finding(strings.Repeat("x", int(n)))
		}, "for another session"},
		{"no promise", nil, nil, func(n int64, _ *mcp.Message) sdk.Verdict {
			return finding(strings.Repeat("x", int(n)))
		}, ""},
		{"an effect of definitions", &sdk.Reuse{}, nil, nil, "after definitions"},
		{"lists of principals without a memory", &sdk.Reuse{Principals: 9}, nil,
			func(int64, *mcp.Message) sdk.Verdict { return sdk.Allow() }, "must be Stateful"},
		{"the request is needed", &sdk.Reuse{}, func(p *sdk.Plugin) { p.Needs.Request = true },
			func(int64, *mcp.Message) sdk.Verdict { return sdk.Allow() }, "needs the request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := validPlugin()
			p.Wants = pipeline.Wants{}
			p.New = func([]byte) (sdk.Stage, error) {
				var count, definitions atomic.Int64
				return promise{func(_ context.Context, m *mcp.Message) (sdk.Verdict, error) {
					if c.inspect != nil {
						return c.inspect(count.Add(1), m), nil
					}
					if mcp.HasDefinitions(m) {
						definitions.Store(1)
						return sdk.Allow(), nil
					}
					return finding(strings.Repeat("x", int(definitions.Load()))), nil
				}, c.reuse}, nil
			}
			if c.change != nil {
				c.change(&p)
			}
			s := suite{plugin: p, config: []byte(validConfig), samples: []*mcp.Message{sample()},
				inspectTimeout: time.Minute, cancelTimeout: time.Minute}
			errs := runCheck(t, s, "reuse")
			if c.want == "" && len(errs) > 0 || c.want != "" &&
				!strings.Contains(strings.Join(errs, "\n"), c.want) {
				t.Errorf("got the errors %q, want one with %q", errs, c.want)
			}
		})
	}
}
