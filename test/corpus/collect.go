package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// places are the folders and files that the commands share.
type places struct {
	recipe string // file; "" for the recipe of the repository
	// committed is that recipe; nil for servers.tsv
	committed []byte
	to        string // folder of the corpus
	modules   string // folder of installed packages
	only      string // regular expression of package names
	jobs      int
}

func (p *places) addFlags(c *cobra.Command, folder string) {
	c.Flags().StringVar(&p.to, folder, "", "`folder` of the corpus (required)")
	c.Flags().StringVar(&p.recipe, "recipe", "",
		"recipe `file`; by default the recipe in test/corpus")
	c.Flags().StringVar(&p.modules, "modules", "",
		"`folder` of installed packages; by default \"npm\" in the folder of the corpus")
	c.Flags().StringVar(&p.only, "only", "", "`regexp` of the packages to use")
	c.Flags().IntVar(&p.jobs, "jobs", 2, "number of servers at the same time")
	c.MarkFlagRequired(folder)
}

// load makes the folders absolute and returns the entries of the recipe that are wanted.
func (p *places) load() (all []entry, err error) {
	text := p.committed
	if text == nil {
		text = committed
	}
	if p.recipe != "" {
		if text, err = os.ReadFile(p.recipe); err != nil {
			return nil, err
		}
	}
	if p.to, err = filepath.Abs(p.to); err != nil {
		return nil, err
	}
	if p.modules == "" {
		p.modules = filepath.Join(p.to, "npm")
	}
	if p.modules, err = filepath.Abs(p.modules); err != nil {
		return nil, err
	}
	wanted, err := regexp.Compile(p.only)
	if err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	entries, err := parseRecipe(text)
	for _, e := range entries {
		if wanted.MatchString(e.pkg) {
			all = append(all, e)
		}
	}
	return all, err
}

// each calls do for every entry, in p.jobs goroutines, and prints a line of progress for each. It
// goes on after an error, and returns the number of entries for which do returned one.
func (p *places) each(ctx context.Context, out io.Writer, entries []entry,
	do func(context.Context, int) (string, error)) (failed int, err error) {
	var (
		mu   sync.Mutex // held while a line of progress is written; guards done and failed
		done int
		wait sync.WaitGroup
	)
	next := make(chan int)
	for range max(p.jobs, 1) {
		wait.Go(func() {
			for i := range next {
				outcome, err := do(ctx, i)
				mu.Lock()
				done++
				if err != nil {
					failed++
					outcome = "failed: " + clip(err.Error(), 200)
				}
				fmt.Fprintf(out, "%d/%d %s: %s\n", done, len(entries), entries[i].name(), outcome)
				mu.Unlock()
			}
		})
	}
send:
	for i := range entries {
		select {
		case next <- i:
		case <-ctx.Done():
			break send
		}
	}
	close(next)
	wait.Wait()
	return failed, ctx.Err()
}

