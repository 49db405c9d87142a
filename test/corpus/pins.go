package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// pinsCommand measures whether pins report changes of servers that have not changed.
func pinsCommand() *cobra.Command {
	var m pinsMeasurement
	c := &cobra.Command{
		Use:   "pins --to DIR",
		Short: "Pin servers, and count the changes that are reported although nothing has changed",
		Long: `Pins starts each server of the recipe in several ways, and counts what Gatekit
reports as changed although the package is the same:

  gatekit pin, and then gatekit pin verify
      at once
      with another home, working and temporary folder, and with a later clock
  gatekit wrap, which trusts what it sees first, and then gatekit wrap
      at once
      with another home and temporary folder, and with a later clock

The clock is changed for JavaScript only (test/servers/clock.cjs). --faketime changes it with
libfaketime, which also covers other programs that are linked dynamically.

Every change is a false one. Pins prints the counts, and with --show the changes. Do not read the
changes of the half heldout while you improve core/pins.`,
		Example: `  go run ./test/corpus pins --to ~/corpus --half tuning --show
  go run ./test/corpus pins --to ~/corpus --half heldout`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return m.run(c) },
	}
	m.addFlags(c)
	c.Flags().IntVar(&m.days, "days", 40, "number of days that the later clock is ahead")
	c.Flags().StringVar(&m.faketime, "faketime", "", "`path` of libfaketime.so.1")
	c.Flags().BoolVar(&m.show, "show", false, "print the changes, too")
	return c
}

// binaryOptions are the flags of the commands that run gatekit with installed servers.
type binaryOptions struct {
	places
	halves []string
	binary string
	work   string // folder for temporary files
}

func (o *binaryOptions) addFlags(c *cobra.Command) {
	o.places.addFlags(c, "to")
	c.Flags().StringSliceVar(&o.halves, "half", []string{tuning, heldout}, "halves to measure")
	c.Flags().StringVar(&o.binary, "gatekit", "", "`path` of a gatekit binary; by default "+
		"./cmd/gatekit is built")
}

// prepare returns the entries to measure, and makes the binary and the folder for temporary files.
// The caller must remove the folder.
func (o *binaryOptions) prepare(ctx context.Context) ([]entry, error) {
	entries, err := o.load()
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool {
		return e.main == textsOnly || !slices.Contains(o.halves, e.half)
	})
	if o.work, err = os.MkdirTemp("", "gatekit-corpus-"); err != nil {
		return nil, err
	}
	if o.binary == "" {
		if o.binary, err = buildGatekit(ctx, o.work); err != nil {
			return nil, err
		}
	}
	o.binary, err = filepath.Abs(o.binary)
	return entries, err
}

type pinsMeasurement struct {
	binaryOptions
	days     int
	faketime string
	show     bool
}

// The starts at which gatekit compares, in the order of the table.
const (
	verifiedAtOnce = iota
	verifiedLater
	wrappedAtOnce
	wrappedLater
	comparisons
)

// pinned is the outcome of one server.
type pinned struct {
	holes   int                   // texts with holes in the lock file
	changes [comparisons][]string // what gatekit reports
}

func (m *pinsMeasurement) run(c *cobra.Command) error {
	entries, err := m.prepare(c.Context())
	if err != nil {
		return err
	}
	defer os.RemoveAll(m.work)
	outcomes := make([]*pinned, len(entries))
	_, err = m.each(c.Context(), c.ErrOrStderr(), entries,
		func(ctx context.Context, i int) (string, error) {
			p, err := m.measure(ctx, entries[i])
			if err != nil {
				return "", err
			}
			outcomes[i] = p
			return fmt.Sprintf("%d texts with holes, %d changes", p.holes,
				len(slices.Concat(p.changes[:]...))), nil
		})
	if err != nil {
		return err
	}
	return m.report(c.OutOrStdout(), entries, outcomes)
}

