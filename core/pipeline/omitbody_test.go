package pipeline_test

import (
	"context"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

type verdictStage struct{ v pipeline.Verdict }

func (s verdictStage) Inspect(context.Context, *mcp.Message) (pipeline.Verdict, error) {
	return s.v, nil
}

type omitRecorder struct{ omitted bool }

func (r *omitRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.omitted = o.OmitBody
	return 1, nil
}

// A stage can keep the body of a message out of the record, whatever the later stages say.
func TestStageCanOmitTheBody(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, second := range []bool{false, true} {
			r := &omitRecorder{}
			allow := func(omit bool) pipeline.Stage {
				return verdictStage{pipeline.Verdict{Action: pipeline.Allow, OmitBody: omit}}
			}
			p := pipeline.New(r, pipeline.Options{},
				pipeline.StageConfig{Name: "one", Stage: allow(first)},
				pipeline.StageConfig{Name: "two", Stage: allow(second)})
			m := mcp.NewNotification("notifications/message", []byte(`{"data":"x"}`))
			m.Direction = mcp.ToClient
			if _, err := p.Pass(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if want := first || second; r.omitted != want {
				t.Errorf("stages that omit the body: %v and %v; omitted: %v, want %v", first,
					second, r.omitted, want)
			}
		}
	}
}
