package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"gatekit/core/pipeline"
	"gatekit/policies"
)

func (p *program) policyDiff() *cobra.Command {
	var config, log, since string
	var maxNewDenials int
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show which recorded messages a change of the policies would decide differently",
		Long: `Diff evaluates the recorded messages with the policies OLD and with the policies NEW,
in order, as replay does. It prints each group of messages whose verdict differs, by rule, tool and
principal, with the numbers of the first records:

  4120 messages: 4107 with the same verdict, 8 with another verdict, 5 that diff cannot tell
  pass -> deny: 8 messages
    tools/readonly: tools/call files write_file, principal jwt|https://login.example#ann
        6 messages, records 41, 77, 102, 118, 131, …
        the tool does not declare itself read-only
  cannot tell: 5 messages
        5: the body is not in the log, and rules read params

OLD and NEW are each one of:
  gatekit.toml    a configuration: its rules, settings, files, data and bundles
  policies        a folder of .rego files, a .rego file, or a bundle (.tar.gz)
  git:REV         the configuration of --config as it was in this revision, with its files
  git:REV:PATH    a configuration, a folder, a file or a bundle in this revision

A folder, a file or a bundle is compared alone. The library rules, settings and data of a
configuration are compared only with that configuration.

Diff starts nothing and changes nothing. --log is an audit log, or "-" for stdin. The default is the
log that the configuration names. --since counts only newer records; the earlier ones are still
evaluated, because rules read what the sessions did before.

Diff cannot tell the verdict on a message if rules read its body and the log does not have it, or
if they read what the log has of no principal, or what earlier messages of the session said whose
bodies are not in the log. These messages count as neither changed nor the same.

With --max-new-denials N, diff exits with 1 when NEW denies more than N messages that OLD did not
deny. Messages that diff cannot tell do not count: add --max-cannot-tell N to bound them, too.`,
		Example: `  gatekit policy diff git:HEAD gatekit.toml
  gatekit policy diff git:main:policies policies --since 30d --max-new-denials 0
  gatekit policy diff old.tar.gz new.tar.gz --log audit/gatekit.jsonl --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("diff takes two policies: OLD and NEW\nhint: gatekit policy " +
					"diff git:HEAD gatekit.toml compares the last commit with the files")
			}
			return nil
		},
	}
	maxCannotTell := -1
	c.RunE = func(cmd *cobra.Command, args []string) error {
		from, err := parseTime("since", since, time.Now())
		if err != nil {
			return err
		}
		file := log
		if file == "" {
			cfg, err := loadConfig(config)
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			file = cfg.Audit.File
		}
		d := policyDiff{since: from, log: file}
		for i, arg := range args {
			if d.sides[i], err = p.loadSide(cmd.Context(), arg, config); err != nil {
				return err
			}
		}
		if err := d.run(cmd.Context()); err != nil {
			return err
		}
		report := d.report(args[0], args[1])
		if asJSON {
			err = printJSON(cmd.OutOrStdout(), report)
		} else {
			report.print(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		for _, bound := range []struct {
			n, most int
			what    string
		}{
			{report.NewDenials, maxNewDenials, "NEW denies %s that OLD does not deny, more than " +
				"--max-new-denials %d"},
			{report.CannotTell, maxCannotTell, "diff cannot tell the verdict on %s, more than " +
				"--max-cannot-tell %d"},
		} {
			if bound.most >= 0 && bound.n > bound.most {
				fmt.Fprintf(cmd.ErrOrStderr(), "gatekit: "+bound.what+"\n",
					plural(bound.n, "message"), bound.most)
				err = errReported
			}
		}
		return err
	}
	configFlag(c, &config)
	flags := c.Flags()
	flags.StringVar(&log, "log", "",
		"audit log `file` (default: the log that the configuration names)")
	flags.StringVar(&since, "since", "",
		"count records from this `time` on, or not older than this age: 30d")
	flags.IntVar(&maxNewDenials, "max-new-denials", -1,
		"exit with 1 when NEW denies more than `N` messages that OLD does not deny")
	flags.IntVar(&maxCannotTell, "max-cannot-tell", -1,
		"exit with 1 when diff cannot tell the verdict on more than `N` messages")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// policyDiff evaluates recorded messages with two policies.
type policyDiff struct {
	sides [2]*policies.Stage // OLD and NEW
	since time.Time          // only messages from then on are counted
	log   string

	compared, same, differ, cannotTell, notEvaluated int

	changes    map[string]int // the numbers of messages by "FROM -> TO"
	newDenials int
	groups     map[diffKey]*diffGroup
	whyNot     map[string]int // why diff cannot tell, with the numbers of messages

	// The sessions of which the log does not have all bodies that rules may depend on.
	incomplete    map[string]bool
	allIncomplete bool // there are more than maxIncomplete of them
}

// Bounds of a diff.
const (
	maxDiffGroups    = 10_000
	maxDiffExamples  = 5
	maxIncomplete    = 100_000
	diffBatchCases   = 512
	diffBatchBytes   = 4 << 20
	diffBatchesAhead = 2
	diffGCPercent    = 300
)

// diffKey identifies the messages that are counted together.
type diffKey struct{ from, to, rule, method, server, name, principal string }

// diffGroup is a group of messages with the same change of their verdict.
type diffGroup struct {
	Rule      string   `json:"rule"` // "(failed)" when the evaluation failed
	Method    string   `json:"method"`
	Server    string   `json:"server,omitempty"`
	Name      string   `json:"name,omitempty"` // the tool, the prompt or the URI
	Principal string   `json:"principal"`
	From      string   `json:"from"`
	To        string   `json:"to"`
	Reason    string   `json:"reason"` // of the first message
	Count     int      `json:"count"`
	Records   []uint64 `json:"records"` // the first of them
	Places    []string `json:"places"`  // the same, with file and line
}

// diffCase is a case with its place in the log.
type diffCase struct {
	place string
	*policies.Case
}

// sideVerdict is the verdict of one side on one case.
type sideVerdict struct {
	outcome        pipeline.Outcome
	missing, state []string // members of the input
	principal      []string // members of input.principal
	err            error
}

// run evaluates all messages of the log. One goroutine parses, and one for each side evaluates: the
// messages of a session must be evaluated in order.
func (d *policyDiff) run(ctx context.Context) error {
	d.changes, d.groups, d.whyNot = map[string]int{}, map[diffKey]*diffGroup{}, map[string]int{}
	d.incomplete = map[string]bool{}
	defer debug.SetGCPercent(debug.SetGCPercent(diffGCPercent)) // parsing makes much garbage
	g, ctx := errgroup.WithContext(ctx)
	batches := make(chan []diffCase, diffBatchesAhead)
	g.Go(func() error {
		defer close(batches)
		return readBatches(ctx, d.log, batches, &d.notEvaluated)
	})
	g.Go(func() error {
		for batch := range batches {
			if err := d.evaluate(ctx, batch); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	return g.Wait()
}

// readBatches sends the cases of a log that the policies saw, in batches of bounded size. It counts
// the others.
func readBatches(ctx context.Context, log string, to chan<- []diffCase, notEvaluated *int) error {
	var batch []diffCase
	size := 0
	send := func() error {
		select {
		case to <- batch:
			batch, size = nil, 0
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := eachCase(log, func(place string, c *policies.Case) error {
		if c.IsEvent {
			return nil
		}
		if !c.WasEvaluated() {
			*notEvaluated++
			return nil
		}
		batch, size = append(batch, diffCase{place, c}), size+len(c.Message.Body())
		if len(batch) < diffBatchCases && size < diffBatchBytes {
			return nil
		}
		return send()
	})
	if err == nil && len(batch) > 0 {
		err = send()
	}
	return err
}

// evaluate evaluates a batch with both sides, and counts the results.
func (d *policyDiff) evaluate(ctx context.Context, batch []diffCase) error {
	var verdicts [2][]sideVerdict
	var g errgroup.Group
	for side, stage := range d.sides {
		verdicts[side] = make([]sideVerdict, len(batch))
		g.Go(func() error {
			for i, c := range batch {
				own := *c.Case // the pipeline may write to the message
				message := *c.Message
				own.Message = &message
				v := sideVerdict{outcome: stage.Evaluate(ctx, &own)}
				v.missing, v.err = stage.MissingMembers(&own)
				if v.err == nil {
					v.state, v.err = stage.StateMembers(&own)
				}
				if v.err == nil {
					v.principal, v.err = stage.UnrecordedPrincipal(&own)
				}
				if v.err = cmp.Or(v.err, ctx.Err()); v.err != nil {
					return fmt.Errorf("%s: %w", c.place, v.err)
				}
				verdicts[side][i] = v
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, c := range batch {
		d.count(c, verdicts[0][i], verdicts[1][i])
	}
	return nil
}

// count counts the verdicts of both sides on a case.
func (d *policyDiff) count(c diffCase, old, now sideVerdict) {
	session := c.Message.Principal.ID() + "\x00" + c.Message.Session
	why := d.cannotTellWhy(session, old, now)
	if c.LosesState() || len(old.missing)+len(now.missing) > 0 {
		if d.incomplete[session] = true; len(d.incomplete) > maxIncomplete {
			d.allIncomplete, d.incomplete = true, map[string]bool{}
		}
	}
	if c.Time.Before(d.since) {
		return
	}
	d.compared++
	from, to := old.outcome.Action, now.outcome.Action
	switch {
	case why != "":
		d.cannotTell++
		d.whyNot[why]++
		return
	case from == to:
		d.same++
		return
	}
	d.differ++
	d.changes[from+" -> "+to]++
	if to == "deny" {
		d.newDenials++
	}
	decisive := now.outcome
	if to == "pass" {
		decisive = old.outcome
	}
	m := c.Message
	key := diffKey{from, to, ruleOf(decisive), m.Method, m.Server, m.Name, m.Principal.ID()}
	group := d.groups[key]
	if group == nil && len(d.groups) >= maxDiffGroups {
		key = diffKey{from: from, to: to, rule: key.rule, name: "(others)"}
		group = d.groups[key]
	}
	if group == nil {
		group = &diffGroup{Rule: key.rule, Method: key.method, Server: key.server, Name: key.name,
			Principal: key.principal, From: from, To: to, Reason: decisive.Reason}
		if decisive.Err != nil {
			group.Reason = decisive.Err.Error()
		}
		group.Reason = strings.TrimPrefix(group.Reason, key.rule+": ")
		d.groups[key] = group
	}
	group.Count++
	if group.Count <= maxDiffExamples {
		group.Places = append(group.Places, c.place)
		if c.Seq > 0 {
			group.Records = append(group.Records, c.Seq)
		}
	}
}

// cannotTellWhy returns why the verdicts of both sides on a message of a session say nothing about
// the message, or "".
func (d *policyDiff) cannotTellWhy(session string, old, now sideVerdict) string {
	join := func(a, b []string) string {
		all := slices.Concat(a, b)
		slices.Sort(all)
		return strings.Join(slices.Compact(all), ", ")
	}
	if names := join(old.missing, now.missing); names != "" {
		return "the body is not in the log, and rules read " + names
	}
	if names := join(old.principal, now.principal); names != "" {
		return "the log has no " + names + " of principals, and rules read them"
	}
	if names := join(old.state, now.state); names != "" &&
		(d.allIncomplete || d.incomplete[session]) {
		return "bodies of earlier messages of the session are not in the log, and rules read " +
			names
	}
	return ""
}

// ruleOf returns the first rule that caused an outcome of the policies.
func ruleOf(o pipeline.Outcome) string {
	if o.Err != nil {
		return "(failed)"
	}
	rule, _, ok := strings.Cut(strings.TrimPrefix(o.Reason, "needs approval: "), ":")
	if !ok { // the reason of a change may have only the names of rules
		rule, _, _ = strings.Cut(rule, ";")
	}
	if rule == "" || strings.Contains(rule, " ") {
		return "(policy)"
	}
	return rule
}

// diffReport is the result of a diff, as --json prints it.
type diffReport struct {
	Old          string         `json:"old"`
	New          string         `json:"new"`
	Messages     int            `json:"messages"` // evaluated by both sides, since --since
	Same         int            `json:"same"`
	Changed      int            `json:"changed"`
	NewDenials   int            `json:"new_denials"`
	CannotTell   int            `json:"cannot_tell"`
	Why          []whyNot       `json:"cannot_tell_why"`
	NotEvaluated int            `json:"not_evaluated"` // no policy saw them, in the whole log
	Changes      map[string]int `json:"changes"`       // by "pass -> deny" and so on
	Groups       []*diffGroup   `json:"groups"`
}

// whyNot is a reason why diff cannot tell, with the number of messages.
type whyNot struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
}

func (d *policyDiff) report(old, now string) *diffReport {
	r := &diffReport{Old: old, New: now, Messages: d.compared, Same: d.same, Changed: d.differ,
		NewDenials: d.newDenials, CannotTell: d.cannotTell, NotEvaluated: d.notEvaluated,
		Changes: d.changes, Why: []whyNot{}, Groups: []*diffGroup{}}
	for why, n := range d.whyNot {
		r.Why = append(r.Why, whyNot{why, n})
	}
	slices.SortFunc(r.Why, func(a, b whyNot) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Why, b.Why))
	})
	r.Groups = slices.AppendSeq(r.Groups, maps.Values(d.groups))
	slices.SortFunc(r.Groups, func(a, b *diffGroup) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), b.Count-a.Count,
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Server, b.Server),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Method, b.Method),
			cmp.Compare(a.Principal, b.Principal))
	})
	return r
}

func (r *diffReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %d with the same verdict, %d with another verdict, %d that diff cannot "+
		"tell\n", plural(r.Messages, "message"), r.Same, r.Changed, r.CannotTell)
	change := ""
	for _, g := range r.Groups {
		if c := g.From + " -> " + g.To; c != change {
			change = c
			fmt.Fprintf(w, "%s: %s\n", c, plural(r.Changes[c], "message"))
		}
		words := slices.DeleteFunc([]string{g.Method, g.Server, g.Name},
			func(s string) bool { return s == "" })
		fmt.Fprintf(w, "  %s: %s, principal %s\n", oneLine(g.Rule),
			oneLine(strings.Join(words, " ")), oneLine(cmp.Or(g.Principal, "(local)")))
		examples := "records "
		list := make([]string, 0, len(g.Places))
		for _, seq := range g.Records {
			list = append(list, fmt.Sprint(seq))
		}
		if len(g.Records) < len(g.Places) {
			examples, list = "", g.Places
		}
		if g.Count > len(g.Places) {
			list = append(list, "…")
		}
		fmt.Fprintf(w, "      %s, %s%s\n", plural(g.Count, "message"), examples,
			strings.Join(list, ", "))
		if g.Reason != "" {
			fmt.Fprintf(w, "      %s\n", oneLine(displayText(g.Reason)))
		}
	}
	if r.CannotTell > 0 {
		fmt.Fprintf(w, "cannot tell: %s\n", plural(r.CannotTell, "message"))
		for _, why := range r.Why {
			fmt.Fprintf(w, "      %d: %s\n", why.Count, why.Why)
		}
	}
}