// report writes the counts of servers.
func (m *pinsMeasurement) report(out io.Writer, entries []entry, outcomes []*pinned) error {
	for _, half := range m.halves {
		servers, withHoles, changed := 0, 0, [comparisons]int{}
		for i, p := range outcomes {
			if p == nil || entries[i].half != half {
				continue
			}
			servers++
			if p.holes > 0 {
				withHoles++
			}
			for n, changes := range p.changes {
				if len(changes) > 0 {
					changed[n]++
				}
			}
		}
		fmt.Fprintf(out, "%s: %d servers, %d with holes; changed: verified at once %d, verified "+
			"%d days later %d, wrapped at once %d, wrapped %[5]d days later %[8]d\n", half, servers,
			withHoles, changed[verifiedAtOnce], m.days, changed[verifiedLater],
			changed[wrappedAtOnce], changed[wrappedLater])
	}
	for i, p := range outcomes {
		if p == nil || !m.show {
			continue
		}
		for n, changes := range p.changes {
			for _, change := range changes {
				fmt.Fprintf(out, "%s, %s: %s\n", entries[i].name(), []string{"verified at once",
					"verified later", "wrapped at once", "wrapped later"}[n], change)
			}
		}
	}
	return nil
}

// measure pins one server and compares.
func (m *pinsMeasurement) measure(ctx context.Context, e entry) (*pinned, error) {
	dir, err := os.MkdirTemp(m.work, "p-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data") // the folder that the arguments name
	command, err := m.command(ctx, e, data)
	if err != nil {
		return nil, err
	}
	now, later := m.surroundings(e, dir, "now", 0), m.surroundings(e, dir, "later", m.days)
	err = errors.Join(os.Mkdir(data, 0o700), now.makeFolders(), later.makeFolders())
	if err != nil {
		return nil, err
	}
	p := &pinned{}
	for _, s := range []surroundings{now, later} {
		if err := os.WriteFile(s.config(), []byte(s.toml(command, dir)), 0o600); err != nil {
			return nil, err
		}
	}
	if out, err := m.gatekit(ctx, dir, "pin", "--yes", "--config", now.config()); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	lock, err := os.ReadFile(filepath.Join(dir, "gatekit.lock"))
	if err != nil {
		return nil, err
	}
	p.holes = bytes.Count(lock, []byte(`"varies": {`)) + bytes.Count(lock, []byte(`"varies": [`))
	for n, s := range map[int]surroundings{verifiedAtOnce: now, verifiedLater: later} {
		changes, err := m.verify(ctx, dir, s.config())
		if err != nil {
			return nil, err
		}
		for _, c := range changes {
			p.changes[n] = append(p.changes[n], c.String())
		}
	}
	var nothing []string
	for n, s := range []surroundings{now, now, later} {
		changes, err := m.wrap(ctx, dir, command, s)
		if err != nil {
			return nil, err
		}
		*[]*[]string{&nothing, &p.changes[wrappedAtOnce], &p.changes[wrappedLater]}[n] = changes
	}
	if len(nothing) > 0 {
		return nil, fmt.Errorf("the first start is not trusted: %q", nothing)
	}
	return p, nil
}

// command returns the command line of a server. The folder data stands for HOME in its arguments.
func (o *binaryOptions) command(ctx context.Context, e entry, data string) ([]string, error) {
	pkg, err := install(ctx, o.modules, e)
	if err != nil {
		return nil, err
	}
	manifest, err := readManifest(pkg)
	if err != nil {
		return nil, err
	}
	file, err := mainFile(pkg, e, manifest)
	if err != nil {
		return nil, err
	}
	return command(e, file, data)
}

// surroundings are the folders and the variables of a server.
type surroundings struct {
	folder string
	env    []string
}

func (m *pinsMeasurement) surroundings(e entry, dir, name string, days int) surroundings {
	s := surroundings{folder: filepath.Join(dir, name)}
	s.env = s.variables(e, filepath.Join(dir, "data"))
	if m.faketime != "" {
		s.env = append(s.env, "LD_PRELOAD="+m.faketime, fmt.Sprintf("FAKETIME=+%dd", days),
			"FAKETIME_DONT_FAKE_MONOTONIC=1")
	} else {
		s.env = append(s.env, "NODE_OPTIONS=-r "+filepath.Join(peers.Top(), "test", "servers",
			"clock.cjs"), fmt.Sprintf("CLOCK_DAYS=%d", days))
	}
	return s
}

// variables returns the variables of a server. The folder data stands for HOME in the recipe.
func (s surroundings) variables(e entry, data string) []string {
	all := []string{"HOME=" + s.home(), "TMPDIR=" + s.temporary(), "NO_COLOR=1", "DO_NOT_TRACK=1"}
	for _, v := range e.env {
		all = append(all, strings.ReplaceAll(v, "HOME", data))
	}
	return all
}

