package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/test/mcptest"
)

// committedCalls has calls of tools that do something on this machine: read and write files, start
// programs. HOME stands for the working folder.
//
//go:embed calls.tsv
var committedCalls []byte

// sandboxCommand compares the answers of servers within a sandbox with those outside.
func sandboxCommand() *cobra.Command {
	var s sandboxMeasurement
	c := &cobra.Command{
		Use:   "sandbox --to DIR",
		Short: "Compare what servers answer within the sandbox of gatekit wrap and outside",
		Long: `Sandbox starts each server of the recipe without gatekit, and then with gatekit wrap
--sandbox LEVEL. It compares all lists, the results of the calls in test/corpus/calls.tsv, and of
some tools of which the server declares that they only read. Both times, the server has no network
(as root on Linux), an empty home folder and the same files in its working folder.

If something differs, sandbox starts the server outside again. What also differs between the two
starts outside does not count. Digits and temporary folders are not compared in results of calls.

The level strict gets --write for the working folder.

Servers with a native module may need --build, which runs the install scripts of the named npm
packages. These need a C++ compiler and Node's headers (the variable npm_config_nodedir).`,
		Example: `  go run ./test/corpus sandbox --to ~/corpus --level guard
  go run ./test/corpus sandbox --to ~/corpus --level strict
  npm_config_nodedir=/usr go run ./test/corpus sandbox --to ~/corpus --build sqlite3 \
    --recipe test/corpus/native.tsv`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c) },
	}
	s.addFlags(c)
	c.Flags().StringVar(&s.level, "level", "guard", "`level` of the sandbox: guard or strict")
	c.Flags().StringSliceVar(&s.build, "build", nil,
		"npm `packages` whose install scripts run, such as sqlite3")
	c.Flags().IntVar(&s.reads, "reads", 3, "number of tools that only read to call")
	return c
}

type sandboxMeasurement struct {
	binaryOptions
	level string
	reads int
	build []string              // npm packages
	calls map[string][]toolCall // by package
}

// toolCall is one line of calls.tsv.
type toolCall struct{ tool, arguments string }

// parseCalls parses the text of calls.tsv.
func parseCalls(text []byte) (map[string][]toolCall, error) {
	calls := map[string][]toolCall{}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[1:] {
		f := strings.Split(line, "\t")
		if len(f) != 3 || !json.Valid([]byte(f[2])) {
			return nil, fmt.Errorf("line %d of calls.tsv has no package, tool and arguments", i+2)
		}
		calls[f[0]] = append(calls[f[0]], toolCall{f[1], f[2]})
	}
	return calls, nil
}

// compared is the outcome of one server.
type compared struct {
	lists, calls int      // that were compared
	differences  []string // lists and calls that differ
}

func (s *sandboxMeasurement) run(c *cobra.Command) error {
	var err error
	if s.calls, err = parseCalls(committedCalls); err != nil {
		return err
	}
	entries, err := s.prepare(c.Context())
	if err != nil {
		return err
	}
	defer os.RemoveAll(s.work)
	outcomes := make([]*compared, len(entries))
	_, err = s.each(c.Context(), c.ErrOrStderr(), entries,
		func(ctx context.Context, i int) (string, error) {
			o, err := s.compare(ctx, entries[i])
			if err != nil {
				return "", err
			}
			outcomes[i] = o
			return fmt.Sprintf("%d lists, %d calls, %d differ", o.lists, o.calls,
				len(o.differences)), nil
		})
	if err != nil {
		return err
	}
	s.report(c.OutOrStdout(), entries, outcomes)
	return nil
}

func (s *sandboxMeasurement) report(out io.Writer, entries []entry, outcomes []*compared) {
	servers, same, calls := 0, 0, 0
	for i, o := range outcomes {
		if o == nil {
			continue
		}
		servers, calls = servers+1, calls+o.calls
		if len(o.differences) == 0 {
			same++
		}
		for _, d := range o.differences {
			fmt.Fprintf(out, "%s: %s\n", entries[i].name(), d)
		}
	}
	fmt.Fprintf(out, "%s: %d servers, %d with the same lists and answers as outside, %d calls\n",
		s.level, servers, same, calls)
}

