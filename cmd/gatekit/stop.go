package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
)

// stopOptions holds the flags of gatekit stop and gatekit resume.
type stopOptions struct {
	path   string
	scope  stop.Scope
	reason string
	all    bool
	asJSON bool
}

func (o *stopOptions) flags(c *cobra.Command) {
	configFlag(c, &o.path)
	c.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object")
}

func (o *stopOptions) scopeFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.scope.Server, "server", "", "only what belongs to this `server`")
	c.Flags().StringVar(&o.scope.Principal, "principal", "",
		"only what belongs to the principal with this `id`")
	c.Flags().StringVar(&o.scope.Session, "session", "",
		"only what belongs to this `session` of the audit log")
}

// stopTargets are the running and future processes of Gatekit that share one folder of stops.
type stopTargets struct {
	folder   string
	onlyWrap bool   // the processes of gatekit wrap
	log      string // of the configuration; in it, a command records if no process runs
	key      string
	config   *config.Config // nil with onlyWrap
}

// targets returns the processes of the configuration, or those of gatekit wrap if there is none.
func (o *stopOptions) targets(cmd *cobra.Command) (t stopTargets, err error) {
	c, err := loadConfig(o.path)
	switch {
	case err == nil:
		t.log, t.key, t.config = c.Audit.File, c.Audit.Key, c
		if scoped := o.scope.Server; scoped != "" && !slices.ContainsFunc(c.Servers,
			func(s config.Server) bool { return s.Name == scoped }) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s has no server %s\n", c.File,
				display.Quote(scoped, 100))
		}
	case o.path != "" || !errors.Is(err, errNoConfig):
		return t, reportMistakes(cmd, err, o.asJSON)
	default:
		c = nil
		dir, err := stateFolder()
		if err != nil {
			return t, err
		}
		dir = filepath.Join(dir, "audit")
		t.onlyWrap, t.key = true, filepath.Join(dir, "gatekit.key")
		t.log = filepath.Join(dir, fmt.Sprintf("stop-%s-%d.jsonl",
			time.Now().UTC().Format("20060102T150405"), os.Getpid()))
	}
	t.folder, err = stopFolder(c)
	return t, err
}

// each sends a request to every running process. It returns how many were reached, and how many
// calls they ended.
func (t stopTargets) each(request controlRequest) (reached, ended int, err error) {
	names := []string{socketName(t.log)}
	if t.onlyWrap {
		if names, err = controlSockets(); err != nil {
			return 0, 0, err
		}
		request.OnlyWrap = true
	}
	var errs []error
	for _, name := range names {
		response, err := callControlSocket(name, request)
		if errors.Is(err, errNoProcess) || err == nil && response.Skipped {
			continue
		}
		reached++
		ended += response.Ended
		errs = append(errs, err)
	}
	return reached, ended, errors.Join(errs...)
}

// change calls do with the stops in the folder and a pipeline that records. It is for the time when
// no process runs.
func (t stopTargets) change(do func(*stop.Keeper, *pipeline.Pipeline) error) error {
	if err := os.MkdirAll(filepath.Dir(t.log), 0o700); err != nil {
		return err
	}
	return recordInNew(t.log, t.key, func(events *pipeline.Pipeline) error {
		return do(stop.Open(t.folder), events)
	})
}

// stopResult is the JSON of gatekit stop and gatekit resume.
type stopResult struct {
	Scope     stop.Scope `json:"scope"`
	Processes int        `json:"processes"` // running ones that did it
	Ended     int        `json:"calls_ended"`
	All       bool       `json:"all,omitempty"`
}

