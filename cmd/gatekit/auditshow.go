package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit"
	"gatekit/audit/format"
	"gatekit/audit/query"
)

func (p *program) auditShow() *cobra.Command {
	var config, fleetDir string
	var steps, follow, asJSON bool
	colour := choice{"auto", []string{"auto", "always", "never"}}
	c := &cobra.Command{
		Use:        "show [FILE…]",
		SuggestFor: []string{"tail", "log", "logs", "cat"},
		Short:      "Print one line for each call in the audit log",
		Long: `Show prints one line for each call: start, action, principal or session, server,
request, duration and reason. A call is a request, its response and all other messages that belong
to the request. The line shows the most severe action of these messages. Requests of a server to the
client ("← sampling/createMessage") and events (start, reload, connect, plugin_lost, …) have their
own lines. Calls are printed in the order in which they started. With --follow, new calls are
printed as they end.

A call that was allowed is shown as "error" if it ended with an error, "failed" if the tool reported
a failure in its result, "cancel" if it was cancelled, and "open" if it has not ended.

  2026-11-21 15:04:05.123Z  deny    ann  files   tools/call delete_file  268µs  the tool is hidden
      from this client [tools]
  2026-11-21 15:04:06.007Z  modify  ann  github  tools/call search       1.4ms  redacted
      aws-access-token [secrets] in /arguments/query

--steps also prints the records of each call. A record shows what each stage did: the action, the
positions of the findings, and the positions that were changed. It also shows the sizes and hashes
of the bodies. It never shows the contents.

` + filterHelp + `

With --fleet, or with FILEs in several folders, show merges the logs of several replicas by time.
Each line then names the replica. In --steps, a record has the number REPLICA:SEQ, as gatekit audit
prove and gatekit policy explain take it.

Show prints the whole call when one of its records matches. Notifications that passed are shown only
with --kind notification or --method.

Unprintable characters are escaped. Output to a terminal is coloured, unless NO_COLOR is set.`,
		Example: `  gatekit audit show --since 15m --action deny
  gatekit audit show --follow --server github
  gatekit audit show --steps --session session-nmhqfxg2kpde --exchange 12
  gatekit audit show --fleet /srv/audit --since 1h`,
	}
	read := filterFlags(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		source := &logSource{config, args, fleetDir}
		logs, filter, err := auditReader(cmd, source, read)
		if err != nil {
			return err
		}
		out := bufio.NewWriter(cmd.OutOrStdout())
		s := &callPrinter{w: out, steps: steps, widths: narrowestColumns,
			replicas: widestReplica(logs),
			header:   isTerminal(os.Stdout),
			colour: colour.value == "always" ||
				colour.value == "auto" && paletteFor(cmd.OutOrStdout()).enabled}
		show := s.show
		if asJSON {
			show = func(c *query.Call) error { return printJSON(out, callJSON(c, steps)) }
		}
		calls := mergedCalls(cmd.Context(), logs, filter, query.Options{KeepRecords: steps})
		if follow {
			calls = followCalls(cmd.Context(), source, logs, filter,
				query.Options{KeepRecords: steps})
		}
		none := true
		var failed []error // the errors of some logs; the other logs are still read
		for call, err := range calls {
			if err != nil {
				failed = append(failed, err)
				continue
			}
			none = false
			if err = show(call); err == nil && follow {
				err = out.Flush()
			}
			if err != nil {
				return readError(errors.Join(err, out.Flush()))
			}
		}
		if err := errors.Join(failed...); err != nil {
			return readError(errors.Join(err, out.Flush()))
		}
		if err := cmd.Context().Err(); err != nil && !follow {
			return errors.Join(err, out.Flush())
		}
		if none {
			reportNoMatch(cmd)
		}
		return readError(out.Flush())
	}
	configFlag(c, &config)
	fleetFlag(c, &fleetDir)
	c.Flags().BoolVar(&steps, "steps", false, "also print the records of each call")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing calls as they end")
	c.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object for each call; times are in milliseconds")
	c.Flags().Var(&colour, "color", "`when` to use colour: auto, always or never")
	return c
}

