//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	c := checker{out: os.Stdout, top: "."}
	flag.StringVar(&c.base, "base", "",
		"check only mutants in lines that differ from this `commit`")
	flag.StringVar(&c.file, "file", "", "check only mutants in this `file` of the package")
	flag.BoolVar(&c.update, "update", false, "rewrite the lists of survivors")
	flag.DurationVar(&c.limit, "time", 0, "stop after this `duration`")
	flag.IntVar(&c.workers, "workers", 1, "`number` of mutants that are tested at a time")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(),
			"usage: go run ./test/mutants [flags] [package folder ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// A checker checks packages of the module whose top folder is top.
type checker struct {
	out     io.Writer
	top     string
	base    string // if not empty, only lines that differ from this commit are mutated
	file    string // if not empty, only this file of the package is mutated
	update  bool
	limit   time.Duration // 0 is no limit
	workers int
}

// errSurvivors is returned if a mutant survives that is not listed.
var errSurvivors = errors.New("mutants survive that no list explains\n" +
	"hint: write a test that fails with the mutant, or add the entry above to the list, with a " +
	"reason")

// errStale is returned with -base if a list has an entry whose mutant no longer exists.
var errStale = errors.New("a list of survivors has entries of mutants that no longer exist\n" +
	"hint: remove the entries above from the list, or write the new line into them")

// run checks the packages in the folders, or the packages that differ from the base if there are no
// folders.
func (c checker) run(ctx context.Context, folders []string) error {
	if c.update && c.base != "" {
		return errors.New("-update needs all mutants: leave out -base")
	}
	if c.file != "" && len(folders) != 1 {
		return errors.New("-file is the name of a file in one package: name one package folder")
	}
	if len(folders) == 0 {
		if c.base == "" {
			return errors.New("name a package folder, or a commit with -base")
		}
		var err error
		if folders, err = c.changedPackages(); err != nil {
			return err
		}
		if len(folders) == 0 {
			fmt.Fprintf(c.out, "skipped: no package with a list of survivors differs from %s\n",
				c.base)
			return nil
		}
	}
	if c.limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.limit)
		defer stop()
	}
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var failed error
	for _, folder := range folders {
		folder = filepath.ToSlash(filepath.Clean(folder))
		if ctx.Err() != nil {
			fmt.Fprintf(c.out, "%s: left out, the time is over\n", folder)
			continue
		}
		found, all, err := c.test(ctx, folder, temp)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		if err != nil && found == nil {
			fmt.Fprintf(c.out, "%s: left out, the time is over\n", folder)
			continue
		}
		err = c.report(folder, found, all)
		if errors.Is(err, errSurvivors) || errors.Is(err, errStale) {
			failed = cmp.Or(failed, err)
		} else if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("interrupted")
	}
	return failed
}

// test tests the mutants of the package in a folder. If ctx ends, the others stay untested. With
// -base, all has every mutant of the package, also those in unchanged lines; it is nil if ctx ended
// before the package was read.
func (c checker) test(ctx context.Context, folder, temp string) (found, all []*mutant, err error) {
	p, err := loadPackage(ctx, filepath.Join(c.top, folder))
	if err != nil {
		return nil, nil, err
	}
	if c.file != "" && !p.has(c.file) {
		return nil, nil, fmt.Errorf("-file %s: the package has no such file", c.file)
	}
	r := rewriter{inScope: func(file string, _ int) bool { return c.file == "" || c.file == file }}
	if c.base != "" {
		every := rewriter{inScope: r.inScope}
		every.rewrite(p)
		all = every.mutants
		changed, err := c.changedLines(ctx, folder)
		if err != nil {
			return nil, all, err
		}
		isFile := r.inScope
		r.inScope = func(file string, line int) bool {
			return isFile(file, line) && changed[file][line]
		}
	}
	files := r.rewrite(p)
	if len(r.mutants) == 0 {
		return nil, all, nil
	}
	t := tester{goPackage: p, temp: temp, workers: c.workers}
	if c.base != "" {
		if t.isListed, err = c.listed(folder); err != nil {
			return nil, nil, err
		}
	}
	failed, err := t.testAll(ctx, r.mutants, files)
	for _, test := range failed {
		fmt.Fprintf(c.out, "%s: %s", folder, test)
	}
	return r.mutants, all, err
}

