package main

import (
	"fmt"
	"time"

	"gatekit/core/canary"
	"gatekit/core/config"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// canaryTimeout limits the search of one message.
const canaryTimeout = 10 * time.Second

// withCanaries returns the stages with the stage that finds planted values before them, and the
// recorder with one that keeps these values out of records. It changes nothing if no canaries are
// configured. The stage comes first, so it sees what the peers sent.
func (g *gateway) withCanaries(c *config.Config, stages []pipeline.StageConfig,
	recorder pipeline.Recorder) ([]pipeline.StageConfig, pipeline.Recorder) {
	if len(c.Canaries) == 0 {
		return stages, recorder
	}
	canaries := make([]canary.Canary, len(c.Canaries))
	for i, configured := range c.Canaries {
		canaries[i] = canary.Canary{Name: configured.Name, Record: configured.Action == "record"}
		for _, v := range configured.Values {
			canaries[i].Values = append(canaries[i].Values, string(v))
		}
	}
	stage := canary.NewStage(canaries, g.reportCanary)
	first := pipeline.StageConfig{Name: canary.StageName, Stage: stage, Timeout: canaryTimeout,
		ReturnsOnCancel: true}
	return append([]pipeline.StageConfig{first}, stages...), stage.Recorder(recorder)
}

// reportCanary logs that a message has a planted value. The record of the message has the same.
func (g *gateway) reportCanary(m *mcp.Message, v pipeline.Verdict) {
	reason := v.Reason
	if v.Would != nil {
		reason = v.Would.Reason
	}
	method := m.Method
	if _, known := mcp.LookupMethod(method); !known {
		method = "" // a peer's text
	}
	g.log.Warn(reason, "place", v.Findings[0].Pointer, "direction", m.Direction.String(),
		"kind", m.Kind.String(), "method", method, "server", m.Server, "session", m.Session,
		"principal", m.Principal.ID(), "refused", v.Action == pipeline.Deny)
}

// describeCanaries returns how many canaries are configured, or "" if there are none.
func describeCanaries(c *config.Config) string {
	if len(c.Canaries) == 0 {
		return ""
	}
	recorded := 0
	for _, configured := range c.Canaries {
		if configured.Action == "record" {
			recorded++
		}
	}
	return fmt.Sprintf("canaries: %d that deny, %d that only record", len(c.Canaries)-recorded,
		recorded)
}