// compare starts a server outside and within the sandbox.
func (s *sandboxMeasurement) compare(ctx context.Context, e entry) (*compared, error) {
	dir, err := os.MkdirTemp(s.work, "sandbox-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := s.buildModules(ctx, e); err != nil {
		return nil, err
	}
	outside, err := s.answers(ctx, e, dir, false, nil)
	if err != nil {
		return nil, fmt.Errorf("outside: %w", err)
	}
	inside, err := s.answers(ctx, e, dir, true, outside.called)
	if err != nil {
		return &compared{differences: []string{"does not start: " + clip(err.Error(), 600)}}, nil
	}
	o := &compared{lists: len(outside.texts) - len(outside.called), calls: len(outside.called)}
	differing := unequal(outside, inside)
	if len(differing) == 0 {
		return o, nil
	}
	again, err := s.answers(ctx, e, dir, false, outside.called)
	if err != nil {
		return nil, fmt.Errorf("outside again: %w", err)
	}
	noise := unequal(outside, again)
	for _, key := range differing {
		if !slices.Contains(noise, key) {
			o.differences = append(o.differences, key+"\n    "+firstDifference(
				outside.texts[key], inside.texts[key])+"\n    stderr: "+inside.refusals)
		}
	}
	return o, nil
}

// buildModules runs the install scripts of the packages of --build that a server uses.
func (s *sandboxMeasurement) buildModules(ctx context.Context, e entry) error {
	if len(s.build) == 0 {
		return nil
	}
	if _, err := install(ctx, s.modules, e); err != nil {
		return err
	}
	dir := filepath.Join(s.modules, e.folder())
	for _, name := range s.build {
		built := filepath.Join(dir, "built-"+strings.ReplaceAll(name, "/", "+"))
		_, missing := os.Stat(filepath.Join(dir, "node_modules", filepath.FromSlash(name)))
		if _, err := os.Stat(built); missing != nil || err == nil {
			continue
		}
		npm := exec.CommandContext(ctx, "npm", "rebuild", "--prefix", dir, name)
		npm.Dir = dir
		if out, err := npm.CombinedOutput(); err != nil {
			return fmt.Errorf("npm rebuild %s: %w: %s", name, err, clip(string(out), 500))
		}
		if err := os.WriteFile(built, nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// answered holds the answers of a server.
type answered struct {
	texts    map[string]string // method or call → answer
	called   []toolCall
	refusals string // the lines of stderr that look like refusals
}

// unequal returns the keys of the answers that are not equal, sorted.
func unequal(a, b *answered) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(a.texts)) {
		if a.texts[key] != b.texts[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// firstDifference returns the texts around the first difference.
func firstDifference(a, b string) string {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	around := func(s string) string {
		return strings.ToValidUTF8(s[max(0, at-60):min(len(s), at+200)], "")
	}
	return fmt.Sprintf("outside %q, within %q", around(a), around(b))
}

// answers starts a server and returns its lists and the results of calls. It makes the given calls,
// or chooses them if they are nil.
func (s *sandboxMeasurement) answers(ctx context.Context, e entry, dir string, within bool,
	calls []toolCall) (*answered, error) {
	home := filepath.Join(dir, "home")
	work := filepath.Join(home, "work")
	err := errors.Join(os.RemoveAll(home), os.MkdirAll(work, 0o700),
		os.WriteFile(filepath.Join(work, "a.txt"), []byte("alpha\n"), 0o600),
		os.WriteFile(filepath.Join(work, "x.js"), []byte("var a = 1\n"), 0o600))
	for _, folder := range []string{".config", ".cache", ".local/share", ".ssh", ".npm"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(home, folder), 0o700))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(home, ".ssh", "id_ed25519"),
		[]byte("not a real key\n"), 0o600))
	if err != nil {
		return nil, err
	}
	command, err := s.command(ctx, e, work)
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8"}
	given := []string{"NO_COLOR=1", "DO_NOT_TRACK=1"}
	for _, v := range e.env {
		given = append(given, strings.ReplaceAll(v, "HOME", work))
	}
	if within {
		// The program isolate must stay outside: a confined program can make no namespaces.
		args := []string{command[0], command[1], s.binary, "wrap", "--sandbox", s.level,
			"--no-default-rules", "--pins", "off", "--audit", filepath.Join(dir, "audit",
				time.Now().Format("150405.000000"), "log.jsonl")}
		if s.level == "strict" {
			args = append(args, "--write", work)
		}
		for _, v := range given {
			args = append(args, "--env", v)
		}
		command = append(append(args, "--"), command[2:]...)
		env = append(env, "XDG_STATE_HOME="+stateFolder(dir))
	} else {
		env = append(env, given...)
	}
	p, err := start(command, env, work)
	if err != nil {
		return nil, err
	}
	defer p.finish(stopTime)
	l, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	a := &answered{texts: map[string]string{}, called: calls}
	a.texts["initialize"] = l.Instructions
	for _, list := range lists {
		a.texts[list.method] = strings.ReplaceAll(array(*l.items(list.method)), "\n", "")
		if failure := l.failures[list.method]; failure != "" {
			a.texts[list.method] += " " + volatile(failure, home)
		}
	}
	if calls == nil {
		a.called = s.choose(e, l, work)
	}
	for i, call := range a.called {
		answer, err := p.answer(ctx, call)
		if err != nil {
			answer = "no answer: " + err.Error()
		}
		a.texts[fmt.Sprintf("call %d of %s", i+1, call.tool)] = volatile(answer, home)
	}
	a.refusals = strings.Join(refusal.FindAllString(p.stderr.String(), 3), " | ")
	return a, nil
}

// refusal matches the lines that a confined program may write.
var refusal = regexp.MustCompile(
	`(?m)^.*(?:EACCES|EPERM|[Pp]ermission denied|not permitted|not confined).*$`)

// callTime limits one call of a tool.
const callTime = 20 * time.Second

// answer calls a tool and returns its result or error.
func (p *process) answer(ctx context.Context, call toolCall) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	m, err := p.client.Tool(ctx, call.tool, call.arguments)
	if err != nil {
		return "", err
	}
	return string(bytes.Join([][]byte{m.Result, m.Error}, nil)), nil
}

