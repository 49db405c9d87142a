package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit"
	"gatekit/audit/query"
)

// filterHelp is what the commands that take a filter say of it.
const filterHelp = `Filters that are given must all be true of one record; of one filter that is repeated, any. In their values "*" stands for any text: --server 'git*'. --since and --until take a time
(2026-11-21, "2026-11-21 15:04", 2026-11-21T15:04:05Z; UTC without a zone) or how long ago it was (90s, 15m, 12h, 7d).

--action is what became of a message: pass, deny, modify, hide, ask, answer, skip, park, and those of events: start, reload, connect, lost, plugin_lost, … --stage is who did anything but
let it pass; with --action, who did that: --stage secrets --action modify.`

// filterFlags adds the filters to a command. The answer reads them once they are parsed.
func filterFlags(c *cobra.Command) (read func() (*query.Filter, error)) {
	f := &query.Filter{}
	var since, until string
	var tools []string
	flags := c.Flags()
	flags.StringVar(&since, "since", "", "from this `time` on, or so long ago")
	flags.StringVar(&until, "until", "", "before this `time`, or so long ago")
	for _, w := range []struct {
		name  string
		words *query.Patterns
		what  string
	}{
		{"session", &f.Session, "of this `session`"},
		{"exchange", &f.Exchange,
			"of this `exchange`: a request and all that moved for its sake; numbers are of a " +
				"session"},
		{"principal", &f.Principal, "for this `principal`"},
		{"server", &f.Server, "to or from this `server`"},
		{"name", &f.Name, "about what has this `name`: a tool, a prompt, a URI"},
		{"method", &f.Method, "of this `method`"},
		{"kind", &f.Kind, "of this `kind`: request, response, error, notification, event"},
		{"action", &f.Action, "with this `action`"},
		{"stage", &f.Stage, "with a step of this `stage`: a plugin, or policy"},
	} {
		flags.StringArrayVar((*[]string)(w.words), w.name, nil, w.what)
	}
	flags.StringArrayVar(&tools, "tool", nil, "calls of this `tool`: --method tools/call --name")
	return func() (_ *query.Filter, err error) {
		now := time.Now()
		if f.Since, err = when("since", since, now); err != nil {
			return nil, err
		}
		if f.Until, err = when("until", until, now); err != nil {
			return nil, err
		}
		if len(tools) > 0 {
			f.Method, f.Name = append(f.Method, "tools/call"), append(f.Name, tools...)
		}
		return f, nil
	}
}

// reading is the log that a command reads, and which records: what its arguments and flags say.
func reading(cmd *cobra.Command, config string, args []string, read func() (*query.Filter,
	error)) (*audit.Reader, *query.Filter, error) {
	filter, err := read()
	if err != nil {
		return nil, nil, err
	}
	file, _, err := auditLog(config, args)
	if err != nil {
		return nil, nil, report(cmd, err)
	}
	return &audit.Reader{File: file}, filter, nil
}

// unread is an error of reading the log, with what can be done. One who has read enough, and closed
// the pipe, is told nothing.
func unread(err error) error {
	switch {
	case errors.Is(err, syscall.EPIPE):
		return errReported
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w\nhint: name the log: each gatekit wrap has one of its own in "+
			"gatekit/audit of your state folder ($XDG_STATE_HOME, or ~/.local/state)", err)
	}
	return err
}

// when is the time that a flag's value says: a time, or how long before now.
func when(flag, value string, now time.Time) (time.Time, error) {
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
		return time.Time{}, fmt.Errorf("--%s %q is no time and no duration\nhint: --%s 15m, "+
			"--%s 7d, --%s \"2026-11-21 15:04\" (UTC)", flag, value, flag, flag, flag)
	}
	if isDays {
		d *= 24
	}
	return now.Add(-d), nil
}
