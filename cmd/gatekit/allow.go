package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit"
	"gatekit/core/allowances"
	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
)

// allowanceStore returns the allowances of the user. They are files in the state folder of the
// user. Only a running Gatekit needs ids: it passes its configuration and the secret key of its
// log.
func allowanceStore(c *config.Config, key []byte) (*allowances.Store, error) {
	dir, err := stateFolder()
	if err != nil {
		return nil, fmt.Errorf("find the folder of allowances: %w", err)
	}
	s := &allowances.Store{Dir: filepath.Join(dir, "allow"), Key: key}
	if c != nil {
		s.Servers = serverIdentities(c)
	}
	return s, nil
}

// allowances returns the allowances for the pipeline of a configuration. It returns nil if they are
// switched off or cannot be read.
func (g *gateway) allowances(c *config.Config) pipeline.Allowances {
	if !c.Allow.Enabled {
		return nil
	}
	if g.sharedAllowances != nil {
		key, err := sharedAllowanceKey(c)
		if err != nil {
			g.log.Warn("no key for ids of allowances: gatekit allow has no effect", "error", err)
			return nil
		}
		return &allowances.Store{Shared: g.sharedAllowances, Key: key,
			Servers: serverIdentities(c)}
	}
	store, err := allowanceStore(c, g.recording.audit.Secret("gatekit allow"))
	if err != nil {
		g.log.Warn("allowance folder unavailable: gatekit allow has no effect", "error", err)
		return nil
	}
	return watchedAllowances{store, g.allowed}
}

// watchedAllowances are the allowances of a running Gatekit, which learns when one is used up.
type watchedAllowances struct {
	*allowances.Store
	watch *allowanceWatch
}

// Use implements pipeline.Allowances.
func (w watchedAllowances) Use(id string) bool {
	a, err := w.Get(id)
	if !w.Store.Use(id) {
		return false
	}
	if err == nil && a.Once {
		w.watch.look()
	}
	return true
}

// allowanceWatch announces the lists that allowances change. Its zero value cannot be used.
type allowanceWatch struct {
	changed chan struct{} // has an element when the allowances may have changed
	known   map[string]allowedList
}

// allowedList is the list that an allowance changes. Its capability is "" if there is none.
type allowedList struct{ principal, server, capability string }

func newAllowanceWatch() *allowanceWatch {
	return &allowanceWatch{changed: make(chan struct{}, 1)}
}

// look makes the watch compare the allowances soon. It does not wait.
func (w *allowanceWatch) look() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// announce calls notify for each list that an allowance changes, if the allowance was not valid at
// the last call or no longer is. The first call only remembers the valid allowances.
func (w *allowanceWatch) announce(valid []allowances.Allowance,
	find func(allowances.Allowance) allowedList, notify func(allowedList)) {
	before := w.known
	w.known = map[string]allowedList{}
	for _, a := range valid {
		list, known := before[a.ID]
		if !known {
			list = find(a)
		}
		w.known[a.ID] = list
	}
	if before == nil {
		return
	}
	lists := map[allowedList]bool{}
	for id, list := range w.known {
		if _, known := before[id]; !known {
			lists[list] = true
		}
	}
	for id, list := range before {
		if _, still := w.known[id]; !still {
			lists[list] = true
		}
	}
	for list := range lists {
		if list.capability != "" {
			notify(list)
		}
	}
}

// listOf returns the list that an allowance changes: that of the hidden item with its id. If no
// item with the id is hidden now, it is the list in which the allowance was needed.
func (g *gateway) listOf(a allowances.Allowance) allowedList {
	if principal, server, capability, ok := g.hidden.ListWith(a.ID); ok {
		return allowedList{principal, server, capability}
	}
	method, _ := mcp.LookupMethod(a.Method)
	isOwn := a.Log == realPath(g.recording.file) || g.sharedAllowances != nil
	if !isOwn || method.ItemsPointer == "" ||
		!slices.Contains([]string{"tools", "prompts", "resources"}, method.Capability) {
		return allowedList{}
	}
	return allowedList{a.Principal, a.Server, method.Capability}
}

// watchInterval is how often a running Gatekit looks for allowances that another process has made
// or removed.
const watchInterval = time.Minute