// choose returns the calls of calls.tsv for a server, and calls of tools that only read.
func (s *sandboxMeasurement) choose(e entry, l listing, work string) []toolCall {
	calls := []toolCall{}
	for _, c := range s.calls[e.pkg] {
		calls = append(calls, toolCall{c.tool, strings.ReplaceAll(c.arguments, "HOME", work)})
	}
	left := s.reads
	for _, tool := range l.Tools {
		if left > 0 && string(mcptest.At(tool, "annotations", "readOnlyHint")) == "true" {
			left--
			arguments := sampleValue(mcptest.At(tool, "inputSchema"), "", 0)
			if strings.HasPrefix(arguments, "{") {
				calls = append(calls, toolCall{text(tool, "name"), arguments})
			}
		}
	}
	return calls
}

var (
	temporaryFolder = regexp.MustCompile(`/[^\s"']*/gatekit-sandbox-[0-9]+`)
	hexadecimal     = regexp.MustCompile(`[0-9a-f]{8,}(?:-[0-9a-f]+)*`)
	digits          = regexp.MustCompile(`[0-9]+`)
)

// volatile replaces what differs from start to start. A private home or temporary folder of the
// sandbox counts as the home folder.
func volatile(answer, home string) string {
	answer = temporaryFolder.ReplaceAllString(answer, home)
	answer = strings.ReplaceAll(answer, home, "HOME")
	answer = hexadecimal.ReplaceAllString(answer, "X")
	return digits.ReplaceAllString(answer, "0")
}
