package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/policies"
	"gatekit/transport/console"
)

// Bounds of what the console reads for one record.
const (
	recordBefore = 5_000 // records before it, for its call and for the state of the policies
	recordAfter  = 5_000 // records after it, for the end of its call
)

// consoleRecordDetails implements console.Records.
type consoleRecordDetails struct {
	file      string        // of the audit log
	committed func() uint64 // seq of the last record that may be read
	// policies returns the policies that explain records
	policies  func(context.Context) (*policies.Stage, error)
	explainer chan struct{} // holds a value while Explain runs
}

func newConsoleRecords(g *gateway, file string) *consoleRecordDetails {
	return &consoleRecordDetails{file: file, committed: g.committed,
		policies:  func(context.Context) (*policies.Stage, error) { return g.todaysPolicies() },
		explainer: make(chan struct{}, 1)}
}

// Call implements console.Records.
func (r *consoleRecordDetails) Call(ctx context.Context, seq uint64) (*query.Call, error) {
	last := r.committed()
	if seq > last {
		return nil, fmt.Errorf("the log has no record %d: the last one is %d", seq, last)
	}
	var record audit.Record
	for found, err := range (&audit.Reader{File: r.file, From: seq, Through: seq,
		Seek: true}).All(ctx) {
		if err != nil {
			return nil, err
		}
		record = found
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if record.Seq != seq {
		return nil, fmt.Errorf("the log no longer has record %d: [audit] keep_files, keep_bytes "+
			"or keep_for has removed it", seq)
	}
	// A notification that passed is part of a call, or is a call of its own for this filter.
	for _, filter := range []*query.Filter{{}, {Kind: query.Patterns{"notification"}}} {
		reader := &audit.Reader{File: r.file, From: seq - min(seq, recordBefore),
			Through: min(seq+recordAfter, last), Seek: true}
		for c, err := range query.Calls(ctx, reader, filter, query.Options{KeepRecords: true}) {
			if err != nil {
				return nil, err
			}
			for i := range c.Records {
				if c.Records[i].Seq == seq {
					return c, nil
				}
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &query.Call{Start: record.Time, FirstSeq: seq, Session: record.Session,
		Exchange: record.Exchange, Principal: record.Principal, Kind: record.Kind,
		Method: record.Method, Name: record.Name, Servers: []string{record.Server},
		Action: record.Action, Reason: record.Reason, Error: record.Error,
		Status: query.StatusDone, Records: []audit.Record{record}}, nil
}

// Explain implements console.Records. It runs once at a time, because it compiles the policies and
// evaluates up to recordBefore messages.
func (r *consoleRecordDetails) Explain(ctx context.Context,
	c *query.Call) (all []console.Explanation, err error) {
	select {
	case r.explainer <- struct{}{}:
		defer func() { <-r.explainer }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	stage, err := r.policies(ctx)
	if err != nil {
		return nil, err
	}
	asked := map[uint64]bool{}
	first, last := c.FirstSeq, c.FirstSeq
	for i := range c.Records {
		asked[c.Records[i].Seq] = true
		last = max(last, c.Records[i].Seq)
	}
	var requests policies.RequestMatcher
	for line, err := range (&audit.Reader{File: r.file, From: first - min(first, recordBefore),
		Through: last, Seek: true}).Lines(ctx) {
		if err != nil {
			return nil, err
		}
		message, err := policies.ParseCase(line)
		if err != nil {
			return nil, err
		}
		requests.Add(message)
		if message.IsEvent || !message.WasEvaluated() {
			continue
		}
		if asked[message.Seq] {
			e, err := explainCase(ctx, stage, message)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
		stage.Evaluate(ctx, message)
	}
	return all, ctx.Err()
}

// explainCase explains what policies decide about a recorded message.
func explainCase(ctx context.Context, stage *policies.Stage,
	message *policies.Case) (console.Explanation, error) {
	e, err := stage.Explain(ctx, message)
	if err != nil {
		return console.Explanation{}, err
	}
	missing, err := stage.MissingMembers(message)
	if err != nil {
		return console.Explanation{}, err
	}
	var text strings.Builder
	printExplanation(&text, e, false)
	explained := console.Explanation{Seq: message.Seq, Recorded: message.RecordedAction,
		Now: e.Outcome.Action}
	if len(missing) > 0 {
		explained.Now = ""
		fmt.Fprintf(&text, "\nThis verdict says nothing about the recorded message: the record "+
			"has no body, and rules read %s.\n", strings.Join(missing, ", "))
	}
	if isChange(message.RecordedAction) && !message.BodyMissing {
		text.WriteString("The record has the message as it was forwarded, after this change. So " +
			"the verdict above may be pass.\n")
	}
	explained.Text = printable(text.String())
	return explained, nil
}

// todaysPolicies returns the policies of the active configuration, enforced and without the state
// of sessions.
func (g *gateway) todaysPolicies() (*policies.Stage, error) {
	o, err := g.activePolicies()
	if err != nil {
		return nil, err
	}
	o.Shadow = false
	return policies.Load(o)
}

// configuredPolicies returns the policies of the configuration at path, enforced and without the
// state of sessions.
func (p *program) configuredPolicies(ctx context.Context, path string) (*policies.Stage, error) {
	_, o, err := p.loadPolicyOptions(ctx, path)
	if err != nil {
		return nil, err
	}
	o.Shadow = false
	return policies.Load(o)
}

// activePolicies returns the options of the policies of the active configuration.
func (g *gateway) activePolicies() (policies.Options, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.active
	if a.config.Policy == nil {
		return policies.Options{}, errors.New("there are no policies: the configuration has no " +
			"[policy]")
	}
	o := policyOptions(a.config)
	o.Bundles = a.policies.source.bundles
	if a.policies.changed != nil {
		o.Bundles = a.policies.changed
	}
	return o, nil
}

// Prove implements console.Records.
func (r *consoleRecordDetails) Prove(_ context.Context, seq uint64) (string, int64, error) {
	key, err := audit.ReadPublicKey(audit.PublicKeyFile(r.file))
	if err != nil {
		return "", 0, err
	}
	proof, err := audit.Prove(r.file, seq, key)
	if err != nil {
		return "", 0, err
	}
	c, err := proof.Verify(key)
	if err != nil {
		return "", 0, err
	}
	return string(proof.Text()), c.Size, nil
}