// watchAllowances removes expired allowances until ctx ends, and notifies the clients whose lists
// an allowance changes when it begins and ends. It records the expiry of those allowances that were
// recorded in the log of this process. Those of other logs are removed after a day: the process
// that wrote the log has ended, and the record of the allowance says when it expires.
func (g *gateway) watchAllowances(ctx context.Context) {
	if g.sharedAllowances != nil {
		g.watchSharedAllowances(ctx)
		return
	}
	store, err := allowanceStore(nil, nil)
	if err != nil {
		return
	}
	log := realPath(g.recording.file)
	for {
		valid, expired, err := store.List()
		if err != nil {
			g.log.Debug("allowances not listed", "error", err)
		}
		for _, a := range expired {
			switch {
			case a.Log == log:
				if err := disallowRecorded(store, a, "expired", g.recording.events); err != nil {
					g.log.Warn("expired allowance not removed", "id", a.ID, "error", err)
				}
			case time.Since(a.Until) > 24*time.Hour:
				_ = store.Remove(a.ID)
			}
		}
		if err == nil {
			g.allowed.announce(valid, g.listOf, g.announceAllowed)
		}
		wait := watchInterval
		for _, a := range valid {
			wait = min(wait, time.Until(a.Until)+time.Millisecond)
		}
		select {
		case <-time.After(wait):
		case <-g.allowed.changed:
		case <-ctx.Done():
			return
		}
	}
}

// announceAllowed notifies clients that a list has changed.
func (g *gateway) announceAllowed(list allowedList) {
	g.proxy.AnnounceListChange(list.principal, list.server, list.capability)
}

// recordAllowance records a change of an allowance.
func recordAllowance(events *pipeline.Pipeline, a allowances.Allowance, action, reason string,
	err error) error {
	return events.RecordEvent(context.Background(), &mcp.Message{
		Principal: identity.FromID(a.Principal), Server: a.Server, Method: a.Method, Name: a.Name},
		action, reason, err)
}

// allowRecorded records an allowance, and then stores it.
func allowRecorded(s *allowances.Store, a allowances.Allowance, events *pipeline.Pipeline) error {
	if err := s.CanAdd(a); err != nil {
		return err
	}
	if err := recordAllowance(events, a, "allow", describeAllow(a), nil); err != nil {
		return fmt.Errorf("record the allowance: %w", err)
	}
	if err := s.Add(a); err != nil {
		what := "it was not stored"
		if errors.Is(err, shared.ErrUnavailable) {
			what = "it is not known whether it was stored"
		}
		return errors.Join(err, recordAllowance(events, a, "disallow",
			"allowance "+a.ID+": "+what, err))
	}
	return nil
}

// describeAllow returns the reason of the record of an allowance.
func describeAllow(a allowances.Allowance) string {
	once := ""
	if a.Once {
		once = " for one message"
	}
	return fmt.Sprintf("allowance %s%s until %s, of %s by stage %q in record %d, by user id %d: %s",
		a.ID, once, a.Until.UTC().Format(time.RFC3339), a.Action, a.Stage, a.Record, a.User,
		a.Reason)
}

// disallowRecorded records that an allowance ends, and then removes it.
func disallowRecorded(s *allowances.Store, a allowances.Allowance, why string,
	events *pipeline.Pipeline) error {
	if err := recordAllowance(events, a, "disallow", "allowance "+a.ID+": "+why, nil); err != nil {
		return fmt.Errorf("record the removal: %w", err)
	}
	return s.Remove(a.ID)
}

// allow makes an allowance in a running Gatekit.
func (s *controlServer) allow(a *allowances.Allowance) error {
	s.gateway.mu.Lock()
	c := s.gateway.active.config
	s.gateway.mu.Unlock()
	switch {
	case !c.Allow.Enabled:
		return allowOffError(c.File)
	case a == nil || a.Log != realPath(s.config.Audit.File):
		return errors.New("the allowance belongs to another audit log")
	}
	store, err := s.gateway.allowanceStore()
	if err != nil {
		return err
	}
	if a.LogKey = ""; store.Shared != nil {
		a.Replica = replicaName(c)
	}
	if s.config.Audit.Key != "" {
		a.LogKey = realPath(s.config.Audit.Key)
	}
	a.User = os.Geteuid()
	defer s.gateway.allowed.look()
	return allowRecorded(store, *a, s.gateway.recording.events)
}

