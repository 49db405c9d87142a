package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/pipeline"
	"gatekit/policies"
)

func (p *program) policyReplay() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "replay [FILE.jsonl]",
		Short: "Say what today's policies would have done to recorded traffic",
		Long: `Replay shows recorded messages to the policies as they are now, in their order, and prints each whose verdict is another than the recorded one, and how many there were. It starts nothing,
and changes nothing. FILE is an audit log, by default the configuration's, or messages as gatekit policy explain takes them, one a line, with "action" for what became of them; "-" is
stdin.

  audit/gatekit.jsonl:41: to_server request tools/call files write: pass, now deny: tools/readonly: the tool does not declare itself read-only
  120 messages: 119 are judged as they were, 1 otherwise

What did not come before the policies is not judged now: a plugin refused or answered it, or it is Gatekit's own answer, made of what servers said.
What mode = "shadow" would let pass is judged here as if it were enforced.

How much can be said depends on [audit] bodies. "redacted" keeps the bodies of what passed, as it went on; of what was refused, and with "digest" and "none", there are direction, kind, method,
server and name alone. A verdict without a body is marked: rules that read params, results or definitions may judge otherwise.`,
		Example: "  gatekit policy replay\n  gatekit policy replay --config new.toml " +
			"audit/gatekit.jsonl",
		Args: maxOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, o, err := p.configured(cmd.Context(), config)
			if err != nil {
				return report(cmd, err)
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
			r := replay{w: cmd.OutOrStdout(), file: file, needs: stage.BodyMembersRead()}
			err = eachCase(file, func(line int, c *policies.Case) error {
				if err := cmd.Context().Err(); err != nil {
					return err
				}
				if c.IsEvent {
					return nil
				}
				if !c.WasEvaluated() {
					r.others++
					return nil
				}
				r.judged(line, c, stage.Evaluate(cmd.Context(), c))
				return nil
			})
			if err != nil {
				return err
			}
			r.sum(shadow)
			return nil
		},
	}
	configFlag(c, &config)
	return c
}

func maxOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return errors.New("replay takes one file")
	}
	return nil
}

// replay counts what becomes of messages.
type replay struct {
	w     io.Writer
	file  string
	needs []string // what is read of the input that is missing without a body

	same, differ, uncertain, unknown, bodyless, others int
}

func (r *replay) judged(line int, c *policies.Case, o pipeline.Outcome) {
	lacking := c.BodyMissing && len(r.needs) > 0
	if lacking {
		r.bodyless++
	}
	was := c.RecordedAction
	switch {
	case was == "" && o.Action == "pass":
		r.unknown++
		return
	case was == "":
		r.unknown++
	case was == o.Action, changes(was) && (changes(o.Action) || o.Action == "pass") &&
		!c.BodyMissing && c.Seq > 0:
		// the body is the one that they had changed
		r.same++
		return
	case lacking:
		r.uncertain++
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
	fmt.Fprintf(r.w, "%s:%d: %s: %s%s", shown(r.file), line, oneLine(strings.Join(words, " ")),
		then, o.Action)
	if o.Err != nil {
		fmt.Fprintf(r.w, ": %s", printable(shortened(o.Err.Error())))
	} else if o.Reason != "" {
		fmt.Fprintf(r.w, ": %s", oneLine(o.Reason))
	}
	if lacking {
		fmt.Fprint(r.w, " (its body was not kept)")
	}
	fmt.Fprintln(r.w)
}

func changes(action string) bool { return action == "modify" || action == "hide" }

func (r *replay) sum(shadow bool) {
	known := r.same + r.differ + r.uncertain
	if known+r.unknown+r.others == 0 {
		fmt.Fprintf(r.w, "%s holds no messages\n", shown(r.file))
		return
	}
	fmt.Fprintf(r.w, "%s: %d are judged as they were, %d otherwise",
		counted(known+r.unknown+r.others, "message"), r.same, r.differ)
	if r.uncertain > 0 {
		fmt.Fprintf(r.w, ", %d perhaps otherwise", r.uncertain)
	}
	if r.unknown > 0 {
		fmt.Fprintf(r.w, ", of %d nothing says how they were judged", r.unknown)
	}
	if r.others > 0 {
		fmt.Fprintf(r.w, ", %d did not come before the policies", r.others)
	}
	fmt.Fprintln(r.w)
	if r.bodyless > 0 {
		fmt.Fprintf(r.w, "%s without a body: judged by direction, kind, method, server and name "+
			"alone, and the policies read %s too. [audit] bodies = \"redacted\" keeps those of "+
			"what passes.\n",
			counted(r.bodyless, "message"), strings.Join(r.needs, ", "))
	}
	if shadow {
		fmt.Fprintln(r.w, "The configuration's mode is shadow: this is what enforce would do.")
	}
}
