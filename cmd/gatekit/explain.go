package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"gatekit/audit"
	"gatekit/policies"
)

func (p *program) policyExplain() *cobra.Command {
	var config, log, fleetDir, recordText string
	var record recordRef
	var all bool
	var as explainedPrincipal
	c := &cobra.Command{
		Use:   "explain MESSAGE.json | --record N",
		Short: "Explain what the policies decide about a message",
		Long: `Explain prints the input that the policies get for one message. Then it prints each
rule that had an effect, with its file, its line and the values that it read. The verdict comes
last. Explain starts no server and no plugin.

MESSAGE.json ("-" for stdin) is a JSON-RPC message. You can add other fields of the policies' input
to the message. The input that explain prints has the same format:

  { "method": "tools/call", "server": "files",
    "params": { "name": "write", "arguments": {} },
    "item": { "name": "write", "annotations": { "readOnlyHint": false } },
    "session": { "id": "s1", "labels": ["tainted"], "calls": { "": 3 } },
    "principal": { "subject": "ann" },
    "roots": [{ "uri": "file:///srv" }],
    "findings": [{ "type": "email", "pointer": "/arguments" }] }

Policies see names without the prefix of the server.

--record N explains record N of the audit log. Explain evaluates all earlier records first, so that
the policies have the same state as when record N was written. The log has bodies only with [audit]
bodies = "redacted", and it never has the body of a denied message. Explain reports when a body is
missing.

--as PRINCIPAL shows what the policies decide if this principal sends the message: ISSUER#SUBJECT,
token:SUBJECT, cert:SUBJECT, or "" for the local user. A static token has the scopes of the
configuration. --scope, --group and --client add what else policies read of it. --claims FILE takes
the principal from the claims of an access token, a JSON object ("-" for stdin). The configured
issuer says which claims are its subject, groups and scopes. The token itself is not checked: see
gatekit auth explain. Both options replace the principal of the message. The log has no groups and
claims, so a record that is explained may need them. The session of another principal is new.`,
		Example: `  gatekit policy explain message.json
  gatekit policy explain --record 41
  gatekit policy explain --all --record 41 --log audit/gatekit.jsonl
  gatekit policy explain --as https://login.example#ann --group dev message.json
  gatekit policy explain --claims ann.json message.json`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if recordText != "" {
				if record, err = parseRecordRef(recordText); err == nil {
					err = record.checkFleet(fleetDir)
				}
				if err != nil {
					return fmt.Errorf("--record: %w", err)
				}
			}
			switch {
			case log != "" && fleetDir != "":
				return errors.New("explain reads one log: --log FILE, or that of --record " +
					"REPLICA:N --fleet DIR")
			case len(args) > 1, len(args) == 1 && record.seq > 0:
				return errors.New("explain takes one message: a file, or --record N")
			case len(args) == 0 && record.seq == 0:
				return errors.New("explain needs a message: a file, - for stdin, or --record N " +
					"of the audit log")
			case len(args) == 1 && args[0] == "-" && as.claims == "-":
				return errors.New("stdin is either the message or the claims, not both")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, o, err := p.loadPolicyOptions(cmd.Context(), config)
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			stage, err := policies.Load(o)
			if err != nil {
				return err
			}
			var message *policies.Case
			if record.seq > 0 {
				if fleetDir != "" {
					found, err := record.find(fleetDir)
					if err != nil {
						return err
					}
					log = found.file
				}
				log = cmp.Or(log, cfg.Audit.File)
				message, err = recordedCase(cmd.Context(), stage, log, record.seq)
			} else {
				message, err = readCase(args[0])
			}
			if err != nil {
				return err
			}
			if err := as.replace(cmd, cfg, message); err != nil {
				return err
			}
			if server, name, ok := strings.Cut(message.Message.Name, "__"); ok &&
				message.Message.Server == "" {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"hint: policies see names without the prefix of the server: try \"server\": "+
						"%q and the name %q\n", server, name)
			}
			e, err := stage.Explain(cmd.Context(), message)
			if err != nil {
				return err
			}
			var text strings.Builder
			printExplanation(&text, e, all)
			fmt.Fprint(cmd.OutOrStdout(), printable(text.String()))
			if record.seq > 0 && !as.isGiven(cmd) && message.Message.Principal.Issuer() != "" {
				for _, member := range []string{"groups", "claims"} {
					if rules := stage.RulesThatRead("principal", member); len(rules) > 0 {
						fmt.Fprintf(cmd.ErrOrStderr(), "hint: the log has no %s of principals, "+
							"and they are read by %s: give them with --as or --claims\n",
							member, strings.Join(rules, ", "))
					}
				}
			}
			missing, err := stage.MissingMembers(message)
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(),
					"\nThis verdict says nothing about the recorded message: the record has no "+
						"body, and rules read %s.\n", strings.Join(missing, ", "))
			}
			if recorded := message.Action; recorded != "" {
				by := ""
				if message.Stage != "" {
					by = " by " + message.Stage
				}
				fmt.Fprintf(cmd.OutOrStdout(), "recorded: %s%s\n", recorded, by)
				if isChange(recorded) && message.Seq > 0 && !message.BodyMissing {
					fmt.Fprintln(cmd.OutOrStdout(), "The record has the message as it was "+
						"forwarded, after this change. So the verdict above may be pass.")
				}
			}
			return nil
		},
	}
	configFlag(c, &config)
	c.Flags().StringVar(&recordText, "record", "",
		"record `N` (its seq) of the audit log, or REPLICA:N with --fleet")
	fleetFlag(c, &fleetDir)
	c.Flags().StringVar(&log, "log", "",
		"audit log `file` (default: the log that the configuration names)")
	c.Flags().BoolVar(&all, "all", false,
		"also show the rules that had no effect, and why")
	as.flags(c)
	return c
}

