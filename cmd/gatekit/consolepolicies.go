package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"gatekit/audit"
	"gatekit/core/regularfile"
	"gatekit/policies"
	"gatekit/policies/library"
	"gatekit/transport/console"
)

// Bounds of the page with the policies.
const (
	replayRecords     = 20_000 // of one replay
	replayBudget      = 10 * time.Second
	replayDifferences = 200
	maxPolicySource   = 256 << 10 // bytes
	maxPolicyHits     = 50        // rules in files and bundles
)

// consolePolicies implements console.Policies.
type consolePolicies struct {
	gateway  *gateway
	activity *activityReader
	slot     chan struct{} // held while policies are compiled and evaluated: one viewer at a time
}

func newConsolePolicies(g *gateway, a *activityReader) *consolePolicies {
	return &consolePolicies{gateway: g, activity: a, slot: make(chan struct{}, 1)}
}

// Policies implements console.Policies.
func (p *consolePolicies) Policies(ctx context.Context) (*console.PolicyList, error) {
	p.gateway.mu.Lock()
	a := p.gateway.active
	p.gateway.mu.Unlock()
	c, stage := a.config, a.policies.stage
	if c.Policy == nil || stage == nil {
		return &console.PolicyList{}, nil
	}
	counted, err := p.activity.read(ctx)
	if err != nil {
		return nil, err
	}
	type hits struct{ denied, would int }
	byRule := map[string]hits{}
	for _, d := range counted.stats.Denials() {
		if d.Stage == policyStage && d.Rule != "" {
			h := byRule[d.Rule]
			h.denied += d.Count
			byRule[d.Rule] = h
		}
	}
	for _, u := range counted.stats.Unenforced() {
		if u.Stage == policyStage && u.Rule != "" {
			h := byRule[u.Rule]
			h.would += u.Count
			byRule[u.Rule] = h
		}
	}
	list := &console.PolicyList{Enabled: true, Shadow: c.Policy.Mode == "shadow",
		Digest: stage.Digest(), Counted: periodOf(counted)}
	for _, name := range slices.Sorted(slices.Values(c.Policy.Rules)) {
		rule := console.PolicyRule{Name: name, Title: library.Title(name),
			Hits: byRule[name].denied, Would: byRule[name].would}
		delete(byRule, name)
		if settings := c.Policy.Config[name]; len(settings) > 0 {
			if text, err := json.Marshal(settings); err == nil {
				rule.Settings = p.gateway.masked.mask(string(text))
			}
		}
		list.Rules = append(list.Rules, rule)
	}
	for _, one := range stage.Contributions() {
		var effects []string
		for _, e := range one.Effects {
			effects = append(effects, fmt.Sprintf("%d %s", e.Rules, e.Effect))
		}
		list.Files = append(list.Files, console.PolicyFile{Name: displayPath(one.File),
			Effects: strings.Join(effects, ", ")})
	}
	for _, b := range stage.Bundles() {
		list.Bundles = append(list.Bundles, fmt.Sprintf("%q revision %q", b.Name, b.Revision))
	}
	for rule, h := range byRule {
		list.Hits = append(list.Hits, console.PolicyHit{Rule: rule, Hits: h.denied,
			Would: h.would})
	}
	slices.SortFunc(list.Hits, func(a, b console.PolicyHit) int {
		return cmp.Or(cmp.Compare(b.Hits+b.Would, a.Hits+a.Would), cmp.Compare(a.Rule, b.Rule))
	})
	list.Hits = list.Hits[:min(len(list.Hits), maxPolicyHits)]
	return list, nil
}

