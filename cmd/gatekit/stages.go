package main

import (
	"context"
	"slices"

	"gatekit/core/config"
	"gatekit/core/pipeline"
	"gatekit/plugins"
	"gatekit/policies"
)

// pluginSet is the component of the plugins of one configuration. The host starts the processes
// that do not run yet, and keeps those that another set also uses.
type pluginSet struct {
	gateway *gateway
	config  *config.Config

	// Set by start.
	set    *plugins.Set
	stages []pipeline.StageConfig
}

func (p *pluginSet) start(ctx context.Context) (err error) {
	p.set, p.stages, err = loadPlugins(ctx, p.gateway.host, p.config)
	return err
}

func (p *pluginSet) stop() error {
	p.set.Close()
	return nil
}

// policySet is the component of the policies of one configuration.
type policySet struct {
	gateway *gateway
	config  *config.Config
	source  *bundleSource
	changed []*policies.Bundle // used instead of source.bundles, if not nil

	stage  *policies.Stage // set by start; nil when the configuration has no policies
	logged pipeline.Stage  // set by start: stage, wrapped to send its decisions to the decision log
}

func (p *policySet) start(context.Context) (err error) {
	bundles := p.source.bundles
	if p.changed != nil {
		bundles = p.changed
	}
	if p.stage, err = loadPolicies(p.config, bundles, &p.gateway.memory); err != nil {
		return err
	}
	p.logged = p.source.client.WithDecisionLog(p.stage)
	return nil
}

func (p *policySet) stop() error { return nil }

// newPipeline returns the pipeline of a configuration. The policies come after the plugins, so they
// decide about the message as the plugins changed it.
func (g *gateway) newPipeline(a *activeConfig) *pipeline.Pipeline {
	stages := slices.Concat(g.firstStages, a.plugins.stages)
	if a.policies.stage != nil {
		stages = append(stages, pipeline.StageConfig{Name: policyStage, Stage: a.policies.logged,
			Timeout: policyTimeout})
	}
	return pipeline.New(g.recording.recorder,
		pipeline.Options{IncludeReasons: a.config.Deny.Reasons,
			DenyToolCallsAsResult: a.config.Deny.ToolCalls == "result", RecordableNames: &g.names,
			Workers: g.workers}, stages...)
}

// logPolicies logs which policies are active, and warns when they are not enforced.
func (g *gateway) logPolicies(a *activeConfig) {
	if a.policies.stage == nil {
		return
	}
	policy := a.config.Policy
	files := make([]string, len(policy.Files))
	for i, f := range policy.Files {
		files[i] = displayPath(f)
	}
	g.log.Info("policies active", "rules", policy.Rules, "files", files, "mode", policy.Mode,
		"digest", a.policies.stage.Digest())
	if policy.Mode == "shadow" {
		g.log.Warn("policies not enforced: policy.mode is \"shadow\"; the audit log has what " +
			"they would do")
	}
}