// readCase returns the message in a file, with the other fields of the policy input.
func readCase(name string) (*policies.Case, error) {
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(os.Stdin)
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	c, err := policies.ParseCase(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nhint: gatekit help policy explain shows an example of a "+
			"message", name, err)
	}
	if c.IsEvent {
		return nil, fmt.Errorf("%s: the record describes the event %q, not a message", name,
			c.Action)
	}
	return c, nil
}

// recordedCase returns record n of a log. It first evaluates all earlier messages, so that the
// policies have the same state as when record n was written.
func recordedCase(ctx context.Context, stage *policies.Stage, log string,
	n uint64) (*policies.Case, error) {
	var found *policies.Case
	err := eachCase(log, func(_ string, c *policies.Case) error {
		if c.Seq == n {
			found = c
			return io.EOF
		}
		if c.WasEvaluated() {
			stage.Evaluate(ctx, c)
		}
		return ctx.Err()
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, fmt.Errorf("%s has no record %d", displayPath(log), n)
	case found.IsEvent:
		return nil, fmt.Errorf("%s: record %d describes the event %q, not a message",
			displayPath(log), n,
			found.Action)
	}
	return found, nil
}

// eachCase calls f with the message in each line of a file, and with the file and line as text,
// until f returns an error. If this error is io.EOF, eachCase returns nil. If the file is an audit
// log that was split into several files, eachCase reads all of them.
func eachCase(file string, f func(place string, c *policies.Case) error) error {
	var requests policies.RequestMatcher
	add := func(place string, c *policies.Case) error {
		requests.Add(c)
		return f(place, c)
	}
	if file == "-" {
		return ignoreEOF(casesIn(os.Stdin, file, add))
	}
	files, err := audit.Segments(file)
	if err != nil {
		files = []string{file} // so that the error names this file
	}
	for _, name := range files {
		in, err := os.Open(name)
		if err != nil {
			return err
		}
		err = casesIn(in, name, add)
		in.Close()
		if err != nil {
			return ignoreEOF(err)
		}
	}
	return nil
}

// ignoreEOF returns nil for io.EOF, and any other error unchanged.
func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// casesIn calls f with the message in each line, until f returns an error.
func casesIn(in io.Reader, file string, f func(place string, c *policies.Case) error) error {
	r, shown := bufio.NewReader(in), displayPath(file)
	for line := 1; ; line++ {
		b, err := r.ReadBytes('\n')
		if text := bytes.TrimSpace(b); len(text) > 0 {
			place := shown + ":" + strconv.Itoa(line)
			c, err := policies.ParseCase(text)
			if err != nil {
				return fmt.Errorf("%s: %w", place, err)
			}
			if err := f(place, c); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func printExplanation(w io.Writer, e *policies.Explanation, all bool) {
	input, err := jsontext.AppendFormat(nil, e.Input, jsontext.Multiline(true),
		jsontext.WithIndent("  "))
	if err != nil {
		input = e.Input
	}
	fmt.Fprintf(w, "input of the policies:\n%s\n\n", input)
	for _, f := range e.Effects {
		would := ""
		if f.Shadow {
			would = "would "
		}
		fmt.Fprintf(w, "%s:%d: %s%s by %s: %s\n", displayPath(f.File), f.Line, would, f.Effect,
			f.Rule, f.Value)
		for _, r := range f.Reads {
			if r.Value == "" {
				r.Value = "(undefined)"
			}
			fmt.Fprintf(w, "    %s = %s\n", r.Ref, r.Value)
		}
	}
	if len(e.Effects) == 0 {
		fmt.Fprintln(w, "No rule had an effect.")
	}
	if all {
		for _, f := range e.NotMatched {
			fmt.Fprintf(w, "%s:%d: no %s by %s\n", displayPath(f.File), f.Line, f.Effect, f.Rule)
			if f.Value != "" {
				fmt.Fprintf(w, "    not true: %s\n", displayText(f.Value))
			}
		}
	} else if len(e.NotMatched) > 0 {
		fmt.Fprintf(w, "%s had no effect; --all shows the first expression that was not true in "+
			"each of them.\n", plural(len(e.NotMatched), "rule"))
	}
	fmt.Fprintf(w, "\nverdict: %s", e.Outcome.Action)
	if e.Outcome.Reason != "" {
		fmt.Fprintf(w, ": %s", oneLine(e.Outcome.Reason))
	}
	if e.Outcome.Err != nil {
		fmt.Fprintf(w, ": %s", displayText(e.Outcome.Err.Error()))
	}
	fmt.Fprintln(w)
	if e.Outcome.Action == "modify" && e.Outcome.After != nil {
		fmt.Fprintf(w, "forwarded as: %s\n", e.Outcome.After.Body())
	}
}

// printable returns a text for a terminal. Unprintable characters, such as controls and marks that
// change the direction of text, are replaced.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// oneLine is like printable, but it also replaces line breaks.
func oneLine(text string) string {
	return strings.ReplaceAll(printable(text), "\n", string(unicode.ReplacementChar))
}