// callPrinter prints calls.
type callPrinter struct {
	w             *bufio.Writer // a bufio.Writer keeps its first error
	steps, colour bool
	header        bool   // print the names of the columns first
	widths        [4]int // current widths of the columns
	// width of the column with the replica; 0 for no such column
	replicas int
}

// maxReplicaWidth is the width of the column with the replica that longer names do not widen.
const maxReplicaWidth = 32

// widestReplica returns the width of the column with the replica.
func widestReplica(logs []auditLog) (width int) {
	for _, l := range logs {
		width = max(width, min(len([]rune(format.Visible(l.replica))), maxReplicaWidth))
	}
	return width
}

// replica returns the column with the replica of a call, or "" without such a column.
func (s *callPrinter) replica(name string) string {
	if s.replicas == 0 {
		return ""
	}
	name = format.Visible(name)
	return name + strings.Repeat(" ", max(0, s.replicas-len([]rune(name)))) + "  "
}

// The columns are the action, the principal or session, the server, and the request. A column
// begins at its narrowest width. A longer value widens the column, up to its widest width.
var (
	narrowestColumns = [4]int{7, 1, 1, 16}
	widestColumns    = [4]int{8, 32, 20, 40}
)

func (s *callPrinter) show(c *query.Call) error {
	if s.header {
		s.header = false
		fmt.Fprintf(s.w, "%-24s  %s%s  %s  %s  %s  %8s  REASON\n", "TIME (UTC)",
			s.replica("REPLICA"), s.column(0, "ACTION"), s.column(1, "CALLER"),
			s.column(2, "SERVER"), s.column(3, "REQUEST"), "DURATION")
	}
	word, notes := outcome(c)
	action := s.paint(c, word, s.column(0, word))
	server, subject := strings.Join(c.Servers, ","), strings.TrimSpace(c.Method+" "+c.Name)
	if c.FromServer {
		subject = "← " + subject
	}
	var line string
	if c.Kind == "event" {
		line = joinVisible("  ", c.Caller(), server, reasonText(c, notes))
	} else {
		took := ""
		if c.Duration > 0 && c.Kind == "request" {
			took = rounded(c.Duration).String()
		}
		line = fmt.Sprintf("%s  %s  %s  %8s  %s", s.column(1, c.Caller()), s.column(2, server),
			s.column(3, subject), took, reasonText(c, notes))
	}
	line = fmt.Sprintf("%s  %s%s  %s", c.Start.UTC().Format("2006-01-02 15:04:05.000Z"),
		s.replica(c.Replica), action, line)
	_, err := fmt.Fprintln(s.w, strings.TrimRight(line, " "))
	if s.steps {
		for i := range c.Records {
			s.record(&c.Records[i], c.Replica)
		}
		if c.OmittedRecords > 0 {
			fmt.Fprintf(s.w, "    … and %s\n", plural(c.OmittedRecords, "record"))
		}
	}
	return err
}

