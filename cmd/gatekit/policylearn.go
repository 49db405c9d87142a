package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit/query"
	"gatekit/policies"
	"gatekit/policies/learn"
)

func (p *program) policyLearn() *cobra.Command {
	var config, log, since, out, mode string
	var servers, excluded []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "learn",
		Short: "Write a policy from the audit log",
		Long: `Learn reads the audit log and writes a policy that allows what the log has: the
servers, tools, prompts and resources that each group of principals uses, the names and values of
arguments, the rate of calls, and what servers ask of clients. Every statement is a rule of its
own, with its tests, in a file that begins with its evidence:

  # Learned from 412 requests of 3 principals.
  # First seen 2026-11-02T08:11:40Z, last seen 2026-11-08T17:58:02Z.
  # Records: 12, 15, 19, 40411.

Learn uses only requests that were answered without an error, that passed, and in which no plugin
and no rule found or changed anything. Adding to an answer, as the plugin trace does, is no change.

A line "FEW PRINCIPALS" marks what only one of at least three principals accounts for: names,
values, folders, hosts, characters, and numbers or lengths beyond those of the others. Check it
before the rule is enforced, because an attacker may have acted while the log was written. --exclude
leaves out a period: two times or two ages, such as 2026-11-02..2026-11-03 or 5d..4d.

The values of arguments are learned only with [audit] bodies = "redacted". The policy then contains
the few texts of arguments with few values, and one value of each argument in its tests.

Learn checks the result against parts of the log that it did not learn from, and prints the share of
honest requests that it would refuse. Rules that refuse honest values are made more general first.

The rules begin in shadow mode: records show what they would refuse, and nothing is refused. Name
the folder in policy.files. gatekit policy status lists the rules and what they would have refused;
gatekit policy ratify enforces a rule. With --mode enforce, all rules are enforced at once.`,
		Example: `  gatekit policy learn
  gatekit policy learn --since 7d --server files --exclude 3d..2d
  gatekit policy test policies/learned
  gatekit policy learn --mode enforce --out policies/enforced`,
		Args: noArgs,
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if mode != "shadow" && mode != "enforce" {
			return fmt.Errorf("--mode %q is neither shadow nor enforce", mode)
		}
		wants, err := wantedRequests(since, servers, excluded, time.Now())
		if err != nil {
			return err
		}
		if log == "-" {
			return errors.New("learn reads the log several times, so it cannot be stdin\nhint: " +
				"save the log in a file")
		}
		if log == "" {
			cfg, err := loadConfig(config)
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			log = cfg.Audit.File
		}
		source := func(f func(*policies.Case) error) error {
			return eachCase(log, func(_ string, c *policies.Case) error { return f(c) })
		}
		policy, err := learn.Learn(cmd.Context(), source, learn.Options{Wants: wants,
			Progress: func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text+"…") }})
		if err != nil {
			return err
		}
		if err := policy.Write(out, mode); err != nil {
			return fmt.Errorf("%w\nhint: name another folder with --out", err)
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), learnReport{Out: out, Mode: mode,
				Requests: policy.Requests, Flagged: policy.Flagged, Principals: policy.Principals,
				Validation: policy.Validation, Share: policy.Validation.Share(),
				Statements: policy.Statements})
		}
		printLearned(cmd.OutOrStdout(), policy, out, mode)
		return nil
	}
	configFlag(c, &config)
	flags := c.Flags()
	flags.StringVar(&log, "log", "",
		"audit log `file` (default: the log that the configuration names)")
	flags.StringVar(&since, "since", "", "learn from this `time` on, or from this age: 7d")
	flags.StringArrayVar(&servers, "server", nil, "learn about this `server` only")
	flags.StringArrayVar(&excluded, "exclude", nil, "leave out a `period`: FROM..TO")
	flags.StringVar(&out, "out", "policies/learned", "`folder` to write, which must be empty")
	flags.StringVar(&mode, "mode", "shadow", "`mode` of the rules: shadow or enforce")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// wantedRequests returns a function that reports whether to learn from a request.
func wantedRequests(since string, servers, excluded []string,
	now time.Time) (func(*policies.Case) bool, error) {
	start, err := parseTime("since", since, now)
	if err != nil {
		return nil, err
	}
	type period struct{ from, to time.Time }
	var periods []period
	for _, text := range excluded {
		from, to, ok := strings.Cut(text, "..")
		if !ok || from == "" || to == "" {
			return nil, fmt.Errorf("--exclude %q is not a period\nhint: write --exclude "+
				"2026-11-02..2026-11-03 or --exclude 5d..4d", text)
		}
		var p period
		if p.from, err = parseTime("exclude", from, now); err != nil {
			return nil, err
		}
		if p.to, err = parseTime("exclude", to, now); err != nil {
			return nil, err
		}
		if !p.from.Before(p.to) {
			return nil, fmt.Errorf("--exclude %q: the period ends before it begins", text)
		}
		periods = append(periods, p)
	}
	return func(c *policies.Case) bool {
		return !c.Time.Before(start) &&
			(len(servers) == 0 || query.Patterns(servers).Match(c.Message.Server)) &&
			!slices.ContainsFunc(periods, func(p period) bool {
				return !c.Time.Before(p.from) && c.Time.Before(p.to)
			})
	}, nil
}

// learnReport is the output of gatekit policy learn --json.
type learnReport struct {
	Out        string            `json:"out"`
	Mode       string            `json:"mode"`
	Requests   int               `json:"requests"`
	Flagged    int               `json:"flagged"`
	Principals int               `json:"principals"`
	Share      float64           `json:"expected_refused_share"` // of honest requests
	Validation learn.Validation  `json:"validation"`
	Statements []learn.Statement `json:"statements"`
}

func printLearned(w io.Writer, p *learn.Policy, out, mode string) {
	fmt.Fprintf(w, "learned %s from %s of %s; left out %s in which something was found\n",
		plural(len(p.Statements), "rule"), plural(p.Requests, "request"),
		plural(p.Principals, "principal"), plural(p.Flagged, "request"))
	v := p.Validation
	if v.Parts == 0 {
		fmt.Fprintln(w, "the log has too few requests to check the rules on held-out parts")
	} else {
		fmt.Fprintf(w, "held-out parts (%d, %s): %d of %d honest requests refused, %s%%\n",
			v.Parts, v.Of, v.Refused, v.Requests,
			strconv.FormatFloat(100*v.Share(), 'f', 2, 64))
	}
	rules := make([]string, 0, len(v.Rules))
	for rule := range v.Rules {
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b string) int {
		return cmp.Or(v.Rules[b]-v.Rules[a], cmp.Compare(a, b))
	})
	for _, rule := range rules {
		fmt.Fprintf(w, "  %s: %d\n", rule, v.Rules[rule])
	}
	marked := 0
	for _, s := range p.Statements {
		if len(s.FewPrincipals) > 0 {
			marked++
		}
	}
	if marked > 0 {
		fmt.Fprintf(w, "%s with values that only one principal accounts for: look for FEW "+
			"PRINCIPALS\n", plural(marked, "rule"))
	}
	if p.Principals < 3 {
		fmt.Fprintln(w, "the log has fewer than three principals, so values of only one of them "+
			"are not marked: check the rules yourself")
	}
	fmt.Fprintf(w, "wrote %s (mode %s); name the folder in policy.files\n", displayPath(out), mode)
}