// listed returns a function that reports whether the package's list explains a survivor. Each entry
// explains one survivor.
func (c checker) listed(folder string) (func(*mutant) bool, error) {
	list, err := readSurvivors(c.list(folder))
	var mu sync.Mutex
	left := map[[4]string]int{}
	for _, s := range list {
		if s.Why != "" {
			left[s.key()]++
		}
	}
	return func(m *mutant) bool {
		mu.Lock()
		defer mu.Unlock()
		left[m.key()]--
		return left[m.key()] >= 0
	}, err
}

// report compares the mutants of a package with its list of survivors and prints the result. If all
// is not nil, it has every mutant of the package.
func (c checker) report(folder string, found, all []*mutant) error {
	list := c.list(folder)
	listed, err := readSurvivors(list)
	if err != nil {
		return err
	}
	var others []survivor // the entries of files that were not checked
	if c.file != "" {
		all := listed
		listed = nil
		for _, s := range all {
			if s.File == c.file {
				listed = append(listed, s)
			} else {
				others = append(others, s)
			}
		}
	}
	r := compare(found, listed)
	complete := r.untested == 0
	if c.update && complete {
		if err := writeSurvivors(list, append(others, r.current...)); err != nil {
			return err
		}
	}
	for _, s := range r.unexplained {
		fmt.Fprintf(c.out, "%s: survives: %s:%d\n%s", folder, s.File, s.at, s.entry())
	}
	for _, s := range r.unconfirmed {
		fmt.Fprintf(c.out, "%s: may survive, no time for all tests: %s:%d\n%s", folder, s.File,
			s.at, s.entry())
	}
	scope := ""
	if c.file != "" {
		scope = " in " + c.file
	}
	if c.base != "" {
		scope += " in changed lines"
	}
	fmt.Fprintf(c.out, "%s: %s%s\n", folder, r.summary(), scope)
	var stale []survivor
	if all != nil {
		stale = withoutMutant(listed, all)
	}
	for _, s := range stale {
		fmt.Fprintf(c.out, "%s: remove from the list, gone: %s %s %s\n", folder, s.File, s.Mutant,
			s.Line)
	}
	if complete && c.base == "" && !c.update {
		for _, s := range r.stale {
			fmt.Fprintf(c.out, "%s: remove from the list, killed or gone: %s %s %s\n", folder,
				s.File, s.Mutant, s.Line)
		}
	}
	if len(r.unexplained) > 0 {
		return errSurvivors
	}
	if len(stale) > 0 {
		return errStale
	}
	return nil
}

// list returns the path of a package's list of survivors.
func (c checker) list(folder string) string {
	return filepath.Join(c.top, "test/mutants/survivors", folder+".toml")
}

// changedPackages returns the folders with a list of survivors whose production files differ from
// the base.
func (c checker) changedPackages() ([]string, error) {
	git := exec.Command("git", "diff", "--name-only", "--merge-base", "--diff-filter=d", c.base,
		"--", "*.go")
	git.Dir = c.top
	git.Stderr = os.Stderr
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("compare with the commit %s: %w", c.base, err)
	}
	var folders []string
	for _, file := range strings.Fields(string(out)) {
		folder := filepath.ToSlash(filepath.Dir(file))
		if strings.HasSuffix(file, "_test.go") || slices.Contains(folders, folder) {
			continue
		}
		if _, err := os.Stat(c.list(folder)); err == nil {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

// changedLines returns the lines of each file in a folder that differ from the base.
func (c checker) changedLines(ctx context.Context, folder string) (map[string]map[int]bool, error) {
	git := exec.CommandContext(ctx, "git", "diff", "--unified=0", "--relative", "--no-prefix",
		"--no-ext-diff", "--no-color", "--merge-base", c.base, "--", ".")
	git.Dir = filepath.Join(c.top, folder)
	git.Stderr = os.Stderr
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("compare with the commit %s: %w", c.base, err)
	}
	changed := map[string]map[int]bool{}
	hunk := regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)
	file := ""
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "+++ "); ok {
			file = strings.TrimSpace(name)
			changed[file] = map[int]bool{}
		} else if m := hunk.FindStringSubmatch(line); m != nil {
			first, _ := strconv.Atoi(m[1])
			count, _ := strconv.Atoi(cmp.Or(m[2], "1"))
			for i := range count {
				changed[file][first+i] = true
			}
		}
	}
	return changed, nil
}