func allowOffError(file string) error {
	return fmt.Errorf("allowances are switched off in %s: [allow] enabled = false",
		cmp.Or(file, "the configuration"))
}

// disallow removes an allowance in a running Gatekit.
func (s *controlServer) disallow(id string) error {
	store, err := s.gateway.allowanceStore()
	if err != nil {
		return err
	}
	a, err := store.Get(id)
	if err != nil {
		return err
	}
	if store.Shared == nil && a.Log != realPath(s.config.Audit.File) {
		return fmt.Errorf("allowance %s belongs to the audit log %s", id, a.Log)
	}
	defer s.gateway.allowed.look()
	return disallowRecorded(store, a, removedBy(), s.gateway.recording.events)
}

func removedBy() string {
	return fmt.Sprintf("removed by gatekit allow remove, user id %d", os.Geteuid())
}

// allowOptions holds the flags of gatekit allow.
type allowOptions struct {
	source logSource
	reason string
	once   bool
	valid  time.Duration
	asJSON bool
}

func (p *program) allow() *cobra.Command {
	o := &allowOptions{}
	c := &cobra.Command{
		Use:   "allow [ID]",
		Short: "Let one denial, redaction or hidden item pass for a while, or list what may pass",
		Long: `Each denial, redaction and hidden item of a plugin or policy has an id in the audit
log. gatekit audit show --steps prints the ids. If a plugin is wrong, allow exactly this decision:
the same content, for the same principal, server and tool. What else the plugin finds is still
denied, redacted or hidden, also in the same message.

  gatekit audit show --steps --action deny --since 10m
  gatekit allow 7rkqkahsx3jdwsmlqxjgkbz2ze --reason "the README quotes an attack"

Then make the same call again. Clients are notified that a hidden item is shown. Of a denied
request, all params count. Of a redaction in a result, only the redacted value and its place count:
the rest may differ. A hidden item is shown, and can be used, as long as its definition stays the
same.

An allowance holds for an hour, or as long as --for says (at most 720h). With --once, it holds for
one message; for a hidden item, for one use of the item. Without ID, allow lists the allowances.

Allow records the allowance in the audit log that has the id, with your reason and user id, before
it takes effect. The records of the messages that it lets pass name the id (action allowed). Its end
is recorded, too. At most 1000 allowances are stored, in the folder allow of your state folder. Only
the user who runs Gatekit can make one.

If the configuration has [shared], an allowance that is made beside one replica holds at all of
them within a second, and each of them records it. --once then means one message of all replicas.
While the shared state is not available, nothing is allowed.

These decisions have no id and cannot be allowed: those of the rules roots/… and sandbox/…, of a
plugin or policy that failed or could not judge the message, and requests that need gatekit approve.
[allow] enabled = false in the configuration switches all allowances off.`,
		Example: `  gatekit allow
  gatekit allow 7rkqkahsx3jdwsmlqxjgkbz2ze --reason "a test key" --for 8h
  gatekit allow remove 7rkqkahsx3jdwsmlqxjgkbz2ze
  gatekit allow export > cases.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return o.list(cmd)
			}
			return o.allow(cmd, args[0])
		},
	}
	configFlag(c, &o.source.config)
	c.Flags().StringArrayVar(&o.source.args, "log", nil,
		"audit `log` that has the id: a file or a folder (default: that of the configuration, or "+
			"those of gatekit wrap); may be repeated")
	c.Flags().StringVar(&o.reason, "reason", "", "`why` the decision is wrong; it is recorded")
	c.Flags().BoolVar(&o.once, "once", false, "allow one message only")
	c.Flags().DurationVar(&o.valid, "for", allowances.DefaultFor,
		"`time` for which the allowance holds, at most 720h")
	c.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object for each allowance")
	c.AddCommand(allowRemove(), allowExport())
	return c
}

// list prints the allowances that hold.
func (o *allowOptions) list(cmd *cobra.Command) error {
	store, err := allowanceStore(nil, nil)
	if err != nil {
		return err
	}
	valid, _, err := store.List()
	if err != nil {
		return err
	}
	sharing, err := openSharing(cmd, o.source.config)
	if err != nil {
		return err
	}
	if sharing != nil {
		defer sharing.close()
		more, _, err := sharing.allowances().List()
		if err != nil {
			return err
		}
		valid = append(valid, more...)
	}
	if o.asJSON {
		for _, a := range valid {
			if err := printJSON(cmd.OutOrStdout(), a); err != nil {
				return err
			}
		}
		return nil
	}
	if len(valid) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is allowed; gatekit audit show --steps prints "+
			"the ids of denials, redactions and hidden items")
		return nil
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, a := range valid {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", a.ID, describeAllowance(a), untilText(a),
			display.Quote(a.Reason, maxApprovalReason))
	}
	return w.Flush()
}

// untilText returns how long an allowance holds.
func untilText(a allowances.Allowance) string {
	text := "until " + a.Until.Local().Format(time.DateTime)
	if a.Once {
		return "once, " + text
	}
	return text
}

// describeAllowance describes an allowance for a terminal. It escapes and cuts the names, because
// they come from clients and servers.
func describeAllowance(a allowances.Allowance) string {
	text := display.EscapeLine(a.Stage, maxApprovalName) + " " +
		display.EscapeLine(a.Action, maxApprovalName) + ": " +
		display.EscapeLine(a.Method, maxApprovalName)
	if a.Name != "" {
		text += " " + display.Quote(a.Name, maxApprovalName)
	}
	text += " at " + display.EscapeLine(a.Server, maxApprovalName)
	if a.Principal != "" {
		text += " by " + display.Quote(a.Principal, maxApprovalName)
	}
	return text
}

// allow makes an allowance. The process that writes the log with the id records and stores it. If
// no such process runs, allow does both itself.
func (o *allowOptions) allow(cmd *cobra.Command, id string) error {
	now := time.Now()
	a := allowances.Allowance{ID: id, Reason: o.reason, Once: o.once, Made: now,
		Until: now.Add(o.valid), User: os.Geteuid()}
	if err := a.Validate(now); err != nil {
		return err
	}
	logs, key, err := o.logs()
	if err != nil {
		return reportMistakes(cmd, err, false)
	}
	if err := findIntervention(cmd.Context(), logs, &a); err != nil {
		return readError(err)
	}
	a.LogKey = keyOfLog(a.Log, key)
	_, err = callControl(a.Log, controlRequest{Command: "allow", Allowance: &a})
	if errors.Is(err, errNoProcess) {
		err = o.allowAlone(cmd, a)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "allowed %s: %s\n", untilText(a), describeAllowance(a))
	if a.Cause != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "    although: %s\n", display.Quote(a.Cause,
			maxApprovalReason))
	}
	return nil
}

// allowAlone makes an allowance while no process writes its log. If this is the log of a
// configuration with [shared], the replicas share the allowance.
func (o *allowOptions) allowAlone(cmd *cobra.Command, a allowances.Allowance) error {
	store, err := allowanceStore(nil, nil)
	if err != nil {
		return err
	}
	sharing, err := openSharing(cmd, o.source.config)
	if err != nil {
		return err
	}
	if sharing != nil {
		defer sharing.close()
		if a.Log == realPath(sharing.config.Audit.File) {
			store, a.Replica = sharing.allowances(), replicaName(sharing.config)
		}
	}
	return recordIn(a.Log, a.LogKey, func(events *pipeline.Pipeline) error {
		return allowRecorded(store, a, events)
	})
}

// logs returns the logs that may have the id, the newest first, and the key of the log of the
// configuration.
func (o *allowOptions) logs() (logs []auditLog, key string, err error) {
	if len(o.source.args) == 0 {
		c, err := loadConfig(o.source.config)
		if err == nil {
			if key = c.Audit.Key; !c.Allow.Enabled {
				return nil, "", allowOffError(c.File)
			}
		}
	}
	if logs, err = o.source.logs(); err != nil {
		return nil, "", err
	}
	written := map[auditLog]time.Time{}
	for _, l := range logs {
		if info, err := os.Stat(l.file); err == nil {
			written[l] = info.ModTime()
		}
	}
	slices.SortStableFunc(logs, func(a, b auditLog) int { return written[b].Compare(written[a]) })
	return logs, key, nil
}

// keyOfLog returns the file of the key of a log, or "" for the default file. The parameter
// configured is the key in the configuration. All logs of gatekit wrap have one key beside them.
func keyOfLog(log, configured string) string {
	if configured != "" {
		return realPath(configured)
	}
	shared := filepath.Join(filepath.Dir(log), "gatekit.key")
	if _, err := os.Stat(log + ".key"); err != nil {
		if _, err := os.Stat(shared); err == nil {
			return shared
		}
	}
	return ""
}

// findIntervention fills in the description of the intervention that a allows, from the newest log
// that has its id.
func findIntervention(ctx context.Context, logs []auditLog, a *allowances.Allowance) error {
	var failed []error
	for _, l := range logs {
		for r, err := range recordsWith(ctx, l, a.ID) {
			if err != nil {
				failed = append(failed, err)
				break
			}
			for _, s := range r.Steps {
				item := slices.Index(s.HiddenIDs, a.ID)
				if item < 0 && !slices.Contains(s.IDs, a.ID) {
					continue
				}
				a.Principal, a.Server, a.Method, a.Name = r.Principal, r.Server, r.Method, r.Name
				if item >= 0 && item < len(s.Hidden) {
					a.Name = s.Hidden[item]
				}
				a.Stage, a.Action, a.Cause, a.Record = s.Stage, s.Action, s.Reason, r.Seq
				a.Log = realPath(l.file)
			}
		}
		if a.Log != "" {
			return nil
		}
	}
	return errors.Join(append(failed, fmt.Errorf("no record has the id %s\nhint: gatekit audit "+
		"show --steps prints the ids; name another log with --log", a.ID))...)
}

// recordsWith returns the records of a log that contain one of the ids.
func recordsWith(ctx context.Context, l auditLog, ids ...string) func(func(audit.Record,
	error) bool) {
	return func(yield func(audit.Record, error) bool) {
		for line, err := range (&audit.Reader{File: l.file}).Lines(ctx) {
			if err != nil {
				yield(audit.Record{}, err)
				return
			}
			text := string(line)
			if !slices.ContainsFunc(ids, func(id string) bool {
				return strings.Contains(text, id)
			}) {
				continue
			}
			r, err := audit.ParseRecord([]byte(text))
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

func allowRemove() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "remove ID",
		Short: "End an allowance",
		Long: `Remove ends an allowance at once, and records this in the audit log in which the
allowance was recorded. If the configuration has [shared], any replica can end an allowance of all
of them: it is recorded in its log, and the others record it within a second.`,
		Example: `  gatekit allow remove 7rkqkahsx3jdwsmlqxjgkbz2ze`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := allowanceStore(nil, nil)
			if err != nil {
				return err
			}
			sharing, err := openSharing(cmd, path)
			if err != nil {
				return err
			}
			var a allowances.Allowance
			err = allowances.ErrNone
			if sharing != nil {
				defer sharing.close()
				if a, err = sharing.allowances().Get(args[0]); err == nil {
					store = sharing.allowances()
					a.Log = realPath(sharing.config.Audit.File)
					a.LogKey = sharing.config.Audit.Key
				}
			}
			if errors.Is(err, allowances.ErrNone) {
				a, err = store.Get(args[0])
			}
			if err != nil {
				return err
			}
			_, err = callControl(a.Log, controlRequest{Command: "disallow", ID: a.ID})
			if errors.Is(err, errNoProcess) {
				err = recordIn(a.Log, a.LogKey, func(events *pipeline.Pipeline) error {
					return disallowRecorded(store, a, removedBy(), events)
				})
			}
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "removed: %s\n", describeAllowance(a))
			}
			return err
		},
	}
	configFlag(c, &path)
	return c
}

func allowExport() *cobra.Command {
	source := &logSource{}
	c := &cobra.Command{
		Use:   "export [LOG…]",
		Short: "Print the decisions that were allowed, as test cases",
		Long: `Export prints a line of JSON for each record of a decision that was allowed: the
record in which a plugin or policy denied, redacted or hid something, and the records of the
messages that passed because of the allowance. Each line is the audit record, with the member
"allowance": its id and your reason. Like other records, they are test cases: gatekit policy replay
and gatekit policy explain read them.

What is missing: the log never has the body of a message that was denied, nor what was redacted. The
body of a message that passed because of an allowance is in the log, and in the test case, only with
[audit] bodies = "redacted". So allow the decision and make the call again before you export.

Export reads the log of the configuration, or the logs of gatekit wrap. Expired allowances are
exported, too, as long as their records are in the log.`,
		Example: `  gatekit allow export > cases.jsonl
  gatekit policy replay cases.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			source.args = args
			logs, err := source.logs()
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			return exportAllowances(cmd, logs)
		},
	}
	configFlag(c, &source.config)
	return c
}

