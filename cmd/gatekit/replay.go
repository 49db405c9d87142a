package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/pipeline"
	"gatekit/policies"
)

func (p *program) policyReplay() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "replay [FILE.jsonl]",
		Short: "Show what the current policies would have done with recorded messages",
		Long: `Replay evaluates recorded messages with the current policies, in order. It prints
each message whose verdict differs from the recorded verdict, and a summary:

  audit/gatekit.jsonl:41: to_server request tools/call files write: pass, now deny:
      tools/readonly: the tool does not declare itself read-only
  120 messages: 119 with the same verdict, 1 with another verdict

Replay starts nothing and changes nothing. FILE is an audit log, or "-" for stdin. The default is
the log that the configuration names. FILE can also hold messages in the format of gatekit policy
explain, one per line, with the recorded verdict in "action".

Replay skips messages that no policy saw: a plugin denied or answered them, or Gatekit made them. In
shadow mode, replay shows what the policies would do if they were enforced.

The result is exact only for messages with a recorded body. With [audit] bodies = "redacted", the
log has the bodies of messages that passed, as they were forwarded. Without a body, the policies see
only direction, kind, method, server and name. If a rule that may apply to the message reads
anything else, replay cannot tell the current verdict. The summary counts these messages
separately.`,
		Example: `  gatekit policy replay
  gatekit policy replay --config new.toml audit/gatekit.jsonl`,
		Args: atMostOne("replay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, o, err := p.loadPolicyOptions(cmd.Context(), config)
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			file := cfg.Audit.File
			if len(args) == 1 {
				file = args[0]
			}
			shadow := o.Shadow
			o.Shadow = false
			stage, err := policies.Load(o)
			if err != nil {
				return err
			}
			r := replay{w: cmd.OutOrStdout(), file: file}
			err = eachCase(file, func(place string, c *policies.Case) error {
				if err := cmd.Context().Err(); err != nil {
					return err
				}
				return r.add(cmd.Context(), stage, place, c)
			})
			if err != nil {
				return err
			}
			r.printSummary(shadow)
			return nil
		},
	}
	configFlag(c, &config)
	return c
}

// replay compares the recorded verdicts on messages with the current verdicts, and counts the
// results.
type replay struct {
	w       io.Writer
	file    string
	missing []string // members of the input that rules read and the log does not have

	// The numbers of messages. The field unknown counts messages without a recorded verdict, and
	// cannotTell counts messages without a current verdict.
	same, differ, cannotTell, unknown, notEvaluated int
}

// add evaluates a case, and compares the verdicts. The parameter place says where the case is.
func (r *replay) add(ctx context.Context, stage *policies.Stage, place string,
	c *policies.Case) error {
	if c.IsEvent {
		return nil
	}
	if !c.WasEvaluated() {
		r.notEvaluated++
		return nil
	}
	outcome := stage.Evaluate(ctx, c)
	missing, err := stage.MissingMembers(c)
	if err != nil {
		return err
	}
	r.compare(place, c, outcome, missing)
	return nil
}

// compare compares the recorded verdict on a case with the current verdict o. The parameter place
// is the file and line of the case. The parameter missing lists the members of the input that rules
// read and the log does not have. If there are any, compare cannot tell the current verdict.
func (r *replay) compare(place string, c *policies.Case, o pipeline.Outcome,
	missing []string) {
	if len(missing) > 0 {
		r.cannotTell++
		for _, name := range missing {
			if !slices.Contains(r.missing, name) {
				r.missing = append(r.missing, name)
			}
		}
		return
	}
	was := c.RecordedAction
	switch {
	case was == "" && o.Action == "pass":
		r.unknown++
		return
	case was == "":
		r.unknown++
	case was == o.Action, isChange(was) && (isChange(o.Action) || o.Action == "pass") &&
		!c.BodyMissing && c.Seq > 0:
		// The recorded body already contains the change, so the current verdict may be pass.
		r.same++
		return
	default:
		r.differ++
	}
	m := c.Message
	words := []string{m.Direction.String(), m.Kind.String()}
	for _, w := range []string{m.Method, m.Server, m.Name} {
		if w != "" {
			words = append(words, w)
		}
	}
	then := ""
	if was != "" {
		then = was + ", now "
	}
	fmt.Fprintf(r.w, "%s: %s: %s%s", place, oneLine(strings.Join(words, " ")), then, o.Action)
	if o.Err != nil {
		fmt.Fprintf(r.w, ": %s", printable(displayText(o.Err.Error())))
	} else if o.Reason != "" {
		fmt.Fprintf(r.w, ": %s", oneLine(o.Reason))
	}
	fmt.Fprintln(r.w)
}

func isChange(action string) bool { return action == "modify" || action == "hide" }

func (r *replay) printSummary(shadow bool) {
	known := r.same + r.differ + r.cannotTell
	if known+r.unknown+r.notEvaluated == 0 {
		fmt.Fprintf(r.w, "%s contains no messages\n", displayPath(r.file))
		return
	}
	fmt.Fprintf(r.w, "%s: %d with the same verdict, %d with another verdict",
		plural(known+r.unknown+r.notEvaluated, "message"), r.same, r.differ)
	if r.cannotTell > 0 {
		fmt.Fprintf(r.w, ", %d without a current verdict", r.cannotTell)
	}
	if r.unknown > 0 {
		fmt.Fprintf(r.w, ", %d without a recorded verdict", r.unknown)
	}
	if r.notEvaluated > 0 {
		fmt.Fprintf(r.w, ", %d not seen by policies", r.notEvaluated)
	}
	fmt.Fprintln(r.w)
	if r.cannotTell > 0 {
		fmt.Fprintf(r.w, "The log has no body for %s, but rules read %s: replay cannot tell "+
			"the current verdict. [audit] bodies = \"redacted\" records the bodies of messages "+
			"that pass.\n", plural(r.cannotTell, "message"), strings.Join(r.missing, ", "))
	}
	if shadow {
		fmt.Fprintln(r.w, "The mode is shadow: this shows what the policies would do if they "+
			"were enforced.")
	}
}
