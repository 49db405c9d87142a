package main

import (
	"fmt"
	"time"

	planted "gatekit/core/canary"
	"gatekit/core/config"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// canaryTimeout limits the search of one message.
const canaryTimeout = 10 * time.Second

// canaryStages returns the stage that finds planted values, or nothing if none are configured. It
// comes before all other stages, so it sees what the peers sent.
func (g *gateway) canaryStages(c *config.Config) []pipeline.StageConfig {
	if len(c.Canaries) == 0 {
		return nil
	}
	canaries := make([]planted.Canary, len(c.Canaries))
	for i, configured := range c.Canaries {
		canaries[i] = planted.Canary{Name: configured.Name, Record: configured.Action == "record"}
		for _, v := range configured.Values {
			canaries[i].Values = append(canaries[i].Values, string(v))
		}
	}
	return []pipeline.StageConfig{{Name: planted.StageName,
		Stage: planted.NewStage(canaries, g.reportCanary), Timeout: canaryTimeout,
		ReturnsOnCancel: true}}
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
