package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/core/atomicfile"
	"gatekit/core/config"
	"gatekit/core/pipeline"
	"gatekit/policies"
	"gatekit/policies/learn"
)

// lockOptions are the flags of the commands about learned rules.
type lockOptions struct {
	config, dir string
	asJSON      bool
}

func (o *lockOptions) flags(c *cobra.Command) {
	configFlag(c, &o.config)
	c.Flags().StringVar(&o.dir, "dir", "policies/learned",
		"`folder` that gatekit policy learn wrote")
	c.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object for each rule")
}

// files returns the learned rules that match a pattern, and the configuration with the log.
func (o *lockOptions) files(cmd *cobra.Command,
	pattern string) (c *config.Config, files []learn.File, err error) {
	if c, err = loadConfig(o.config); err != nil {
		return nil, nil, reportMistakes(cmd, err, false)
	}
	all, err := learn.ReadFolder(o.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%w\nhint: gatekit policy learn writes the folder; --dir "+
			"names another one", err)
	}
	for _, f := range all {
		if (query.Patterns{pattern}).Match(f.Rule) {
			files = append(files, f)
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("%s has no learned rules\nhint: gatekit policy learn writes "+
			"them; --dir names another folder", displayPath(o.dir))
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%s has no learned rule %s\nhint: gatekit policy status lists "+
			"the rules", displayPath(o.dir), pattern)
	}
	return c, files, nil
}

// ruleStatus is a learned rule with what it did, as gatekit policy status --json prints it.
type ruleStatus struct {
	Rule         string     `json:"rule"`
	File         string     `json:"file"`
	Mode         string     `json:"mode"` // shadow or enforce
	WouldRefuse  int        `json:"would_refuse"`
	Refused      int        `json:"refused"`
	First        *time.Time `json:"first,omitempty"`   // of the records
	Last         *time.Time `json:"last,omitempty"`    //
	Records      []uint64   `json:"records,omitempty"` // the last of them
	LastDecision string     `json:"last_decision,omitempty"`
}

// maxStatusRecords bounds the records that the status of a rule lists.
const maxStatusRecords = 5

// statuses returns the status of each rule, from a log.
func statuses(ctx context.Context, log string, files []learn.File,
	since time.Time) ([]*ruleStatus, error) {
	byRule := map[string]*ruleStatus{}
	var all []*ruleStatus
	for _, f := range files {
		s := &ruleStatus{Rule: f.Rule, File: displayPath(f.Path), Mode: "enforce"}
		if f.Shadow {
			s.Mode = "shadow"
		}
		byRule[f.Rule], all = s, append(all, s)
	}
	reader := audit.Reader{File: log}
	for line, err := range reader.Lines(ctx) {
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil // nothing was recorded yet
		}
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(line, []byte("learned/")) {
			continue
		}
		r, err := audit.ParseRecord(bytes.Clone(line))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", reader.Position(), err)
		}
		if r.Time.Before(since) {
			continue
		}
		if r.IsEvent() {
			for _, rule := range learn.Rules(r.Reason) {
				if s := byRule[rule]; s != nil {
					s.LastDecision = fmt.Sprintf("%s %s", r.Action, r.Time.Format(time.RFC3339))
				}
			}
			continue
		}
		for _, step := range r.Steps {
			if step.Stage != policyStage {
				continue
			}
			for _, rule := range learn.Rules(step.Reason) {
				s := byRule[rule]
				switch {
				case s == nil:
					continue
				case step.Action == "would_deny":
					s.WouldRefuse++
				case step.Action == "deny":
					s.Refused++
				default:
					continue
				}
				if s.Last = &r.Time; s.First == nil {
					s.First = &r.Time
				}
				if s.Records = append(s.Records, r.Seq); len(s.Records) > maxStatusRecords {
					s.Records = s.Records[1:]
				}
			}
		}
	}
	return all, ctx.Err()
}