// Source implements console.Policies. It reads only files that the policies in force have.
func (p *consolePolicies) Source(_ context.Context, name string) (string, error) {
	p.gateway.mu.Lock()
	a := p.gateway.active
	p.gateway.mu.Unlock()
	if slices.Contains(a.config.Policy.Rules, name) {
		b, err := fs.ReadFile(library.FS, path.Join(name, "rule.rego"))
		return string(b), err
	}
	for _, file := range a.policies.stage.Files() {
		if displayPath(file) != name {
			continue
		}
		b, err := regularfile.Read(file, maxPolicySource)
		if errors.Is(err, fs.ErrNotExist) {
			return "", errors.New("this file is in a bundle, or was removed since the policies " +
				"were loaded")
		}
		return string(b), err
	}
	return "", errors.New("no rule or file in force has this name")
}

// load returns the policies in force, enforced and without the state of sessions. The caller must
// call done when err is nil.
func (p *consolePolicies) load(ctx context.Context) (stage *policies.Stage, done func(),
	err error) {
	select {
	case p.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	done = func() { <-p.slot }
	if stage, err = p.gateway.todaysPolicies(); err != nil {
		done()
	}
	return stage, done, err
}

// Explain implements console.Policies.
func (p *consolePolicies) Explain(ctx context.Context, message string) (string, error) {
	c, err := policies.ParseCase([]byte(message))
	if err != nil {
		return "", fmt.Errorf("%w\nhint: gatekit help policy explain shows an example of a "+
			"message", err)
	}
	if c.IsEvent {
		return "", fmt.Errorf("the record describes the event %q, not a message", c.Action)
	}
	stage, done, err := p.load(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	e, err := stage.Explain(ctx, c)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	printExplanation(&text, e, true)
	return printable(text.String()), nil
}

// keptDifferences keeps the first differences that a replay prints, and counts the others.
type keptDifferences struct {
	first   []console.Difference
	more    int
	current uint64 // the record of the text
	begun   uint64 // the record of the last text
}

// Write implements io.Writer. The text of one difference may come in parts, and begins with the
// place of the record.
func (d *keptDifferences) Write(b []byte) (int, error) {
	text := strings.TrimRight(string(b), "\n")
	isNew := d.begun != d.current
	d.begun = d.current
	switch {
	case !isNew && d.more == 0:
		d.first[len(d.first)-1].Text += text
	case isNew && len(d.first) < replayDifferences:
		_, text, _ = strings.Cut(text, ": ")
		d.first = append(d.first, console.Difference{Seq: d.current, Text: text})
	case isNew:
		d.more++
	}
	return len(b), nil
}

// Replay implements console.Policies.
func (p *consolePolicies) Replay(ctx context.Context, from,
	through uint64) (*console.ReplayResult, error) {
	last := p.gateway.committed()
	from = max(from, 1)
	if through == 0 || through > last {
		through = last
	}
	if from > through {
		return nil, fmt.Errorf("there are no records from %d through %d: the last one is %d", from,
			through, last)
	}
	result := &console.ReplayResult{From: from, Through: through}
	if through-from >= replayRecords {
		result.Through, result.Cut = from+replayRecords-1, true
	}
	stage, done, err := p.load(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	limited, cancel := context.WithTimeout(ctx, replayBudget)
	defer cancel()
	var found keptDifferences
	r := replay{w: &found, file: p.activity.file}
	var requests policies.RequestMatcher
	log := &audit.Reader{File: p.activity.file, From: from, Through: result.Through, Seek: true}
	seq := from - 1
	for line, err := range log.Lines(limited) {
		if limited.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		c, err := policies.ParseCase(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", log.Position(), err)
		}
		requests.Add(c)
		found.current = c.Seq
		if err := r.add(limited, stage, fmt.Sprintf("record %d", c.Seq), c); err != nil {
			return nil, err
		}
		if limited.Err() != nil {
			break // the verdict on this record may come from the end of the time
		}
		seq = c.Seq
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if limited.Err() != nil {
		if seq < from {
			return nil, context.DeadlineExceeded
		}
		result.Through, result.Cut = seq, true
	}
	result.Differences, result.More = found.first, found.more
	var summary strings.Builder
	r.w = &summary
	r.printSummary(false)
	result.Summary = strings.TrimSpace(summary.String())
	return result, nil
}