// callJSON returns a call as audit show --json prints it.
func callJSON(c *query.Call, steps bool) any {
	word, _ := outcome(c)
	call := struct {
		Time       time.Time         `json:"time"`
		Replica    string            `json:"replica,omitempty"`
		Duration   float64           `json:"duration"`
		Outcome    string            `json:"outcome"` // the word in the column ACTION of the table
		Action     string            `json:"action"`
		Status     query.Status      `json:"status"`
		Kind       string            `json:"kind"`
		FromServer bool              `json:"from_server,omitempty"`
		Principal  string            `json:"principal,omitempty"`
		Session    string            `json:"session,omitempty"`
		Exchange   string            `json:"exchange,omitempty"`
		Servers    []string          `json:"servers"`
		Method     string            `json:"method,omitempty"`
		Name       string            `json:"name,omitempty"`
		Stage      string            `json:"stage,omitempty"`
		Reason     string            `json:"reason,omitempty"`
		Error      string            `json:"error,omitempty"`
		Code       int64             `json:"code,omitempty"`
		Changed    []string          `json:"changed,omitempty"`
		Parked     bool              `json:"parked,omitempty"`
		Seq        uint64            `json:"seq"` // seq of the first record of the call
		Records    []json.RawMessage `json:"records,omitempty"`
	}{c.Start, c.Replica, float64(c.Duration.Microseconds()) / 1000, word, c.Action, c.Status,
		c.Kind, c.FromServer, c.Principal, c.Session, c.Exchange, append([]string{}, c.Servers...),
		c.Method, c.Name, c.DecidingStage(), c.Reason, c.Error, c.Code, c.ChangedPointers(),
		c.Parked, c.FirstSeq, nil}
	if call.Status == query.StatusOpen {
		call.Status = "open"
	}
	if steps {
		for i := range c.Records {
			call.Records = append(call.Records, json.RawMessage(c.Records[i].Line))
		}
	}
	return call
}

// outcome returns the word for the outcome of a call, and notes about it.
func outcome(c *query.Call) (word string, notes []string) {
	word = c.Action
	decided := c.Decision != nil
	for _, n := range []struct {
		is   bool
		word string
	}{{c.Status == query.StatusError, "error"}, {c.Status == query.StatusToolFailed, "failed"},
		{c.Status == query.StatusCancelled, "cancel"},
		{c.Status == query.StatusOpen && c.Kind == "request",
			"open"}} {
		switch {
		case n.is && decided:
			notes = append(notes, n.word)
		case n.is:
			word = n.word
		}
	}
	if c.Parked {
		notes = append(notes, "parked")
	}
	return word, notes
}

