//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// A tester tests the mutants of one package.
type tester struct {
	*goPackage
	temp    string // a folder for files
	workers int

	// isListed reports whether the list explains a survivor. All tests are run once more against
	// each survivor that it does not explain. If isListed is nil, no survivor is tested again.
	isListed func(*mutant) bool
}

// A test is one test function of the package.
type test struct {
	name    string
	time    time.Duration
	cpu     time.Duration // of the processor
	reached map[int]bool  // the numbers of the mutants whose switches the test comes to
}

// A binary is a built test binary.
type binary string

// errInvalid is returned for a program that does not compile.
var errInvalid = errors.New("the program does not compile")

// build builds the package's tests with other texts of some files.
func (t *tester) build(ctx context.Context, files map[string][]byte) (binary, error) {
	dir, err := os.MkdirTemp(t.temp, "build-")
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range files {
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			return "", err
		}
		overlay.Replace[path] = copied
	}
	written, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, written, 0o600); err != nil {
		return "", err
	}
	result := filepath.Join(dir, "package.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-w",
		"-overlay", list, "-o", result, ".")
	cmd.Dir = t.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && ctx.Err() == nil {
			err = errInvalid
		}
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary(result), nil
}

// A testRun is the result of running tests.
type testRun struct {
	passed bool
	output []byte
	time   time.Duration
	cpu    time.Duration // of the processor
}

// run runs some tests, or all tests if none is named. They fail if they take longer than limit. An
// error means that they did not run.
func (t *tester) run(ctx context.Context, b binary, tests []string, limit time.Duration,
	env ...string) (testRun, error) {
	args := []string{"-test.short", "-test.failfast", "-test.timeout=" + limit.String()}
	var patterns []string
	for _, name := range tests {
		patterns = append(patterns, regexp.QuoteMeta(name))
	}
	if len(patterns) > 0 {
		args = append(args, "-test.run=^("+strings.Join(patterns, "|")+")$")
	}
	cmd := exec.CommandContext(ctx, string(b), args...)
	cmd.Dir = t.folder
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// The processes that the tests leave behind are killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	started := time.Now()
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return testRun{}, ctx.Err()
	case err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		return testRun{}, err
	}
	return testRun{passed: cmd.ProcessState.Success(), output: out.Bytes(),
		time: time.Since(started),
		cpu:  cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}

// measure runs each test of the program with all mutants, none of which is active. It returns the
// tests that pass, the fastest first, and a line about each that fails.
func (t *tester) measure(ctx context.Context, b binary) (tests []test, failed []string, err error) {
	list := exec.CommandContext(ctx, string(b), "-test.list=.")
	list.Dir = t.folder
	names, err := list.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the tests: %w", err)
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(t.workers)
	for _, name := range strings.Fields(string(names)) {
		if strings.HasPrefix(name, "Benchmark") {
			continue
		}
		group.Go(func() error {
			reached := filepath.Join(t.temp, "reached-"+name)
			run, err := t.run(ctx, b, []string{name}, 10*time.Minute,
				envReached+"="+reached)
			if err != nil {
				return err
			}
			measured := test{name: name, time: run.time, cpu: run.cpu}
			mu.Lock()
			defer mu.Unlock()
			if !run.passed {
				failed = append(failed, fmt.Sprintf("%s: left out, it fails without a mutant\n%s",
					name, run.output))
				return nil
			}
			if measured.reached, err = readReached(reached); err == nil {
				tests = append(tests, measured)
			}
			return err
		})
	}
	err = group.Wait()
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.time, b.time) })
	return tests, failed, err
}

// readReached reads the file to which the program with all mutants writes.
func readReached(name string) (map[int]bool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	reached := map[int]bool{}
	for _, number := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		reached[n] = true
	}
	return reached, nil
}

// firstBatch is how long the first tests take that run against a mutant. Most mutants fail these.
const firstBatch = 200 * time.Millisecond

// test runs the tests that could notice the mutant, the fastest first, until one fails. The binary
// is the program with all mutants.
func (t *tester) test(ctx context.Context, m *mutant, b binary, tests []test) (outcome, error) {
	if m.number > 0 {
		tests = slices.DeleteFunc(slices.Clone(tests), func(t test) bool {
			return !t.reached[m.number]
		})
	} else {
		var err error
		b, err = t.buildAlone(ctx, m)
		switch {
		case errors.Is(err, errInvalid):
			return invalid, nil
		case err != nil:
			return untested, err
		}
		defer os.RemoveAll(filepath.Dir(string(b)))
	}
	var batch []string
	var took, cpu, before time.Duration
	for i, next := range tests {
		batch, took, cpu = append(batch, next.name), took+next.time, cpu+next.cpu
		if i+1 < len(tests) && took < max(before, firstBatch) {
			continue
		}
		seconds := int((2*time.Second + 5*cpu).Seconds())
		run, err := t.run(ctx, b, batch, 5*time.Second+5*took,
			envActive+"="+strconv.Itoa(m.number), envCPU+"="+strconv.Itoa(seconds))
		if err != nil {
			return untested, err
		}
		if !run.passed {
			return killed, nil
		}
		before, batch, took, cpu = before+took, nil, 0, 0
	}
	return survived, nil
}

// buildAlone builds the program with one mutant and no switches.
func (t *tester) buildAlone(ctx context.Context, m *mutant) (binary, error) {
	text, err := m.program()
	if err != nil {
		return "", err
	}
	path, limits := t.switches(0)
	return t.build(ctx, map[string][]byte{m.path: text, path: limits})
}

// confirm runs all tests of the package against a survivor, in a program without switches. On a
// busy machine, a test may come to other switches than when it was measured, or fail without a
// mutant, and so be left out. Only a mutant that passes all tests is reported.
func (t *tester) confirm(ctx context.Context, m *mutant) (outcome, error) {
	b, err := t.buildAlone(ctx, m)
	switch {
	case errors.Is(err, errInvalid):
		return invalid, nil
	case err != nil:
		return unconfirmed, err
	}
	defer os.RemoveAll(filepath.Dir(string(b)))
	run, err := t.run(ctx, b, nil, 10*time.Minute)
	switch {
	case err != nil:
		return unconfirmed, err
	case run.passed:
		return survived, nil
	}
	return killed, nil
}

// testAll tests mutants of a package. The program with all mutants is in files. If ctx ends, the
// other mutants stay untested.
func (t *tester) testAll(ctx context.Context, mutants []*mutant, files map[string][]byte) (
	failed []string, err error) {
	all, err := t.build(ctx, files)
	if err != nil {
		return nil, err
	}
	tests, failed, err := t.measure(ctx, all)
	if err != nil {
		return nil, err
	}
	var group errgroup.Group
	group.SetLimit(t.workers)
	for _, m := range mutants {
		group.Go(func() (err error) {
			m.outcome, err = t.test(ctx, m, all, tests)
			if m.outcome == survived && t.isListed != nil && !t.isListed(m) {
				m.outcome, err = t.confirm(ctx, m)
			}
			return err
		})
	}
	return failed, group.Wait()
}
