package main

import (
	"context"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// harmlessAttack is a harmless message with the form of an attack, on which a rule of the library
// acts with all of its settings.
type harmlessAttack struct {
	rule, description string
	toClient          bool // a request or result of a server
	method, params    string
	// result is the result of the request method, if the attack is a result; otherwise "".
	result string
}

// harmlessAttackOn returns the attack on a library rule. What the other rules deny depends on the
// settings.
func harmlessAttackOn(rule string) (harmlessAttack, bool) {
	for _, a := range []harmlessAttack{
		{rule: "elicitation/gate", description: "a form that asks for a password", toClient: true,
			method: "elicitation/create",
			params: `{"mode":"form","message":"Enter your password to go on","requestedSchema":` +
				`{"type":"object","properties":{"password":{"type":"string"}}}}`},
		{rule: "roots/traversal", description: "a path that hides ../ in a tool's arguments",
			method: "tools/call",
			params: `{"name":"read_file","arguments":{"path":"..%2f..%2f..%2fetc/passwd"}}`},
		{rule: "sampling/gate", description: "a request for the context of other servers",
			toClient: true, method: "sampling/createMessage",
			params: `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}],` +
				`"includeContext":"allServers","maxTokens":10}`},
		{rule: "resources/uris", description: "a link to a cloud's metadata in a tool's result",
			toClient: true, method: "tools/call", params: `{"name":"search","arguments":{}}`,
			result: `{"content":[{"type":"resource_link","name":"notes",` +
				`"uri":"http://169.254.169.254/latest/meta-data/"}]}`},
	} {
		if a.rule == rule {
			return a, true
		}
	}
	return harmlessAttack{}, false
}

// send passes the attack through the stages and returns the step in which the policies name the
// rule, or in which another stage denies the attack before. The step is empty if there is none.
func (a harmlessAttack) send(ctx context.Context, server string,
	stages []pipeline.StageConfig) (pipeline.Step, error) {
	m := mcp.NewRequest("1", a.method, []byte(a.params))
	m.Direction, m.Session, m.Server = mcp.ToServer, "doctor", server
	if a.result != "" {
		request := m
		m = mcp.NewResponse(request.ID(), []byte(a.result))
		m.Method, m.Request, m.Session, m.Server = a.method, request, "doctor", server
	}
	if a.toClient {
		m.Direction = mcp.ToClient
	}
	got := &actingStep{rule: a.rule}
	pipeline.New(got, pipeline.Options{}, stages...).Pass(ctx, m)
	return got.step, got.err
}

// actingStep keeps the step in which the policies name a rule, instead of recording it. If another
// stage denies the message before, it keeps that step.
type actingStep struct {
	rule string
	step pipeline.Step
	err  error
}

// Record implements pipeline.Recorder.
func (a *actingStep) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	a.err = o.Err
	for _, s := range o.Steps {
		if s.Stage != policyStage && s.Action == "deny" ||
			s.Stage == policyStage && strings.Contains(s.Reason, a.rule+": ") {
			a.step = s
		}
	}
	return 1, nil
}