// exportedAllowance is the member "allowance" of a test case.
type exportedAllowance struct {
	ID     string `json:"id"`
	Reason string `json:"reason"` // the reason of the record of the allowance
}

// exportAllowances prints the records of all decisions that were allowed, with their allowances.
func exportAllowances(cmd *cobra.Command, logs []auditLog) error {
	reasons := map[string]string{} // by id
	for _, l := range logs {
		for r, err := range recordsWith(cmd.Context(), l, `"action":"allow"`) {
			if err != nil {
				return readError(err)
			}
			words := strings.Fields(r.Reason)
			if r.IsEvent() && r.Action == "allow" && len(words) > 1 && allowances.IsID(words[1]) {
				reasons[words[1]] = r.Reason
			}
		}
	}
	records, bodies := 0, 0
	for _, l := range logs {
		for r, err := range recordsWith(cmd.Context(), l, `"ids":[`, `hidden_ids":[`,
			`"allowed":[`) {
			if err != nil {
				return readError(err)
			}
			id := ""
			for _, s := range r.Steps {
				for _, found := range slices.Concat(s.Allowed, s.IDs, s.HiddenIDs) {
					if _, ok := reasons[found]; ok && id == "" {
						id = found
					}
				}
			}
			if id == "" {
				continue
			}
			records++
			if r.After != nil && len(r.After.Body) > 0 {
				bodies++
			}
			extra, err := json.Marshal(exportedAllowance{id, reasons[id]})
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s,\"allowance\":%s}\n",
				r.Line[:len(r.Line)-1], extra); err != nil {
				return readError(err)
			}
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s exported, %d with a body\n",
		plural(records, "record"), plural(len(reasons), "allowance"), bodies)
	return nil
}

