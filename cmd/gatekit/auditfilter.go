package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit/query"
)

// filterHelp describes the filters in the help of the commands that have them.
const filterHelp = `A record must match all the filters. A filter that is repeated matches any of
its values. In values, "*" stands for any text: --server 'git*'. --since and --until take a time
(2026-11-21, "2026-11-21 15:04", 2026-11-21T15:04:05Z; UTC if no zone is given) or an age (90s, 15m,
12h, 7d).

--action is the action of a message or of an event. The actions of messages are pass, deny, modify,
hide, restore, ask, answer, skip, allowed (see gatekit allow) and park. If a policy in shadow mode
let the message pass, the action is would_deny, would_modify, would_hide or would_ask; the same
holds for a planted value with action = "record". The actions of events are start, reload, connect,
allow, lost, plugin_lost, … --stage is the plugin or policy that acted. With both flags, a record
matches if this stage did this action: --stage secrets --action modify.`

// filterFlags adds the filter flags to a command. After the flags are parsed, the returned function
// returns the filter that they describe.
func filterFlags(c *cobra.Command) (read func() (*query.Filter, error)) {
	f := &query.Filter{}
	var since, until string
	var tools []string
	flags := c.Flags()
	flags.StringVar(&since, "since", "", "records from this `time` on, or not older than this age")
	flags.StringVar(&until, "until", "", "records before this `time`, or older than this age")
	for _, flag := range []struct {
		name     string
		patterns *query.Patterns
		usage    string
	}{
		{"session", &f.Session, "records of this `session`"},
		{"exchange", &f.Exchange,
			"records of this `exchange` (a request and all messages that belong to it)"},
		{"principal", &f.Principal, "records for this `principal`"},
		{"client", &f.Client, "records for this OAuth `client` of a principal"},
		{"server", &f.Server, "messages to or from this `server`"},
		{"name", &f.Name, "messages about this `name`: a tool, a prompt or a URI"},
		{"method", &f.Method, "messages of this `method`"},
		{"kind", &f.Kind, "records of this `kind`: request, response, error, notification or " +
			"event"},
		{"action", &f.Action, "records with this `action`"},
		{"stage", &f.Stage, "records on which this `stage` acted: a plugin, or policy"},
	} {
		flags.StringArrayVar((*[]string)(flag.patterns), flag.name, nil, flag.usage)
	}
	flags.StringArrayVar(&tools, "tool", nil, "calls of this `tool`, short for --method "+
		"tools/call --name")
	return func() (_ *query.Filter, err error) {
		now := time.Now()
		if f.Since, err = parseTime("since", since, now); err != nil {
			return nil, err
		}
		if f.Until, err = parseTime("until", until, now); err != nil {
			return nil, err
		}
		if err := checkActions(f.Action); err != nil {
			return nil, err
		}
		if len(tools) > 0 {
			f.Method, f.Name = append(f.Method, "tools/call"), append(f.Name, tools...)
		}
		return f, nil
	}
}

// auditReader returns the logs that a command reads, and the filter that its flags describe.
func auditReader(cmd *cobra.Command, source *logSource,
	read func() (*query.Filter, error)) ([]auditLog, *query.Filter, error) {
	filter, err := read()
	if err != nil {
		return nil, nil, err
	}
	logs, err := source.logs()
	if err != nil {
		return nil, nil, reportMistakes(cmd, err, false)
	}
	return logs, filter, nil
}

// reportNoMatch says on stderr that nothing was printed, so that an empty output is not taken for a
// failure.
func reportNoMatch(cmd *cobra.Command) {
	fmt.Fprintln(cmd.ErrOrStderr(), "no records match")
}

// readError returns err, the error of reading a log and printing its records. If the log does not
// exist, readError adds a hint. If the process that reads stdout has closed the pipe, readError
// returns errReported, so that no error is printed.
func readError(err error) error {
	switch {
	case errors.Is(err, syscall.EPIPE):
		return errReported
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w\nhint: name the file of the log, or a folder; without a name and a "+
			"configuration, the logs of gatekit wrap are read", err)
	}
	return err
}

// recordActions are the actions that records can have: first the actions of messages, then the
// actions of events.
var recordActions = []string{"pass", "deny", "modify", "hide", "restore", "ask", "answer",
	"skip", "allowed", "park", "resume", "approve", "reject", "ratify",
	"widen", "allow", "disallow", "drop",
	"own", "cancelled", "would_deny", "would_modify", "would_hide", "would_ask", "would_answer",
	"start", "stop", "reload", "connect", "refuse", "lost", "restarted", "ended", "resumed",
	"confined", "unconfined", "host_connected", "host_closed", "host_refused",
	"pin", "login", "refreshed", "rejected", "logout", "registered",
	"exchanged", "revoke", "readmit", "console", "stop_traffic", "resume_traffic",
	"plugin_lost", "plugin_restarted", "retry", "gap", "recovered", "prune", "clock", "roster",
	"anchor lost", "anchor back", "sink lost", "sink back", "sink gap", "sink reset",
	"witness lost", "witness back", "witness refused"}

// checkActions returns an error for an action that no record has. Without this check, a mistyped
// action would match no record, as if nothing had been denied.
func checkActions(patterns query.Patterns) error {
	for _, pattern := range patterns {
		known := slices.ContainsFunc(recordActions, func(action string) bool {
			return query.Patterns{pattern}.Match(action)
		})
		if known {
			continue
		}
		hint := "one of " + strings.Join(recordActions, ", ")
		// A word such as "denied" most likely begins like the action: it means "deny", not "ended".
		sameStart := slices.DeleteFunc(slices.Clone(recordActions), func(action string) bool {
			return pattern == "" || action[0] != pattern[0]
		})
		near := cmp.Or(nearest(pattern, sameStart), nearest(pattern, recordActions))
		if near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return fmt.Errorf("no record has the action %q\nhint: %s", pattern, hint)
	}
	return nil
}

// parseTime returns the time that the value of a flag describes. The value is a time, or an age
// before now.
func parseTime(flag, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			return t, nil
		}
	}
	ago := value
	days, isDays := strings.CutSuffix(value, "d")
	if isDays {
		ago = days + "h"
	}
	d, err := time.ParseDuration(ago)
	if err != nil || d < 0 {
		return time.Time{}, fmt.Errorf("--%s %q is not a time or an age\nhint: write --%s 15m, "+
			"--%s 7d or --%s \"2026-11-21 15:04\" (UTC)", flag, value, flag, flag, flag)
	}
	if isDays {
		d *= 24
	}
	return now.Add(-d), nil
}