// The folders have short names, because holes accept only paths of at most 64 characters.

func (s surroundings) home() string      { return filepath.Join(s.folder, "home") }
func (s surroundings) temporary() string { return filepath.Join(s.folder, "temporary") }
func (s surroundings) working() string   { return filepath.Join(s.folder, "working") }
func (s surroundings) config() string    { return filepath.Join(s.folder, "gatekit.toml") }

func (s surroundings) makeFolders() error {
	return errors.Join(os.MkdirAll(s.home(), 0o700), os.MkdirAll(s.temporary(), 0o700),
		os.MkdirAll(s.working(), 0o700))
}

// toml returns a configuration with one server, and with the lock file in the folder dir. The
// corpus installs packages itself.
func (s surroundings) toml(command []string, dir string) string {
	var args, env []string
	for _, a := range command[1:] {
		args = append(args, mcptest.Quote(a))
	}
	for _, v := range s.env {
		name, value, _ := strings.Cut(v, "=")
		env = append(env, mcptest.Quote(name)+" = "+mcptest.Quote(value))
	}
	return fmt.Sprintf("[server.s]\ncommand = %s\nargs = [%s]\ncwd = %s\n[server.s.env]\n%s\n"+
		"[pins]\nfile = %s\ninstall = \"none\"\n", mcptest.Quote(command[0]),
		strings.Join(args, ", "), mcptest.Quote(s.working()), strings.Join(env, "\n"),
		mcptest.Quote(filepath.Join(dir, "gatekit.lock")))
}

// gatekit runs a command of gatekit in the folder dir, and returns what it writes to stdout. An
// error has the end of what it writes to stderr.
func (o *binaryOptions) gatekit(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*totalTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.binary, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_STATE_HOME=" +
		stateFolder(dir)}
	stderr := &tail{limit: 2000}
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr)
	}
	return string(out), err
}

func stateFolder(dir string) string { return filepath.Join(dir, "state") }

// verify returns the changes that gatekit pin verify reports.
func (o *binaryOptions) verify(ctx context.Context, dir, config string) ([]pinChange, error) {
	out, err := o.gatekit(ctx, dir, "pin", "verify", "--json", "--config", config)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, fmt.Errorf("gatekit pin verify: %w: %s", err, clip(out, 1000))
	}
	var result struct{ Changes []pinChange }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&result); err != nil {
		return nil, fmt.Errorf("gatekit pin verify: %w: %s", err, clip(out, 1000))
	}
	return result.Changes, nil
}

// pinChange is a change as gatekit pin verify prints it.
type pinChange struct {
	Class, Kind, Name, Pointer, Before, After string
	HeldBack                                  bool `json:"held_back"`
}

func (c pinChange) String() string {
	return fmt.Sprintf("%s %s %s %s: %s -> %s", c.Class, c.Kind, c.Name, c.Pointer,
		clip(c.Before, 300), clip(c.After, 300))
}

// wrap lists a server behind gatekit wrap, and returns what gatekit holds back and why.
func (o *binaryOptions) wrap(ctx context.Context, dir string, command []string,
	s surroundings) (held []string, err error) {
	logs, err := os.MkdirTemp(dir, "audit-") // an audit log needs its anchor, which is beside it
	if err != nil {
		return nil, err
	}
	log := filepath.Join(logs, "audit.jsonl")
	args := []string{o.binary, "wrap", "--audit", log, "--sandbox", "off", "--pins", "hide"}
	for _, v := range s.env {
		args = append(args, "--env", v)
	}
	p, err := start(append(append(args, "--"), command...), []string{"PATH=" + os.Getenv("PATH"),
		"HOME=" + dir, "XDG_STATE_HOME=" + stateFolder(dir)}, filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	_, err = p.list(ctx)
	records, logErr := finishAndRead(p, log)
	if err := errors.Join(err, logErr); err != nil {
		return nil, err
	}
	for _, r := range records {
		for _, step := range r.Steps {
			if step.Stage == "pins" && step.Action != "pass" {
				held = append(held, fmt.Sprintf("%s of %s: %s", step.Action, r.Method, step.Reason))
			}
		}
	}
	if len(held) > 0 {
		out, _ := o.gatekit(ctx, dir, "pin", "approve") // lists what waits
		held = append(held, clip(out, 1500))
	}
	return held, nil
}