func makersCommand() *cobra.Command {
	var p places
	c := &cobra.Command{
		Use:   "makers --to DIR --recipe FILE",
		Short: "Write the makers and halves of all packages into a recipe",
		Long: `Makers installs all packages of a recipe and writes the columns "maker" and
"half". Packages belong to one maker if they have the same npm scope, or the same owner of the
repository. The half comes from a hash of the maker. A line that has a half keeps it. Lines of
packages that cannot be installed are removed.

Run this command after you have added packages to the recipe, before you read any of their texts.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if p.recipe == "" || p.only != "" {
				return errors.New("makers needs --recipe, and no --only")
			}
			entries, err := p.load()
			if err != nil {
				return err
			}
			manifests := make([]manifest, len(entries))
			_, err = p.each(c.Context(), c.ErrOrStderr(), entries,
				func(ctx context.Context, i int) (string, error) {
					pkg, err := install(ctx, p.modules, entries[i])
					if err == nil {
						manifests[i], err = readManifest(pkg)
					}
					return "installed", err
				})
			if err != nil {
				return err
			}
			return os.WriteFile(p.recipe, formatRecipe(assign(entries, manifests)), 0o644)
		},
	}
	p.addFlags(c, "to")
	return c
}

// assign returns the entries that have a manifest, with their makers and halves. Entries that have
// a half keep it. A new entry is left out if its maker is in both halves.
func assign(entries []entry, manifests []manifest) (all []entry) {
	var m makers
	for i, manifest := range manifests {
		if names := manifest.names(); manifest.Name != "" && entries[i].maker != "" {
			m.join(append(names, entries[i].maker))
		} else if manifest.Name != "" {
			m.join(names)
		}
	}
	halves := map[string][]string{} // maker → halves of its entries
	for i, e := range entries {
		if maker := m.of(manifests[i].names()[0]); e.half != "" && manifests[i].Name != "" &&
			!slices.Contains(halves[maker], e.half) {
			halves[maker] = append(halves[maker], e.half)
		}
	}
	for i, e := range entries {
		if manifests[i].Name == "" {
			continue
		}
		if e.half == "" {
			e.maker = m.of(manifests[i].names()[0])
			switch known := halves[e.maker]; len(known) {
			case 0:
				e.half = halfOf(e.maker)
			case 1:
				e.half = known[0]
			default:
				continue
			}
		}
		all = append(all, e)
	}
	return all
}

func collectCommand() *cobra.Command {
	var p places
	var again, guess bool
	c := &cobra.Command{
		Use:   "collect --to DIR",
		Short: "Install and start the servers of the recipe, and write their texts",
		Long: `Collect installs the packages of the recipe, and starts each server with placeholder
credentials and without a network. It writes these files:

  DIR/tuning/servers.jsonl    one line for each server: definitions and instructions
  DIR/tuning/readmes.jsonl    one line for each README of a package
  DIR/tuning/configs.jsonl    one line for each small configuration or example file of a package
  DIR/heldout/...             the same for the other half

Servers that were listed before are not started again, so you can stop collect and go on later.
The installed packages need about 35 GB below DIR/npm.`,
		Example: `  go run ./test/corpus collect --to ~/corpus
  go run ./test/corpus collect --to ~/corpus --only '^@azure/'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			entries, err := p.load()
			if err != nil {
				return err
			}
			failed, err := p.each(c.Context(), c.ErrOrStderr(), entries,
				func(ctx context.Context, i int) (string, error) {
					return p.collect(ctx, &entries[i], again, guess)
				})
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%d servers, %d failed\n", len(entries), failed)
			if guess && p.recipe != "" {
				if err := p.keepSettings(entries); err != nil {
					return err
				}
			}
			if err := p.writeServers(entries); err != nil {
				return err
			}
			summary, err := p.writeTexts(entries)
			fmt.Fprint(c.OutOrStdout(), summary)
			return err
		},
	}
	p.addFlags(c, "to")
	c.Flags().BoolVar(&again, "again", false,
		"start also servers that were listed or failed before")
	c.Flags().BoolVar(&guess, "guess", false,
		"start a failed server again with the variables that its error names, and write them "+
			"into the recipe")
	return c
}

// state holds the outcome of an earlier run for one server.
type state struct {
	Server *server
	Env    []string
	Failed string
}

func (p *places) statePath(e entry) string {
	return filepath.Join(p.to, "state", e.folder()+".json")
}

