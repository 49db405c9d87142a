package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"gatekit/audit"
	"gatekit/core/config"
	"gatekit/core/pins"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
)

func (p *program) doctor() *cobra.Command {
	var path string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what keeps Gatekit from working or protecting as configured",
		Long: `Doctor does everything that gatekit check does: it starts each server and plugin
once, and tests the policies. Then it looks at what surrounds them:
  - attack   sends a harmless attack through all plugins and policies, for each library rule in
             force: the rule must act on it;
  - [audit]  verifies the audit log with its key and its anchor, if the log has at most 256 MiB, and
             looks at the modes of its files and the space on its disk;
  - [pins]   tells which servers are not pinned, and what waits for an approval;
  - clients  tells which servers of the MCP clients on this machine no Gatekit is in front of;
  - sinks    connects to each receiver and each witness, and sends nothing;
  - clock    compares the clock with the last record;
  - PATH     tells which commands of servers a desktop client would not find.

Each result is one line: ok, note (worth knowing, but no fault) or FAIL. The exit code is 1 if a
result is FAIL, and 0 otherwise. Doctor changes nothing, and a running Gatekit may use the same
configuration.

If there is no configuration, as after gatekit import, doctor looks at the clients and at the audit
logs of gatekit wrap.`,
		Example: `  gatekit doctor
  gatekit doctor --config /etc/gatekit/gatekit.toml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := &checkReport{out: cmd.OutOrStdout(), asJSON: asJSON, mask: p.masked.mask,
				color: paletteFor(cmd.OutOrStdout()), width: len("[telemetry]")}
			if _, err := loadConfig(path); path == "" && errors.Is(err, errNoConfig) {
				return diagnoseWithoutConfig(cmd.Context(), r)
			}
			cfg, err := p.loadForReport(cmd, path, asJSON)
			if err != nil {
				return err
			}
			d := &diagnosis{report: r, config: cfg}
			p.checkAll(cmd.Context(), r, cfg, d.attacks)
			if cfg.Cluster != nil {
				r.ok("cluster", "[cluster]", "digest of the configuration, as in the metric "+
					"gatekit_configuration of each replica: "+configDigest(cfg))
			}
			d.audit(cmd.Context(), cfg.Audit)
			d.pins(cmd.Context())
			d.stops(cfg)
			d.replicas(cmd.Context())
			d.clients()
			d.receivers(cmd.Context())
			d.desktopPath()
			return r.result()
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object for each result or mistake, on stdout")
	return c
}

// diagnosis adds the checks of gatekit doctor to those of gatekit check.
type diagnosis struct {
	report *checkReport
	config *config.Config
}

// diagnoseWithoutConfig looks at what gatekit import and gatekit wrap leave.
func diagnoseWithoutConfig(ctx context.Context, r *checkReport) error {
	d := &diagnosis{report: r, config: &config.Config{}}
	r.note("configuration", "config", "there is no gatekit.toml: only what gatekit wrap does is "+
		"looked at")
	d.clients()
	d.stops(nil)
	dir, err := stateFolder()
	var logs []auditLog
	if err == nil {
		logs, err = logsIn(filepath.Join(dir, "audit"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fail("audit", auditCheck, err)
	}
	for _, l := range logs {
		c := config.Audit{File: l.file, Anchor: l.anchor}
		if _, err := os.Stat(l.file + ".key"); errors.Is(err, fs.ErrNotExist) {
			c.Key = filepath.Join(dir, "audit", "gatekit.key") // of all logs of gatekit wrap
		}
		d.audit(ctx, c)
	}
	return r.result()
}

// clients tells which servers of MCP clients are not behind Gatekit.
func (d *diagnosis) clients() {
	files, err := findClientFiles(nil, "")
	if err != nil {
		d.report.fail("client", "clients", err)
		return
	}
	all := inventory(files)
	governed := 0
	for _, s := range all {
		what := oneLine(s.Client + " " + cmp.Or(s.Server, s.File))
		switch s.State {
		case stateWrapped, stateGatekit:
			governed++
		case stateUnreadable:
			d.report.note("client", "clients", what+": "+oneLine(s.Reason))
		case stateUnwrapped:
			d.report.note("client", "clients", what+": not behind Gatekit; gatekit import wraps it")
		default:
			d.report.note("client", "clients", what+": not behind Gatekit: "+oneLine(s.Reason))
		}
	}
	if governed == len(all) {
		d.report.ok("client", "clients", fmt.Sprintf("%s of MCP clients, none without Gatekit",
			plural(len(all), "server")))
	}
}

// stops tells what is stopped. The parameter cfg is nil for gatekit wrap.
func (d *diagnosis) stops(cfg *config.Config) {
	folder, err := stopFolder(cfg)
	if err != nil {
		d.report.note("stop", "stop", "a stop does not survive a restart: "+err.Error())
		return
	}
	k := stop.Open(folder)
	if fault := k.Fault(); fault != nil {
		d.report.fail("stop", "stop", fmt.Errorf("everything is stopped, because the stops cannot "+
			"be read: %w\nhint: gatekit resume --all", fault))
		return
	}
	for _, s := range k.List() {
		d.report.note("stop", "stop", oneLine(fmt.Sprintf("stopped: %s, by %s: %s", s.Scope, s.By,
			s.Reason)))
	}
	if len(k.List()) == 0 {
		d.report.ok("stop", "stop", "nothing is stopped")
	}
}

// attacks sends a harmless attack through the stages for each library rule in force.
func (d *diagnosis) attacks(ctx context.Context, stages []pipeline.StageConfig) {
	policy := d.config.Policy
	if policy == nil || !slices.ContainsFunc(stages, func(s pipeline.StageConfig) bool {
		return s.Name == policyStage
	}) {
		return
	}
	var without []string
	for _, rule := range policy.Rules {
		a, ok := harmlessAttackOn(rule)
		if !ok {
			without = append(without, rule)
			continue
		}
		switch step, err := a.send(ctx, d.config.Servers[0].Name, stages); {
		case err != nil:
			d.report.fail("attack", "attack", fmt.Errorf("%s: %s: %w", rule, a.description, err))
		case step.Stage == "":
			d.report.fail("attack", "attack", fmt.Errorf("%s: %s: the rule does not act on it",
				rule, a.description))
		case step.Stage != policyStage:
			d.report.note("attack", "attack", fmt.Sprintf("%s: %s: plugin %s denies it before the "+
				"rule", rule, a.description, step.Stage))
		case strings.HasPrefix(step.Action, "would_"):
			d.report.note("attack", "attack", fmt.Sprintf("%s: %s: %s, because the mode is shadow",
				rule, a.description, step.Action))
		default:
			d.report.ok("attack", "attack", fmt.Sprintf("%s: %s: %s (%s)", rule, a.description,
				step.Action, step.Reason))
		}
	}
	if len(without) > 0 {
		d.report.note("attack", "attack", "no attack, because it depends on the settings: "+
			strings.Join(without, ", ")+"; gatekit policy explain shows what they decide")
	}
}

// maxVerified limits the size of an audit log that doctor verifies, in bytes. At 300 MB/s, it takes
// about a second.
const maxVerified = 256 << 20

// auditCheck is the name of the results about audit logs.
const auditCheck = "[audit]"

// audit verifies an audit log, and looks at its files and their disk.
func (d *diagnosis) audit(ctx context.Context, c config.Audit) {
	segments, err := audit.Segments(c.File)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(segments) == 0 {
		d.report.note("audit", auditCheck, "there is no record yet in "+displayPath(c.File))
		return
	}
	if err != nil {
		d.report.fail("audit", auditCheck, err)
		return
	}
	var size int64
	var written time.Time
	for _, file := range segments {
		info, err := os.Stat(file)
		if err != nil {
			d.report.fail("audit", auditCheck, err)
			return
		}
		size += info.Size()
		if info.ModTime().After(written) {
			written = info.ModTime()
		}
	}
	d.verify(ctx, c, size)
	d.modes(c, append(segments, filepath.Dir(c.File)))
	d.disk(filepath.Dir(c.File))
	if ahead := time.Until(written); ahead > time.Minute {
		d.report.fail("clock", "clock", fmt.Errorf("it is %s behind the last record of the audit "+
			"log: records, tokens and approvals would have wrong times\nhint: set the clock, such "+
			"as by NTP", ahead.Round(time.Second)))
	} else {
		d.report.ok("clock", "clock", "not behind the last record of the audit log")
	}
}

// verify verifies an audit log of this size, in bytes.
func (d *diagnosis) verify(ctx context.Context, c config.Audit, size int64) {
	if size > maxVerified {
		d.report.note("audit", auditCheck, fmt.Sprintf("not verified, because it has %d MiB: "+
			"run gatekit audit verify", size>>20))
		return
	}
	o, log := &verifyOptions{}, auditLog{file: c.File, anchor: c.Anchor}
	key, err := o.readKey(log)
	if err == nil && key == nil {
		err = fmt.Errorf("its public key %s is missing", displayPath(audit.PublicKeyFile(c.File)))
	}
	if err != nil {
		d.report.fail("audit", auditCheck, err)
		return
	}
	done, notes, err := o.run(ctx, log, key, nil)
	if err != nil {
		d.report.fail("audit", auditCheck, err)
		return
	}
	var text strings.Builder
	printVerification(&text, c.File, key, done)
	for _, n := range notes {
		text.WriteString(n + "\n")
	}
	d.report.ok("audit", auditCheck, strings.TrimSpace(text.String()))
}

// modes reports files of the audit log that other users can read or change.
func (d *diagnosis) modes(c config.Audit, files []string) {
	key := cmp.Or(c.Key, c.File+".key")
	var bad []string
	for _, file := range append(files, key) {
		info, err := os.Stat(file)
		if err != nil {
			d.report.fail("audit", auditCheck, err)
			return
		}
		forbidden := fs.FileMode(0o022)
		if file == key {
			forbidden = 0o077
		}
		if mode := info.Mode().Perm(); mode&forbidden != 0 {
			bad = append(bad, fmt.Sprintf("%s has the mode %04o\nhint: chmod %04o %s",
				displayPath(file), mode, mode&^forbidden, shellQuote(file)))
		}
	}
	if len(bad) > 0 {
		d.report.fail("audit", auditCheck, fmt.Errorf("other users can forge the audit log: %s",
			strings.Join(bad, "\n")))
		return
	}
	d.report.ok("audit", auditCheck, "other users can neither write the log nor read its key")
}

// minFree is the least free space, in bytes, that doctor finds enough.
const minFree = 1 << 30

func (d *diagnosis) disk(folder string) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		d.report.fail("audit", auditCheck, fmt.Errorf("free space of %s: %w", displayPath(folder),
			err))
		return
	}
	free := s.Bavail * uint64(s.Bsize)
	text := fmt.Sprintf("%d MiB free on the disk of %s", free>>20, displayPath(folder))
	if free < minFree {
		d.report.fail("audit", auditCheck, fmt.Errorf("only %s: on a full disk Gatekit denies "+
			"every message\nhint: make space, or let [audit] keep_for or keep_files remove old "+
			"records", text))
		return
	}
	d.report.ok("audit", auditCheck, text)
}

// pins reports servers that are not pinned, and what waits for an approval.
func (d *diagnosis) pins(ctx context.Context) {
	const name = "[pins]"
	if d.config.Pins == nil {
		d.report.note("pins", name, "servers may change their tools unnoticed: there is no "+
			"[pins]; gatekit pin --help shows what it does")
		return
	}
	lock, err := pins.Read(d.config.Pins.File)
	if err != nil {
		d.report.fail("pins", name, err)
		return
	}
	shared, done, err := openSharedPins(ctx, d.config)
	if err != nil {
		d.report.note("pins", name, oneLine("only the lock file is looked at: "+err.Error()))
		shared, done = nil, func() {}
	}
	defer done()
	lock = shared.Effective(lock)
	var missing []string
	for _, s := range d.config.Servers {
		if lock.Servers[s.Name] == nil {
			missing = append(missing, s.Name)
		}
	}
	if len(missing) > 0 {
		d.report.fail("pins", name, fmt.Errorf("not in %s: %s\nhint: gatekit pin %s",
			displayPath(d.config.Pins.File), strings.Join(missing, ", "),
			strings.Join(missing, " ")))
	}
	w, err := waitingOf(d.config, shared)
	if err != nil {
		d.report.fail("pins", name, err)
		return
	}
	var waiting []string
	for _, s := range d.config.Servers {
		switch selected, err := w.selected(lock, s.Name, nil); {
		case errors.Is(err, errNothingWaits):
		case err != nil:
			d.report.fail("pins", name, err)
			return
		default:
			waiting = append(waiting, fmt.Sprintf("%s (%s)", s.Name, plural(len(selected.changes),
				"change")))
		}
	}
	switch {
	case len(waiting) > 0:
		d.report.note("pins", name, "waiting for approval: "+strings.Join(waiting, ", ")+
			"; gatekit pin approve shows the changes")
	case len(missing) == 0:
		d.report.ok("pins", name, fmt.Sprintf("%s pinned in %s; nothing waits for approval",
			plural(len(lock.Servers), "server"), displayPath(d.config.Pins.File)))
	}
}

// connectTimeout limits the time to connect to a receiver.
const connectTimeout = 5 * time.Second

// receivers connects to the receivers of the sinks and of the telemetry, all at the same time.
func (d *diagnosis) receivers(ctx context.Context) {
	var group sync.WaitGroup
	check := func(kind, name, address string) {
		group.Go(func() {
			network, host, err := receiverAddress(address)
			if err == nil && network == "" {
				return
			}
			if err == nil {
				dialer := net.Dialer{Timeout: connectTimeout}
				var c net.Conn
				if c, err = dialer.DialContext(ctx, network, host); err == nil {
					err = c.Close()
				}
			}
			if err != nil {
				d.report.fail(kind, name, fmt.Errorf("connect to %s: %w", address, err))
				return
			}
			d.report.ok(kind, name, address+" can be reached")
		})
	}
	for _, c := range d.config.Audit.Sinks {
		if c.URL != "" {
			check("sink", c.Name, c.URL)
		}
	}
	for _, w := range d.config.Audit.Witnesses {
		name, _, _ := strings.Cut(w.Key, "+")
		check("witness", name, w.String())
	}
	if t := d.config.Telemetry; t.URL != "" {
		check("sink", "[telemetry]", t.URL)
	}
	group.Wait()
}

// receiverAddress returns the network and the address that a URL of a receiver leads to. The
// network is "" if nothing can be told by connecting: the receiver does not answer, or is behind a
// proxy.
func receiverAddress(address string) (network, host string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", "", err
	}
	switch u.Scheme {
	case "unix":
		return "unix", u.Path, nil
	case "udp":
		return "", "", nil
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err != nil || proxy != nil {
		return "", "", err
	}
	port := map[string]string{"http": "80", "https": "443", "tcp": "514", "tls": "6514"}[u.Scheme]
	return "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), nil
}

// desktopPaths are the values of PATH of programs that a desktop starts, without the shell's files.
var desktopPaths = map[string]string{
	"linux":  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"darwin": "/usr/bin:/bin:/usr/sbin:/sbin",
}

// desktopPath reports the commands of servers that a client would not find if the desktop starts
// it.
func (d *diagnosis) desktopPath() {
	var elsewhere []string
	for _, s := range d.config.Servers {
		if s.Command == "" || strings.Contains(s.Command, "/") {
			continue
		}
		found, err := exec.LookPath(s.Command)
		if err != nil {
			continue // the check of the server has reported it
		}
		if !slices.ContainsFunc(filepath.SplitList(desktopPaths[runtime.GOOS]),
			func(folder string) bool {
				_, err := exec.LookPath(filepath.Join(folder, s.Command))
				return err == nil
			}) {
			elsewhere = append(elsewhere, fmt.Sprintf("server %q: write command = %q", s.Name,
				found))
		}
	}
	if len(elsewhere) > 0 {
		d.report.note("path", "PATH", "a client that the desktop starts does not find the command "+
			"of "+strings.Join(elsewhere, "; "))
	}
}