func (p *program) stopCommand() *cobra.Command {
	o := &stopOptions{}
	c := &cobra.Command{
		Use:   "stop --reason TEXT",
		Short: "Refuse all traffic at once, or that of a server, a principal or a session",
		Long: `Stop refuses every message between clients and servers from now on, in both
directions: for example because an agent does harm. Calls in flight are cancelled, and their clients
get an error that names you by your user id. Gatekit itself keeps running, and so do its servers:
what a server has begun may go on there.

With --server, --principal or --session, only the messages that match all of these flags are
refused. The stop is recorded (action stop_traffic), and holds until gatekit resume: also after a
restart or a crash. If the stops in force cannot be read, everything is stopped.

Without --config and without a gatekit.toml, stop reaches all processes of gatekit wrap, and also
those that clients start later. A file ([stop] file), the signal SIGUSR1 and POST /stop of the admin
endpoint ([admin] token) stop everything, too.`,
		Example: `  gatekit stop --reason "the agent deletes files"
  gatekit stop --server github --reason "incident 4711"
  gatekit stop --principal token:ci --reason "token leaked"
  gatekit stop status
  gatekit resume`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.stop(cmd) },
	}
	o.flags(c)
	o.scopeFlags(c)
	c.Flags().StringVar(&o.reason, "reason", "", "`why`; it is recorded")
	c.AddCommand(stopStatus())
	return c
}

func (o *stopOptions) stop(cmd *cobra.Command) error {
	s := stop.Stop{Scope: o.scope, At: time.Now(), Reason: o.reason,
		By: fmt.Sprintf("user id %d with gatekit stop", os.Geteuid())}
	if err := s.Validate(); err != nil {
		return err
	}
	t, err := o.targets(cmd)
	if err != nil {
		return err
	}
	reached, ended, err := t.each(controlRequest{Command: "stop", Stop: &s})
	if reached == 0 && err == nil {
		err = t.change(func(k *stop.Keeper, events *pipeline.Pipeline) error {
			if _, err := k.Stop(s); err != nil {
				return err
			}
			return errors.Join(recordStop(events, s.Scope, "stop_traffic", s.Scope.String()+
				", by "+s.By+": "+s.Reason), t.publish(cmd.Context(), k, s))
		})
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), stopResult{Scope: s.Scope, Processes: reached,
			Ended: ended})
	}
	if reached == 0 {
		text := "stopped %s; no Gatekit runs: it holds from the next start\n"
		if t.isShared() {
			text = "stopped %s in the other replicas; no Gatekit runs here: here, it holds from " +
				"the next start\n"
		}
		fmt.Fprintf(cmd.OutOrStdout(), text, s.Scope)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "stopped %s in %s; %s ended\n", s.Scope,
		plural(reached, "running Gatekit"), plural(ended, "call"))
	return nil
}

func (p *program) resumeCommand() *cobra.Command {
	o := &stopOptions{}
	c := &cobra.Command{
		Use:   "resume",
		Short: "End a stop",
		Long: `Resume ends the stop of exactly the same scope as its flags: without flags, the stop
of everything. With --all, it ends every stop, also the one that holds because the stops in force
cannot be read. Only this command and POST /resume of the admin endpoint end a stop; each end is
recorded (action resume_traffic).

Sessions go on as before the stop. Cancelled calls are not repeated: that is up to the clients.`,
		Example: `  gatekit resume
  gatekit resume --server github
  gatekit resume --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.resume(cmd) },
	}
	o.flags(c)
	o.scopeFlags(c)
	c.Flags().BoolVar(&o.all, "all", false, "end every stop")
	return c
}

func (o *stopOptions) resume(cmd *cobra.Command) error {
	if o.all && o.scope != (stop.Scope{}) {
		return errors.New("--all ends every stop, and the other flags name one of them\n" +
			"hint: leave out --all, or the other flags")
	}
	t, err := o.targets(cmd)
	if err != nil {
		return err
	}
	r := resumeRequest{Scope: o.scope, All: o.all}
	reached, _, err := t.each(controlRequest{Command: "resume", Resume: &r})
	if reached == 0 && err == nil {
		err = t.change(func(k *stop.Keeper, events *pipeline.Pipeline) error {
			r.By = fmt.Sprintf("user id %d with gatekit resume", os.Geteuid())
			return t.resume(cmd.Context(), k, events, r)
		})
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), stopResult{Scope: r.Scope, Processes: reached,
			All: r.All})
	}
	what := r.Scope.String()
	if r.All {
		what = "everything, all stops"
	}
	fmt.Fprintln(cmd.OutOrStdout(), "resumed "+what)
	return nil
}

func stopStatus() *cobra.Command {
	o := &stopOptions{}
	c := &cobra.Command{
		Use:   "status",
		Short: "List the stops in force",
		Long: `Status lists the stops in force, the oldest first. It exits with 1 if the stops
cannot be read: everything is stopped then.

If the configuration has [shared], status lists the stops of all replicas, too. A stop that is not
"in all replicas" was made while the shared state was not available. If it is not available now,
status lists the stops that this replica knows, and exits with 1: after ten seconds, a replica stops
everything then.`,
		Example: `  gatekit stop status
  gatekit stop status --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.status(cmd) },
	}
	o.flags(c)
	return c
}