func (p *program) policyStatus() *cobra.Command {
	o := &lockOptions{}
	var since string
	c := &cobra.Command{
		Use:   "status [RULE]",
		Short: "List the learned rules, and what they refused or would have refused",
		Long: `Status lists the rules that gatekit policy learn wrote, with the requests that they
would have refused (in shadow mode) or refused, from the audit log. To look at the last records,
call gatekit audit show, or gatekit policy explain --record N.

In RULE, "*" stands for any text: 'learned/files/*'. Then decide about each rule:

  gatekit policy ratify RULE            enforces it
  gatekit policy reject RULE            removes it
  gatekit policy widen RULE --from N    makes it allow what record N has`,
		Example: `  gatekit policy status
  gatekit policy status 'learned/files/*' --since 7d --json`,
		Args: atMostOne("status"),
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		from, err := parseTime("since", since, time.Now())
		if err != nil {
			return err
		}
		pattern := "*"
		if len(args) == 1 {
			pattern = args[0]
		}
		cfg, files, err := o.files(cmd, pattern)
		if err != nil {
			return err
		}
		all, err := statuses(cmd.Context(), cfg.Audit.File, files, from)
		if err != nil {
			return err
		}
		if o.asJSON {
			for _, s := range all {
				if err := printJSON(cmd.OutOrStdout(), s); err != nil {
					return err
				}
			}
			return nil
		}
		return printStatuses(cmd.OutOrStdout(), all)
	}
	o.flags(c)
	c.Flags().StringVar(&since, "since", "", "count records from this `time` on, or from this age")
	return c
}

func printStatuses(w io.Writer, all []*ruleStatus) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tMODE\tWOULD REFUSE\tREFUSED\tLAST RECORDS")
	for _, s := range all {
		records := ""
		for _, r := range s.Records {
			records += fmt.Sprintf("%d ", r)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", oneLine(s.Rule), s.Mode, s.WouldRefuse, s.Refused,
			records)
	}
	return t.Flush()
}

func (p *program) policyRatify() *cobra.Command {
	o := &lockOptions{}
	c := &cobra.Command{
		Use:   "ratify RULE",
		Short: "Enforce a learned rule that was in shadow mode",
		Long: `Ratify removes the shadow mode from a learned rule, or from all rules that match: in
RULE, "*" stands for any text. A running Gatekit applies the change. Ratify records its decision in
the audit log before it changes the file, with the requests that the rule would have refused.`,
		Example: `  gatekit policy ratify learned/files/tools
  gatekit policy ratify 'learned/files/*'`,
		Args: oneRule("ratify"),
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, files, err := o.files(cmd, args[0])
		if err != nil {
			return err
		}
		all, err := statuses(cmd.Context(), cfg.Audit.File, files, time.Time{})
		if err != nil {
			return err
		}
		for i, f := range files {
			if !f.Shadow {
				continue
			}
			if err := o.decide(cmd, cfg, "ratify", f.Rule, fmt.Sprintf("enforced; in shadow mode "+
				"it would have refused %s", plural(all[i].WouldRefuse, "request")),
				func() error {
					return atomicfile.Replace(f.Path, f.Content, f.Enforced())
				}); err != nil {
				return err
			}
		}
		return nil
	}
	o.flags(c)
	return c
}

func (p *program) policyReject() *cobra.Command {
	o := &lockOptions{}
	c := &cobra.Command{
		Use:   "reject RULE",
		Short: "Remove a learned rule",
		Long: `Reject removes the file of a learned rule and the file with its tests. In RULE, "*"
stands for any text. A running Gatekit applies the change. Reject records its decision in the audit
log before it removes the files.

Gatekit refuses to load a folder without policies, so reject leaves no_rules.rego in place of the
last one. It refuses nothing. gatekit policy learn replaces it.`,
		Example: "  gatekit policy reject learned/memory/create_entities/argument/entities",
		Args:    oneRule("reject"),
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, files, err := o.files(cmd, args[0])
		if err != nil {
			return err
		}
		for _, f := range files {
			reason := "removed; it was enforced"
			if f.Shadow {
				reason = "removed; it was in shadow mode"
			}
			if last, err := f.IsLastIn(o.dir); err != nil {
				return err
			} else if last {
				reason += "; no rule is left"
			}
			if err := o.decide(cmd, cfg, "reject", f.Rule, reason, func() error {
				return f.Remove(o.dir)
			}); err != nil {
				return err
			}
		}
		return nil
	}
	o.flags(c)
	return c
}