// reasonText returns the reason of the outcome, the stage that decided, the positions that were
// changed, the error code, and the notes.
func reasonText(c *query.Call, notes []string) string {
	text := joinVisible(": ", c.Reason, c.Error)
	if stage := c.DecidingStage(); stage != "" {
		text += " [" + format.Visible(stage) + "]"
	}
	if changed := c.ChangedPointers(); len(changed) > 0 {
		text += " in " + format.Visible(strings.Join(changed[:min(3, len(changed))], ", "))
		if len(changed) > 3 {
			text += fmt.Sprintf(" and %d more", len(changed)-3)
		}
	}
	if c.Code != 0 {
		notes = append(notes, fmt.Sprintf("code %d", c.Code))
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	return strings.TrimSpace(text)
}

// joinVisible joins the texts that are not empty, with unprintable characters escaped.
func joinVisible(between string, texts ...string) string {
	texts = slices.DeleteFunc(texts, func(s string) bool { return s == "" })
	return format.Visible(strings.Join(texts, between))
}

// column returns a value padded to the width of its column, with unprintable characters escaped.
func (s *callPrinter) column(n int, value string) string {
	if value == "" {
		value = "-"
	}
	value = format.Visible(value)
	length := len([]rune(value))
	s.widths[n] = max(s.widths[n], min(length, widestColumns[n]))
	return value + strings.Repeat(" ", max(0, s.widths[n]-length))
}

// paint returns the text column with its word in the colour of the outcome.
func (s *callPrinter) paint(c *query.Call, word, column string) string {
	if !s.colour {
		return column
	}
	code := "33" // yellow: a stage acted on the call
	switch {
	case c.Status == query.StatusRefused, c.Status == query.StatusError,
		c.Status == query.StatusToolFailed, c.Error != "":
		code = "31" // red
	case c.Kind == "event":
		code = "36" // cyan
	case c.Decision == nil && c.Status == query.StatusAnswered:
		code = "32" // green
	}
	word = format.Visible(word)
	return "\x1b[" + code + "m" + word + "\x1b[0m" + strings.TrimPrefix(column, word)
}

// record prints a record of a call and its steps. The replica is "" if one log is read.
func (s *callPrinter) record(r *audit.Record, replica string) {
	fmt.Fprintf(s.w, "    #%s %s", recordNumber(replica, r.Seq), format.Visible(r.Action))
	if !r.IsEvent() {
		fmt.Fprintf(s.w, " %s %s %s", format.Visible(r.Direction), format.Visible(r.Kind),
			format.Visible(strings.TrimSpace(r.Method+" "+r.Name)))
	}
	if r.Server != "" {
		fmt.Fprintf(s.w, " (%s)", format.Visible(r.Server))
	}
	if r.Micros > 0 {
		fmt.Fprintf(s.w, " %s", rounded(time.Duration(r.Micros)*time.Microsecond))
	}
	if r.Reason != "" && len(r.Steps) == 0 {
		fmt.Fprintf(s.w, ": %s", format.Visible(r.Reason))
	}
	if r.Error != "" {
		fmt.Fprintf(s.w, ": %s", format.Visible(r.Error))
	}
	fmt.Fprintln(s.w, bodies(r))
	for _, step := range r.Steps {
		fmt.Fprintf(s.w, "        %s %s", format.Visible(step.Stage), format.Visible(step.Action))
		if step.Micros > 0 {
			fmt.Fprintf(s.w, " %s", rounded(time.Duration(step.Micros)*time.Microsecond))
		}
		if step.Reason != "" {
			fmt.Fprintf(s.w, ": %s", format.Visible(step.Reason))
		}
		fmt.Fprintln(s.w)
		for _, f := range step.Findings {
			fmt.Fprintf(s.w, "            found %s\n",
				format.Visible(strings.TrimSpace(f.Type+" "+f.Pointer)))
		}
		for i, name := range step.Hidden {
			fmt.Fprintf(s.w, "            hidden %s\n", format.Visible(name))
			if i < len(step.HiddenIDs) && step.HiddenIDs[i] != "" {
				fmt.Fprintf(s.w, "            id %s\n", format.Visible(step.HiddenIDs[i]))
			}
		}
		for _, pointer := range step.Changed {
			fmt.Fprintf(s.w, "            changed %s\n",
				format.Visible(cmp.Or(pointer, "all of it")))
		}
		for _, id := range step.IDs {
			fmt.Fprintf(s.w, "            id %s\n", format.Visible(id))
		}
		for _, id := range step.Allowed {
			fmt.Fprintf(s.w, "            allowed %s\n", format.Visible(id))
		}
	}
}

// recordNumber returns the number of a record, with the replica in whose log it is.
func recordNumber(replica string, seq uint64) string {
	if replica == "" {
		return strconv.FormatUint(seq, 10)
	}
	return fmt.Sprintf("%s:%d", format.Visible(replica), seq)
}

// bodies returns the sizes and hashes of a message's body.
func bodies(r *audit.Record) string {
	describe := func(b *audit.Body) string {
		switch {
		case b.SHA256 != "":
			return fmt.Sprintf("%d bytes %s", b.Size,
				format.Visible(fmt.Sprintf("%.12s", b.SHA256)))
		case b.HMAC != "":
			return fmt.Sprintf("%d bytes hmac %s", b.Size,
				format.Visible(fmt.Sprintf("%.12s", b.HMAC)))
		}
		return fmt.Sprintf("%d bytes", b.Size)
	}
	switch {
	case r.Before == nil && r.After == nil:
		return ""
	case r.Before == nil:
		return ", " + describe(r.After)
	case r.After == nil || !format.IsModified(r):
		return ", " + describe(r.Before)
	}
	return ", " + describe(r.Before) + " → " + describe(r.After)
}

// rounded returns a duration with about three significant digits.
func rounded(d time.Duration) time.Duration {
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}