// stopStatusResult is the JSON of gatekit stop status.
type stopStatusResult struct {
	Stopped []stop.Stop `json:"stopped"` // with "shared" if it is in all replicas
	Fault   string      `json:"fault,omitempty"`
	// why it is not known what the other replicas have stopped
	SharedFault string `json:"shared_fault,omitempty"`
}

func (o *stopOptions) status(cmd *cobra.Command) error {
	t, err := o.targets(cmd)
	if err != nil {
		return err
	}
	k := stop.Open(t.folder)
	fault, stops := k.Fault(), k.List()
	all, isShared, sharedFault := stopsOfReplicas(cmd, o.path)
	if isShared && sharedFault == nil {
		stops = mergeStops(stops, all)
	}
	if o.asJSON {
		r := stopStatusResult{Stopped: stops}
		if r.Stopped == nil {
			r.Stopped = []stop.Stop{}
		}
		if fault != nil {
			r.Fault = fault.Error()
		}
		if sharedFault != nil {
			r.SharedFault = sharedFault.Error()
		}
		if err := printJSON(cmd.OutOrStdout(), r); err != nil || fault == nil &&
			sharedFault == nil {
			return err
		}
		return errReported
	}
	if fault != nil {
		return fmt.Errorf("everything is stopped, because the stops cannot be read: %w\nhint: "+
			"gatekit resume --all", fault)
	}
	for _, s := range stops {
		where := ""
		if isShared && s.Shared && sharedFault == nil {
			where = ", in all replicas"
		} else if isShared {
			where = ", in this replica"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s%s, by %s: %s\n",
			s.At.Local().Format(time.DateTime), s.Scope, where, display.EscapeLine(s.By, 500),
			display.EscapeLine(s.Reason, 500))
	}
	if sharedFault != nil {
		return fmt.Errorf("it is not known what the other replicas have stopped: %w", sharedFault)
	}
	if len(stops) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is stopped")
	}
	return nil
}

// stopsOfReplicas returns the stops that the replicas of the configuration at path share. isShared
// is false if the configuration has no [shared].
func stopsOfReplicas(cmd *cobra.Command, path string) (all []stop.Stop, isShared bool, err error) {
	sharing, err := openSharing(cmd, path)
	if err != nil || sharing == nil {
		return nil, err != nil, err
	}
	defer sharing.close()
	l, err := sharing.state.List(cmd.Context(), stopKind, 0)
	if err == nil {
		all, err = decodeStops(l.Entries)
	}
	return all, true, err
}

// mergeStops returns the stops of this replica, known, and those of all, the oldest first. Only the
// latter are shared.
func mergeStops(known, all []stop.Stop) []stop.Stop {
	merged := slices.Clone(all)
	for _, s := range known {
		if !slices.ContainsFunc(all, func(o stop.Stop) bool { return o.Scope == s.Scope }) {
			s.Shared = false
			merged = append(merged, s)
		}
	}
	slices.SortStableFunc(merged, func(a, b stop.Stop) int { return a.At.Compare(b.At) })
	return merged
}
