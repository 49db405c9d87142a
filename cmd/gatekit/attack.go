package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"gatekit/core/attacks"
	"gatekit/core/config"
	"gatekit/core/conn"
	"gatekit/core/pins"
)

func (p *program) attack() *cobra.Command {
	o := attackOptions{grade: choice{"", []string{"a", "b", "c", "d", "e", "f"}}}
	c := &cobra.Command{
		Use:   "attack [CLASS…]",
		Short: "Try attacks and honest look-alikes on the configuration, and grade it",
		Long: `Attack plays built-in attacks, and honest messages that look like them, through the
plugins, policies, pins and limits of the configuration: between a scripted client and a scripted
server, which takes the place of the first server. No server of the configuration is started or
connected to, and nothing is written to the audit log or sent to sinks. Each case is played in both
eras of the protocol (2025-11-25 and 2026-07-28).

An attack has got through if its harm has arrived: orders at the client, or a path, a secret or a
value at the server. An honest case is hurt if its use has not arrived, or if a request failed.

The table has a line for each class, with the entries of the OWASP Top 10 for MCP and of the OWASP
Top 10 for Agentic Applications that its attacks belong to. The cases that got through or were hurt
follow. The grade is the share of attacks that were stopped: A from 90 %, B from 75 %, C from 60 %,
D from 40 %, E from 20 %, else F. It is one letter worse if an honest case is hurt. A good grade
does not mean that a configuration stops the attacks of tomorrow.

Without a configuration, attack looks at the defaults of gatekit wrap. Cases in which a server
changes its definitions begin with a lock file that approves the first ones, if the configuration
has [pins]. Allowances are not in effect. Bundles are fetched from their services.

To grade a configuration with a learned policy, learn it from an honest day of the scripted server:
--day FILE makes honest requests to all tools of the cases, with other values, and writes their
records to FILE. A policy that was learned from your own servers refuses the tools of the cases,
the honest ones, too.

The exit code is 1 if the grade is below --grade, or if a case could not be played.`,
		Example: `  gatekit attack
  gatekit attack traversal SSRF --config /etc/gatekit/gatekit.toml
  gatekit attack --grade B --json
  gatekit attack --day day.jsonl && gatekit policy learn --log day.jsonl --mode enforce`,
		ValidArgsFunction: cobra.FixedCompletions(attacks.Classes(),
			cobra.ShellCompDirectiveNoFileComp),
		Args: func(_ *cobra.Command, args []string) error {
			for _, a := range args {
				if slices.Contains(attacks.Classes(), a) {
					continue
				}
				hint := "the classes are " + strings.Join(attacks.Classes(), ", ")
				if near := nearest(a, attacks.Classes()); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
				return fmt.Errorf("unknown class %q\nhint: %s", a, hint)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.runAttack(cmd, o, args)
		},
	}
	configFlag(c, &o.path)
	c.Flags().Var(&o.grade, "grade", "exit with 1 if the `grade` is worse: A, B, C, D, E or F")
	c.Flags().StringVar(&o.day, "day", "",
		"play honest work instead of attacks, and write its records to a new `file`")
	c.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object")
	return c
}

// attackOptions holds the flags of attack.
type attackOptions struct {
	path   string
	day    string // the log of an honest day
	grade  choice
	asJSON bool
}

// dayReport is the JSON of attack --day.
type dayReport struct {
	Log      string `json:"log"`
	Requests int    `json:"requests"`
}

// attackReport is the JSON of attack.
type attackReport struct {
	Configuration string         `json:"configuration"`
	Grade         string         `json:"grade"`
	Attacks       int            `json:"attacks"`
	Stopped       int            `json:"stopped"`
	Honest        int            `json:"honest"`
	Hurt          int            `json:"hurt"`
	Cases         []playedAttack `json:"cases"`
}

// playedAttack is a case in one era, and what has become of it.
type playedAttack struct {
	Name   string   `json:"name"`
	Class  string   `json:"class"`
	About  string   `json:"about"`
	Source string   `json:"source"`
	OWASP  []string `json:"owasp,omitempty"`
	Era    string   `json:"era"`
	// stopped or through of an attack, passed or hurt of an honest case, failed
	Outcome string `json:"outcome"`
	// Refused has the errors that the client has got.
	Refused []string `json:"refused,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func (p *program) runAttack(cmd *cobra.Command, o attackOptions, classes []string) error {
	all, err := attacks.Cases()
	if err != nil {
		return err
	}
	cases, err := attacks.Of(all, classes)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gatekit-attack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &attackReport{}
	c, err := loadConfig(o.path)
	switch {
	case err == nil:
		r.Configuration = c.File
	case o.path == "" && errors.Is(err, errNoConfig):
		r.Configuration = "the defaults of gatekit wrap"
		if c, err = wrapDefaults(dir); err != nil {
			return err
		}
	default:
		return reportMistakes(cmd, err, o.asJSON)
	}
	p.masked.add(c)
	if o.day != "" {
		if len(classes) > 0 || o.grade.value != "" {
			return errors.New("--day plays no attacks: it takes no class and no --grade")
		}
		if _, err := os.Lstat(o.day); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the file %s exists\nhint: name a new file with --day", o.day)
		}
	}
	// What waits for approval and what plugins keep goes to the state folder.
	if err := os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state")); err != nil {
		return err
	}
	if o.day != "" {
		return p.playDay(cmd, o, c, dir, all)
	}
	for _, era := range []string{attacks.Legacy, attacks.Modern} {
		if err := p.attackIn(cmd.Context(), r, c, dir, era, cases); err != nil {
			return fmt.Errorf("play the attacks: %w", err)
		}
	}
	r.count()
	if o.asJSON {
		if err := json.MarshalWrite(cmd.OutOrStdout(), r, jsontext.Multiline(true)); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout())
	} else if err := r.print(cmd.OutOrStdout()); err != nil {
		return err
	}
	return r.result(strings.ToUpper(o.grade.value))
}

// wrapDefaults returns the configuration of gatekit wrap without flags.
func wrapDefaults(dir string) (*config.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := config.Wrap("server", self)
	o := &wrapOptions{}
	if err := o.addRules(c, []string{self}); err != nil {
		return nil, err
	}
	keys := config.DefaultPins(dir)
	c.Pins = &keys
	return c, nil
}

// attackIn plays the cases in one era. The cases share a gateway. A case in which the server
// changes its definitions has a gateway of its own, because its lock file has no other definitions.
func (p *program) attackIn(ctx context.Context, r *attackReport, c *config.Config, dir, era string,
	cases []attacks.Case) (err error) {
	stage := &attacks.Stage{}
	defer stage.Wait()
	open := func(name string, withPins bool) (*gateway, error) {
		own := filepath.Join(dir, era+"-"+name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		copied, err := attackedConfig(c, own, era, withPins)
		if err != nil {
			return nil, err
		}
		// Gatekit's log would tell of each attack.
		return openGatewayWith(ctx, copied, slog.New(slog.DiscardHandler), nil, stage.Dial)
	}
	play := func(g *gateway, a attacks.Case) {
		played := playedAttack{Name: a.Name, Class: a.Class, About: a.About, Source: a.Source,
			OWASP: a.OWASP, Era: era}
		out, err := stage.Play(ctx, a, era, attackPrefix(c), func(ctx context.Context,
			client conn.Pipe) error {
			return g.endpoint.ServePipe(ctx, client, nil)
		})
		played.Refused = out.Refused
		switch {
		case err != nil:
			played.Outcome, played.Error = "failed", err.Error()
		case a.Honest && out.Arrived && len(out.Refused) == 0:
			played.Outcome = "passed"
		case a.Honest:
			played.Outcome = "hurt"
		case out.Arrived:
			played.Outcome = "through"
		default:
			played.Outcome = "stopped"
		}
		r.Cases = append(r.Cases, played)
	}
	shared, err := open("all", false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shared.close()) }()
	for _, a := range cases {
		if !slices.Contains(a.Eras, era) {
			continue
		}
		if a.Needs != attacks.RugPull || c.Pins == nil {
			play(shared, a)
			continue
		}
		own, err := open(a.Name, true)
		if err != nil {
			return err
		}
		play(own, a)
		if err := own.close(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// playDay plays an honest day in both eras, and writes its records to the log that o.day names. No
// plugin or policy sees the day: Gatekit only records it.
func (p *program) playDay(cmd *cobra.Command, o attackOptions, c *config.Config, dir string,
	all []attacks.Case) error {
	day, err := attacks.Day(all)
	if err != nil {
		return err
	}
	r := dayReport{}
	if r.Log, err = filepath.Abs(o.day); err != nil {
		return err
	}
	for _, era := range []string{attacks.Legacy, attacks.Modern} {
		copied, err := attackedConfig(c, dir, era, false)
		if err != nil {
			return err
		}
		copied.Audit.File, copied.Audit.Bodies = r.Log, "redacted"
		copied.Plugins, copied.Policy = nil, nil
		n, err := playHonest(cmd.Context(), copied, day, era, attackPrefix(c))
		if err != nil {
			return fmt.Errorf("play the honest day: %w", err)
		}
		r.Requests += n
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), r)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the records of %s are in %s\n",
		plural(r.Requests, "honest request"), displayPath(o.day))
	return nil
}

// playHonest plays honest cases in one era, and returns the number of requests.
func playHonest(ctx context.Context, c *config.Config, cases []attacks.Case, era,
	prefix string) (requests int, err error) {
	stage := &attacks.Stage{}
	defer stage.Wait()
	g, err := openGatewayWith(ctx, c, slog.New(slog.DiscardHandler), nil, stage.Dial)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	for _, a := range cases {
		out, err := stage.Play(ctx, a, era, prefix, func(ctx context.Context,
			client conn.Pipe) error {
			return g.endpoint.ServePipe(ctx, client, nil)
		})
		if err == nil && len(out.Refused) > 0 {
			err = fmt.Errorf("an honest request was refused: %s", out.Refused[0])
		}
		if err != nil {
			return 0, err
		}
		requests += len(a.Requests)
	}
	return requests, nil
}

// attackPrefix returns what stands before the names of the first server's tools.
func attackPrefix(c *config.Config) string {
	if c.Names.Prefix == "never" {
		return ""
	}
	return c.Servers[0].Name + "__"
}

// attackedConfig returns a copy of a configuration that starts no server, and writes and sends
// nothing outside of dir.
func attackedConfig(c *config.Config, dir, era string, withPins bool) (*config.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	first := c.Servers[0]
	blank := config.Wrap(first.Name, self) // with the defaults of all settings
	copied := *c
	s := blank.Servers[0]
	s.Era, s.Timeout, s.MaxTimeout, s.Methods = era, first.Timeout, first.MaxTimeout, first.Methods
	copied.Servers = []config.Server{s}
	copied.Listen, copied.Admin, copied.Tokens = blank.Listen, blank.Admin, blank.Tokens
	copied.Telemetry, copied.Audit, copied.Allow = blank.Telemetry, blank.Audit, blank.Allow
	copied.Cluster, copied.Shared = nil, nil // other replicas are not attacked
	copied.Audit.File = filepath.Join(dir, "audit.jsonl")
	copied.Pins = nil
	if withPins && c.Pins != nil {
		keys := *c.Pins
		keys.File, keys.First = filepath.Join(dir, "pins.lock"), string(pins.Trust)
		if keys.Changed == wrappedChanged {
			keys.Changed = string(pins.Hide)
		}
		copied.Pins = &keys
	}
	if c.Policy != nil {
		policy := *c.Policy
		policy.DecisionLogs, policy.Status = nil, nil
		policy.Bundles = slices.Clone(policy.Bundles)
		for i := range policy.Bundles {
			policy.Bundles[i].Persist = ""
		}
		copied.Policy = &policy
	}
	return &copied, nil
}

// count counts the outcomes and sets the grade.
func (r *attackReport) count() {
	for _, c := range r.Cases {
		switch c.Outcome {
		case "stopped":
			r.Stopped++
			r.Attacks++
		case "through":
			r.Attacks++
		case "hurt":
			r.Hurt++
			r.Honest++
		case "passed":
			r.Honest++
		}
	}
	grades := []string{"A", "B", "C", "D", "E", "F"}
	n := 0
	for _, least := range []int{90, 75, 60, 40, 20} {
		if r.Stopped*100 < least*r.Attacks {
			n++
		}
	}
	if r.Hurt > 0 {
		n = min(n+1, len(grades)-1)
	}
	r.Grade = grades[n]
}

// result returns an error if a case could not be played, or if the grade is below the one wanted.
func (r *attackReport) result(wanted string) error {
	for _, c := range r.Cases {
		if c.Outcome == "failed" {
			return fmt.Errorf("case %s (%s): %s", c.Name, c.Era, c.Error)
		}
	}
	if wanted != "" && r.Grade > wanted {
		return fmt.Errorf("the grade is %s, and --grade is %s", r.Grade, wanted)
	}
	return nil
}

func (r *attackReport) print(out io.Writer) error {
	fmt.Fprintf(out, "configuration %s\n\n", printable(displayPath(r.Configuration)))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLASS\tSTOPPED\tHONEST HURT\tOWASP")
	for _, class := range attacks.Classes() {
		stopped, all, hurt, honest := 0, 0, 0, 0
		entries := map[string]bool{}
		for _, c := range r.Cases {
			if c.Class != class {
				continue
			}
			switch c.Outcome {
			case "stopped":
				stopped++
				all++
			case "through":
				all++
			case "hurt":
				hurt++
				honest++
			case "passed":
				honest++
			}
			for _, e := range c.OWASP {
				entries[e] = true
			}
		}
		if all+honest > 0 {
			fmt.Fprintf(w, "%s\t%d of %d\t%d of %d\t%s\n", class, stopped, all, hurt, honest,
				strings.Join(slices.Sorted(maps.Keys(entries)), " "))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, part := range []struct{ outcome, title string }{
		{"through", "got through"}, {"hurt", "honest, but hurt"}, {"failed", "could not be played"},
	} {
		title := "\n" + part.title + ":\n"
		eras := map[string][]string{}
		for _, c := range r.Cases {
			if c.Outcome == part.outcome {
				eras[c.Name] = append(eras[c.Name], c.Era)
			}
		}
		for _, c := range r.Cases {
			in := eras[c.Name]
			if len(in) == 0 {
				continue
			}
			delete(eras, c.Name)
			fmt.Fprintf(out, "%s  %s: %s", title, c.Name, c.About)
			title = ""
			if len(in) == 1 {
				fmt.Fprintf(out, " (%s)", in[0])
			}
			fmt.Fprintln(out)
			for _, why := range c.Refused {
				if part.outcome == "hurt" {
					fmt.Fprintf(out, "    %s\n", oneLine(why))
				}
			}
		}
	}
	_, err := fmt.Fprintf(out, "\ngrade %s: %d of %d attacks stopped, %d of %d honest cases hurt\n",
		r.Grade, r.Stopped, r.Attacks, r.Hurt, r.Honest)
	return err
}
