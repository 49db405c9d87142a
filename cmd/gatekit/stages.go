package main

import (
	"context"
	"slices"
	"sync"

	"gatekit/core/config"
	"gatekit/core/pipeline"
	"gatekit/plugins"
	"gatekit/policies"
)

// pluginSet is the component for the plugins of one configuration. The host starts the plugin
// processes that do not run yet, and keeps the processes that another set also uses.
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

// policySet is the component for the policies of one configuration.
type policySet struct {
	gateway *gateway
	config  *config.Config
	source  *bundleSource
	changed []*policies.Bundle // used instead of source.bundles, if not nil

	// early waits for the goroutine of load and returns its result. It is nil if load was not
	// called or did nothing.
	early  func() (*policies.Stage, error)
	stage  *policies.Stage // set by start; nil when the configuration has no policies
	logged pipeline.Stage  // set by start: stage with the decision log
}

// load begins to compile the policies while other components start. It does nothing if the policies
// need bundles of a service or shared state, which are there later. The caller of load must call
// start or wait afterwards.
func (p *policySet) load() {
	if p.config.Policy == nil || len(p.config.Policy.Bundles) > 0 || p.config.Shared != nil {
		return
	}
	type result struct {
		stage *policies.Stage
		err   error
	}
	done := make(chan result, 1)
	go func() {
		stage, err := loadPolicies(p.config, nil, &p.gateway.memory, nil)
		done <- result{stage, err}
	}()
	p.early = sync.OnceValues(func() (*policies.Stage, error) {
		r := <-done
		return r.stage, r.err
	})
}

// wait waits until the goroutine of load has ended.
func (p *policySet) wait() {
	if p.early != nil {
		p.early()
	}
}

func (p *policySet) start(context.Context) (err error) {
	bundles := p.source.bundles
	if p.changed != nil {
		bundles = p.changed
	}
	if p.early != nil {
		p.stage, err = p.early()
	} else {
		p.stage, err = loadPolicies(p.config, bundles, &p.gateway.memory,
			p.gateway.sharedSessions(p.config))
	}
	if err != nil {
		return err
	}
	p.logged = p.source.client.WithDecisionLog(p.stage)
	return nil
}

func (p *policySet) stop() error { return nil }

// newPipeline returns the pipeline of a configuration. The canaries and the pins come first, so
// they see what the peers sent. The policies come after the plugins, so they see the message with
// the changes of the plugins.
func (g *gateway) newPipeline(a *activeConfig) *pipeline.Pipeline {
	stages := slices.Concat(g.firstStages, a.pins.stages(), a.plugins.stages)
	if a.policies.stage != nil {
		stages = append(stages, pipeline.StageConfig{Name: policyStage, Stage: a.policies.logged,
			Timeout: policyTimeout})
	}
	stages, recorder := g.withCanaries(a.config, stages, g.recording.recorder)
	receipts, revision := g.receipts(a)
	return pipeline.New(recorder,
		pipeline.Options{IncludeReasons: a.config.Deny.Reasons,
			Receipts: receipts, PolicyRevision: revision,
			DenyToolCallsAsResult: a.config.Deny.ToolCalls == "result", RecordableNames: &g.names,
			HiddenItems: &g.hidden, RedactedValues: &g.redacted,
			Allowances: g.allowances(a.config), Workers: g.workers,
			Stops: &g.stops.Gate},
		stages...)
}

// receipts returns the signer of receipts and the revision of the policies. Both are zero if the
// configuration asks for no receipts.
func (g *gateway) receipts(a *activeConfig) (pipeline.ReceiptSigner, string) {
	if !g.recording.receipts {
		return nil, ""
	}
	if a.policies.stage == nil {
		return g.recording.audit, ""
	}
	return g.recording.audit, a.policies.stage.Digest()
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
	if rules := unsharedRules(a.config, a.policies.stage); len(rules) > 0 {
		g.log.Warn(unsharedWarning, "rules", rules)
	}
	if policy.Mode == "shadow" {
		g.log.Warn("policies not enforced: policy.mode is \"shadow\"; the audit log has what " +
			"they would do")
	}
}

// unsharedWarning tells what unsharedRules are about.
const unsharedWarning = "there is no [shared]: each replica knows only the labels and calls of " +
	"modern clients that it has served itself"

// unsharedRules returns the rules that see only a part of what modern clients do, because there are
// several replicas and no state that they share.
func unsharedRules(c *config.Config, stage *policies.Stage) (rules []string) {
	if c.Cluster == nil || c.Shared != nil {
		return nil
	}
	for _, member := range []string{"labels", "calls", "minute"} {
		rules = append(rules, stage.RulesThatRead("session", member)...)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}
