package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gatekit/policies/library"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Test is the result of one test of the policies.
type Test struct {
	Name    string // with its package but without "data.": "gatekit.mine_test.test_writes"
	File    string
	Line    int
	Skipped bool   // its name starts with todo_
	Failure string // "" when it passed; otherwise the expression that failed, if it is known
	Output  string // output of print()
}

// Coverage describes how much of one file the tests evaluated.
type Coverage struct {
	File      string
	Percent   float64
	Uncovered []int // lines, ascending
}

// RunTests runs the tests that o selects. These are the *_test.rego files in the folders and
// bundles of o and beside the files of o, and the tests of the library rules of o. Tests are
// compiled like policies: forbidden functions do not exist, and an error of a function fails the
// test. Library rules are tested with the settings in their tests, not with the settings in o. The
// error joins all errors that prevent the tests from running, one on each line.
func RunTests(ctx context.Context, o Options) ([]Test, []Coverage, error) {
	s, err := readSources(o, true)
	if err != nil {
		return nil, nil, err
	}
	if err := effectsInTests(s.modules); err != nil {
		return nil, nil, err
	}
	tests, covered, err := run(ctx, s)
	if err != nil || len(o.Rules) == 0 {
		return tests, covered, err
	}
	rules, err := readSources(Options{Rules: o.Rules}, true)
	if err != nil {
		return nil, nil, err
	}
	for _, rule := range o.Rules {
		b, err := fs.ReadFile(library.FS, path.Join(rule, "rule_test.rego"))
		if err == nil {
			err = rules.addModule("library/"+rule+"/rule_test.rego", b)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	ruleTests, ruleCoverage, err := run(ctx, rules)
	// the coverage of library rules comes from their own tests
	covered = slices.DeleteFunc(covered, func(c Coverage) bool {
		return strings.HasPrefix(c.File, "library/")
	})
	return append(tests, ruleTests...), append(covered, ruleCoverage...), err
}

// CheckTests runs the tests in the folders and bundles of o and beside its files. It returns an
// error if one of them fails or if there is none. The error joins one error for each failed test,
// with its file and line. The tests of library rules are not run: they do not depend on o.
func CheckTests(ctx context.Context, o Options) error {
	s, err := readSources(o, true)
	if err != nil {
		return err
	}
	if err := effectsInTests(s.modules); err != nil {
		return err
	}
	tests, _, err := run(ctx, s)
	if err != nil {
		return fmt.Errorf("run the tests of the policies: %w", err)
	}
	var faults []error
	ran := false
	for _, t := range tests {
		ran = ran || !t.Skipped
		if t.Failure != "" {
			faults = append(faults, fmt.Errorf("%s:%d: the test %s fails: %s", t.File, t.Line,
				t.Name, t.Failure))
		}
	}
	if !ran {
		return errors.New("policy.tests is true, and the policies have no test that runs\nhint: " +
			"write rules named test_… in files named *_test.rego; gatekit policy new NAME shows " +
			"how")
	}
	return errors.Join(faults...)
}

// effectsInTests returns an error for each rule with an effect in a test file. Such a rule is not
// in force, because test files are only read to run the tests in them.
func effectsInTests(modules map[string]*ast.Module) error {
	var faults []error
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		if !isTest(file) || !strings.HasPrefix(packageName(modules[file])+".", "gatekit.") {
			continue
		}
		for _, r := range modules[file].Rules {
			name := r.Head.Ref()[0].String()
			if r.Head.Key != nil && r.Head.Value == nil && slices.Contains(effectNames, name) {
				faults = append(faults, fmt.Errorf("%s:%d: %s is not in force: a file whose "+
					"name ends in _test.rego is only read to run its tests\nhint: move the rule "+
					"to a file with another name", file, r.Location.Row, name))
			}
		}
	}
	return errors.Join(faults...)
}

// run runs all tests in s. It runs the failed tests a second time to find where they fail.
func run(ctx context.Context, s *sources) ([]Test, []Coverage, error) {
	covered := cover.New()
	results, err := runTester(ctx, s,
		func(r *tester.Runner) {
			r.SetCoverageQueryTracer(covered).SetCoverageRuns([]cover.Kind{})
		})
	if err != nil {
		return nil, nil, err
	}
	var failed []string
	for _, r := range results {
		if r.Fail {
			failed = append(failed, regexp.QuoteMeta(r.Package+"."+r.Name))
		}
	}
	failures := map[string]string{}
	// run the failed tests again with a trace: one run cannot both trace and measure coverage
	if len(failed) > 0 {
		traced, err := tracedResults(ctx, s, "^("+strings.Join(failed, "|")+")$")
		if err != nil {
			return nil, nil, err
		}
		for _, r := range traced {
			failures[r.Package+"."+r.Name] = failedAt(r)
		}
	}
	var tests []Test
	for _, r := range results {
		t := Test{Name: strings.TrimPrefix(r.Package, "data.") + "." + r.Name,
			File: r.Location.File, Line: r.Location.Row, Skipped: r.Skip, Output: string(r.Output)}
		switch {
		case r.Error != nil:
			t.Failure = r.Error.Error()
		case r.Fail:
			t.Failure = cmp.Or(failures[r.Package+"."+r.Name], "the test failed")
		}
		tests = append(tests, t)
	}
	slices.SortFunc(tests, func(a, b Test) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return tests, coverage(covered, s.modules), nil
}

// tracedResults runs the tests whose names match a regular expression, with a trace.
func tracedResults(ctx context.Context, s *sources, names string) ([]*tester.Result, error) {
	return runTester(ctx, s, func(r *tester.Runner) { r.EnableTracing(true).Filter(names) })
}

// testTimeout limits one test. OPA's default of 5 s is too short for a long test on a busy machine.
const testTimeout = time.Minute

// runTester runs the tests in s with OPA's runner, after configure has configured it.
func runTester(ctx context.Context, s *sources,
	configure func(*tester.Runner)) ([]*tester.Result, error) {
	c, err := compiler()
	if err != nil {
		return nil, err
	}
	var functions []*tester.Builtin
	for _, f := range Builtins() {
		functions = append(functions, (*tester.Builtin)(&f))
	}
	r := tester.NewRunner().AddCustomBuiltins(functions).SetCompiler(
		c.WithEnablePrintStatements(true)).SetStore(inmem.NewFromObject(
		s.data)).SetModules(s.modules).RaiseBuiltinErrors(true).SetTimeout(testTimeout)
	configure(r)
	ch, err := r.RunTests(ctx, nil)
	if err != nil {
		return nil, withLocations(err)
	}
	var all []*tester.Result
	for result := range ch {
		all = append(all, result)
	}
	return all, ctx.Err()
}

// failedAt returns the last expression that failed in the body of a failed test, with file and
// line.
func failedAt(r *tester.Result) string {
	var query uint64
	var last *ast.Expr
	for _, e := range r.Trace {
		rule, isRule := e.Node.(*ast.Rule)
		if e.Op == topdown.EnterOp && isRule && rule.Location.Equal(r.Location) {
			query = e.QueryID
		}
		if expr, ok := e.Node.(*ast.Expr); ok && e.Op == topdown.FailOp && e.QueryID == query {
			last = expr
		}
	}
	if last == nil || last.Location == nil {
		return ""
	}
	line, _, _ := strings.Cut(string(last.Location.Text), "\n")
	return fmt.Sprintf("%s:%d: failed: %s", last.Location.File, last.Location.Row, line)
}

// coverage returns the coverage of the policies among modules.
func coverage(c *cover.Cover, modules map[string]*ast.Module) (all []Coverage) {
	policies := maps.Clone(modules)
	maps.DeleteFunc(policies, func(file string, _ *ast.Module) bool { return isTest(file) })
	report := c.Report(policies)
	for _, file := range slices.Sorted(maps.Keys(policies)) {
		f := report.Files[file]
		if f == nil || f.CoveredLines+f.NotCoveredLines == 0 {
			continue
		}
		one := Coverage{File: file, Percent: f.Coverage}
		for _, r := range f.NotCovered {
			for row := r.Start.Row; row <= r.End.Row; row++ {
				if !slices.Contains(one.Uncovered, row) {
					one.Uncovered = append(one.Uncovered, row)
				}
			}
		}
		slices.Sort(one.Uncovered)
		all = append(all, one)
	}
	return all
}

// isTest reports whether a file contains tests.
func isTest(file string) bool { return strings.HasSuffix(file, "_test.rego") }

// testCounterpart returns the name of the test file of a policy file, or of the policy file of a
// test file; "" when that file does not exist.
func testCounterpart(file string) string {
	other := strings.TrimSuffix(file, ".rego") + "_test.rego"
	if isTest(file) {
		other = strings.TrimSuffix(file, "_test.rego") + ".rego"
	}
	if _, err := os.Stat(other); filepath.Ext(file) != ".rego" || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return other
}
