package pipeline_test

import (
	"context"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// TestKeysThatNoPeerMaySet sends messages whose _meta has keys that no peer may set. The pipeline
// must remove these keys before a stage sees the message, and the outcome must report the removal.
// A message without such keys must be forwarded unchanged.
func TestKeysThatNoPeerMaySet(t *testing.T) {
	const forged = `"_meta":{"tenant":"root","gatekit/denied":{},"x":1.0}`
	for _, direction := range []mcp.Direction{mcp.ToServer, mcp.ToClient} {
		for kind, text := range map[string]string{
			"request":      `{"jsonrpc":"2.0","id":1,"method":"m","params":{` + forged + `}}`,
			"notification": `{"jsonrpc":"2.0","method":"notifications/m","params":{` + forged + `}}`,
			"response":     `{"jsonrpc":"2.0","id":1,"result":{` + forged + `}}`,
		} {
			t.Run(kind, func(t *testing.T) {
				r, seen := &record{}, ""
				watch := pipeline.StageConfig{Name: "watch", Stage: stage(
					func(_ context.Context, m *mcp.Message) (pipeline.Verdict, error) {
						seen = string(m.Body())
						return pipeline.Verdict{Action: pipeline.Allow}, nil
					})}
				for _, stages := range [][]pipeline.StageConfig{nil, {watch}} {
					m := parse(t, direction, text)
					passed, err := pipeline.New(r, pipeline.Options{}, stages...).Pass(t.Context(),
						m)
					if err != nil {
						t.Fatal(err)
					}
					const want = `{"_meta":{"x":1.0}}`
					if got := string(passed.Message().Body()); got != want {
						t.Errorf("forwarded %s, want %s", got, want)
					}
					o := r.last(t)
					if o.Action != "modify" || !strings.Contains(o.Reason, "tenant, gatekit/…") ||
						o.Steps[0].Stage != "pipeline" || o.Before != m {
						t.Errorf("recorded the action %q and the reason %q, want modify and a "+
							"reason that names the removed keys", o.Action, o.Reason)
					}
					if stages != nil && seen != want {
						t.Errorf("the stage saw %s, want %s", seen, want)
					}
				}
				seen = ""
				if err := pipeline.New(r, pipeline.Options{}, watch).Consume(t.Context(),
					parse(t, direction, text), "drop", "late"); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(seen, "tenant") {
					t.Errorf("the stage saw %s in a dropped message, want no key tenant", seen)
				}
			})
		}
	}
	m := parse(t, mcp.ToServer, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":1}}}`)
	passed, err := pipeline.New(&record{}, pipeline.Options{}).Pass(t.Context(), m)
	if err != nil || passed.Message() != m {
		t.Errorf("got %v, %v for a message without such keys, want the same message",
			passed.Message(), err)
	}
}