// collect lists one server, unless its state is known, and writes its state.
func (p *places) collect(ctx context.Context, e *entry, again, guess bool) (string, error) {
	if e.main == textsOnly {
		_, err := install(ctx, p.modules, *e)
		return "only its texts", err
	}
	s, err := p.readState(*e)
	if err == nil && !again && (s.Failed == "" || !guess) {
		e.env = s.Env
		if s.Failed != "" {
			return "", errors.New("before: " + s.Failed)
		}
		return "known, " + s.Server.String(), nil
	}
	pkg, err := install(ctx, p.modules, *e)
	if err != nil {
		return "", err
	}
	m, err := readManifest(pkg)
	if err != nil {
		return "", err
	}
	l, err := p.listServer(ctx, *e, pkg, m)
	for try := 0; guess && err != nil && ctx.Err() == nil && try < 4; try++ {
		more := guessEnv(e.env, err.Error(), pkg, try)
		if len(more) == 0 {
			continue
		}
		e.env = append(e.env, more...)
		l, err = p.listServer(ctx, *e, pkg, m)
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	s = state{Env: e.env}
	if err != nil {
		s.Failed = err.Error()
	} else {
		s.Server = &server{Package: e.pkg, Version: e.version, Licence: m.licence(), listing: l,
			Problems: l.failures}
	}
	b, marshalErr := line(s)
	if marshalErr != nil {
		return "", marshalErr
	}
	if err := writeFile(p.statePath(*e), b); err != nil {
		return "", err
	}
	if err != nil {
		return "", err
	}
	return s.Server.String(), nil
}

func (p *places) readState(e entry) (s state, err error) {
	b, err := os.ReadFile(p.statePath(e))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

func (s server) String() string {
	return fmt.Sprintf("%d tools, %d prompts, %d resources, %d templates", len(s.Tools),
		len(s.Prompts), len(s.Resources), len(s.ResourceTemplates))
}

// listServer starts one server and lists what it has.
func (p *places) listServer(ctx context.Context, e entry, pkg string, m manifest) (l listing,
	err error) {
	file, err := mainFile(pkg, e, m)
	if err != nil {
		return l, err
	}
	homes := filepath.Join(p.to, "homes")
	if err := os.MkdirAll(homes, 0o755); err != nil {
		return l, err
	}
	home, env, err := environment(homes, e)
	if err != nil {
		return l, err
	}
	defer os.RemoveAll(home)
	c, err := command(e, file, home)
	if err != nil {
		return l, err
	}
	running, err := start(c, env, home)
	if err != nil {
		return l, err
	}
	defer running.end()
	l, err = running.list(ctx)
	if err == nil && len(l.Tools)+len(l.Prompts)+len(l.Resources)+len(l.ResourceTemplates) == 0 {
		err = fmt.Errorf("the server lists nothing: %v %s", l.failures,
			clip(running.stderr.String(), 1500))
	}
	return l, err
}

// writeServers writes servers.jsonl of both halves from the known states.
func (p *places) writeServers(entries []entry) error {
	lines := map[string][]byte{tuning: nil, heldout: nil}
	for _, e := range entries {
		s, err := p.readState(e)
		if err != nil || s.Server == nil || e.half == "" || e.main == textsOnly {
			continue
		}
		s.Server.Half, s.Server.Maker = e.half, e.maker
		b, err := line(s.Server)
		if err != nil {
			return err
		}
		lines[e.half] = append(lines[e.half], b...)
	}
	for half, b := range lines {
		if err := writeFile(filepath.Join(p.to, half, "servers.jsonl"), b); err != nil {
			return err
		}
	}
	return nil
}

// keepSettings writes the variables that servers need into the recipe, and marks the servers that
// do not start.
func (p *places) keepSettings(entries []entry) error {
	text, err := os.ReadFile(p.recipe)
	if err != nil {
		return err
	}
	all, err := parseRecipe(text)
	if err != nil {
		return err
	}
	known := map[string][]string{}
	for _, e := range entries {
		known[e.name()] = e.env
	}
	for i, e := range all {
		env, used := known[e.name()]
		if used {
			if s, err := p.readState(e); err != nil || s.Server == nil {
				e.main = textsOnly
			} else {
				e.env = env
			}
		}
		all[i] = e
	}
	return os.WriteFile(p.recipe, formatRecipe(all), 0o644)
}

// variable matches names of environment variables.
var variable = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)

// inSource matches the variables that a program reads.
var inSource = regexp.MustCompile(`(?:env|ENV)(?:\.|\[["'])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b`)

// credential matches the names of variables that a server may need to start.
var credential = regexp.MustCompile(
	`KEY|TOKEN|SECRET|PASS|USER|EMAIL|URL|URI|HOST|DOMAIN|ENDPOINT|_ID$|ACCOUNT|PROJECT|REGION|` +
		`TENANT|DATABASE|DB|ORG|WORKSPACE|SITE|INSTANCE|SERVER|CLIENT|CRED`)

// guessEnv returns placeholders for variables that a server may need: those that its error names,
// and on the later tries those that its files read.
func guessEnv(have []string, problem, pkg string, try int) (more []string) {
	seen := map[string]bool{}
	for _, v := range have {
		name, _, _ := strings.Cut(v, "=")
		seen[name] = true
	}
	var names []string
	if try < 3 {
		names = variable.FindAllString(problem, -1)
	} else {
		names = readVariables(pkg)
	}
	for _, name := range names {
		if !seen[name] && credential.MatchString(name) && !strings.HasPrefix(name, "NODE_") &&
			!strings.HasPrefix(name, "npm_") && len(more) < 20 {
			seen[name] = true
			more = append(more, name+"="+placeholder(name))
		}
	}
	return more
}

// readVariables returns the variables that the JavaScript files of a package read.
func readVariables(pkg string) (names []string) {
	budget := 20 << 20
	filepath.WalkDir(pkg, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".js", ".mjs", ".cjs":
		default:
			return nil
		}
		b, err := os.ReadFile(path)
		if budget -= len(b); err != nil || budget < 0 {
			return filepath.SkipAll
		}
		for _, m := range inSource.FindAllSubmatch(b, -1) {
			names = append(names, string(m[1]))
		}
		return nil
	})
	return names
}

// placeholder returns a value for a variable, which its name suggests.
func placeholder(name string) string {
	is := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(name, w) {
				return true
			}
		}
		return false
	}
	switch {
	case is("MONGO"):
		return "mongodb://localhost:1/x"
	case is("REDIS") && is("URL", "URI"):
		return "redis://localhost:1"
	case is("MYSQL") && is("URL", "URI"):
		return "mysql://u:p@localhost:1/x"
	case is("DATABASE_URL", "POSTGRES_URL", "DB_URL", "PG_URL", "CONNECTION_STRING"):
		return "postgresql://u:p@localhost:1/x"
	case is("PORT"):
		return "9"
	case is("EMAIL"):
		return "user@example.com"
	case is("KEY", "TOKEN", "SECRET", "PASS"):
		return "placeholder"
	case is("URL", "URI", "ENDPOINT", "BASE"):
		return "https://example.com"
	case is("HOST", "DOMAIN", "SITE", "INSTANCE"):
		return "example.com"
	case is("REGION"):
		return "us-east-1"
	case is("TENANT", "CLIENT_ID"):
		return "00000000-0000-0000-0000-000000000000"
	case strings.HasSuffix(name, "_ID"):
		return "1"
	}
	return "x"
}