func (p *program) policyWiden() *cobra.Command {
	o := &lockOptions{}
	var from string
	c := &cobra.Command{
		Use:   "widen RULE --from RECORD",
		Short: "Make a learned rule allow what a record has",
		Long: `Widen adds a clause to a learned rule, so that the rule allows the name or the
values of one recorded request that it refused or would have refused. gatekit policy status lists
the records; --from last takes the last one that can be used. A rule about arguments needs a record
with a body: the request passed in shadow mode, and [audit] bodies is "redacted". The clause names
the record. Widen records its decision in the audit log before it changes the file.`,
		Example: "  gatekit policy widen learned/files/tools --from 4120",
		Args:    oneRule("widen"),
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		record, err := strconv.ParseUint(from, 10, 64)
		if from != "last" && (err != nil || record == 0) {
			return errors.New("widen needs the record of a refused request\nhint: gatekit policy " +
				"status lists records; write --from RECORD or --from last")
		}
		cfg, files, err := o.files(cmd, args[0])
		if err != nil {
			return err
		}
		if len(files) != 1 {
			return fmt.Errorf("widen takes one rule, and %d match %s", len(files), args[0])
		}
		f := files[0]
		records := []uint64{record}
		if from == "last" {
			all, err := statuses(cmd.Context(), cfg.Audit.File, files, time.Time{})
			if err != nil {
				return err
			}
			if records = all[0].Records; len(records) == 0 {
				return fmt.Errorf("the log has no record that %s refused", f.Rule)
			}
		}
		var wider []byte
		for _, record = range slices.Backward(records) { // denied requests have no body
			message, findErr := findCase(cfg.Audit.File, record)
			if findErr != nil {
				return findErr
			}
			if wider, err = f.Widened(cmd.Context(), message, fmt.Sprintf("Widened from record "+
				"%d by user %d on %s.", record, os.Geteuid(),
				time.Now().UTC().Format(time.RFC3339))); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		return o.decide(cmd, cfg, "widen", f.Rule, fmt.Sprintf("allows what record %d has",
			record), func() error { return atomicfile.Replace(f.Path, f.Content, wider) })
	}
	o.flags(c)
	c.Flags().StringVar(&from, "from", "",
		"`record` of the refused request: its seq, or last")
	return c
}

// findCase returns a record of a log as a case.
func findCase(log string, record uint64) (found *policies.Case, err error) {
	err = eachCase(log, func(_ string, c *policies.Case) error {
		if c.Seq != record {
			return nil
		}
		found = c
		return io.EOF
	})
	switch {
	case err != nil:
		return nil, readError(err)
	case found == nil:
		return nil, fmt.Errorf("%s has no record %d", displayPath(log), record)
	case found.IsEvent:
		return nil, fmt.Errorf("%s: record %d describes the event %q, not a message",
			displayPath(log), record, found.Action)
	}
	return found, nil
}

func oneRule(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one rule\nhint: gatekit policy status lists the rules",
				command)
		}
		return nil
	}
}

// policyDecision is a decision about a learned rule, as controlRequest carries it.
type policyDecision struct {
	Action string `json:"action"` // ratify, reject or widen
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
	User   int    `json:"user"`
}

// maxPolicyDecision bounds the rule and the reason of a policyDecision, in bytes.
const maxPolicyDecision = 4096

// record records the decision.
func (d *policyDecision) record(ctx context.Context, events *pipeline.Pipeline) error {
	known := d != nil && (d.Action == "ratify" || d.Action == "reject" || d.Action == "widen")
	if !known || len(d.Rule)+len(d.Reason) > maxPolicyDecision {
		return errors.New("the decision about a learned rule is not valid")
	}
	return events.RecordEvent(ctx, nil, d.Action, fmt.Sprintf("%s: %s, by user %d", d.Rule,
		d.Reason, d.User), nil)
}

// decide records a decision in the log of the configuration, and then makes the change. The process
// that writes the log records it, if one runs.
func (o *lockOptions) decide(cmd *cobra.Command, c *config.Config, action, rule, reason string,
	change func() error) error {
	d := &policyDecision{Action: action, Rule: rule, Reason: reason, User: os.Geteuid()}
	_, err := callControl(c.Audit.File, controlRequest{Command: "decide-policy", Policy: d})
	if errors.Is(err, errNoProcess) {
		err = recordIn(c.Audit.File, c.Audit.Key, func(events *pipeline.Pipeline) error {
			return d.record(cmd.Context(), events)
		})
	}
	if err != nil {
		return fmt.Errorf("%s is not changed: %w", rule, err)
	}
	if err := change(); err != nil {
		return fmt.Errorf("the decision is recorded, and %s is not changed: %w\nhint: call the "+
			"command again", rule, err)
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), d)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", oneLine(rule), reason)
	return nil
}