// allowanceIDs returns the ids of the allowances, for completion.
func allowanceIDs() (ids []string) {
	store, err := allowanceStore(nil, nil)
	if err != nil {
		return nil
	}
	valid, _, err := store.List()
	if err != nil {
		return nil
	}
	for _, a := range valid {
		ids = append(ids, a.ID+"\t"+describeAllowance(a))
	}
	return ids
}

// maxCompletionBytes is the length of the end of a log in which recentIDs looks for ids.
const maxCompletionBytes = 256 << 10

// recentIDs returns ids at the end of the newest log, for completion.
func recentIDs() (ids []string) {
	logs, _, err := (&allowOptions{}).logs()
	if err != nil || len(logs) == 0 {
		return nil
	}
	f, err := os.Open(logs[0].file)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	b := make([]byte, min(info.Size(), maxCompletionBytes))
	if _, err := f.ReadAt(b, info.Size()-int64(len(b))); err != nil {
		return nil
	}
	lines := strings.Split(string(b), "\n")
	slices.Reverse(lines) // the newest records first
	for _, line := range lines {
		r, err := audit.ParseRecord([]byte(line))
		if err != nil {
			continue
		}
		for _, s := range r.Steps {
			for _, id := range slices.Concat(s.IDs, s.HiddenIDs) {
				if id != "" && !slices.ContainsFunc(ids, func(known string) bool {
					return strings.HasPrefix(known, id)
				}) {
					ids = append(ids, id+"\t"+display.EscapeLine(s.Stage+" "+s.Action+" "+
						r.Method+" "+r.Name, maxApprovalName))
				}
			}
		}
	}
	return ids
}
