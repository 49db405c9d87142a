package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/policies"
)

func (p *program) policyTest() *cobra.Command {
	var config string
	var coverage bool
	c := &cobra.Command{
		Use:   "test [PATH…]",
		Short: "Run the tests of the policies",
		Long: `Test runs the tests (*_test.rego) beside the policies of the configuration, and the
tests of the active rules of the library. With arguments, it runs the tests of the named files,
folders and bundles instead. Write tests as for OPA:
https://www.openpolicyagent.org/docs/policy-testing. Tests are compiled in the same way as policies:
an input field that does not exist is an error, and so is http.send.

Test prints each failed test, with the expression that was not true, and then exits with 1:

  policies/mine_test.rego:9: gatekit.mine_test.test_writes_are_refused
      policies/mine_test.rego:10: failed: count(mine.deny) == 1 with input as {"name": "write"}
  11 passed, 1 failed

--coverage prints how much of each file the tests covered, and the lines that they did not cover.`,
		Example: `  gatekit policy test
  gatekit policy test --coverage policies
  gatekit policy test --config /etc/gatekit/gatekit.toml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := policies.Options{Files: args}
			if len(args) == 0 {
				var err error
				if _, o, err = p.loadPolicyOptions(cmd.Context(), config); err != nil {
					return reportMistakes(cmd, err, false)
				}
			}
			tests, covered, err := policies.RunTests(cmd.Context(), o)
			if err != nil {
				return errors.New(displayText(err.Error()))
			}
			if len(tests) == 0 {
				return errors.New("there are no tests\nhint: gatekit policy new NAME writes a " +
					"policy with tests; tests are rules named test_… in files named *_test.rego")
			}
			good := printTests(cmd.OutOrStdout(), tests)
			if coverage {
				printCoverage(cmd.OutOrStdout(), covered)
			}
			if !good {
				return errReported
			}
			return nil
		},
	}
	configFlag(c, &config)
	c.Flags().BoolVar(&coverage, "coverage", false, "print how much of each file the tests covered")
	return c
}

// printTests prints the failed tests and a summary, and reports whether all tests passed.
func printTests(w io.Writer, tests []policies.Test) bool {
	for _, t := range tests {
		if t.Failure != "" {
			fmt.Fprintf(w, "%s:%d: %s\n    %s\n", displayPath(t.File), t.Line, t.Name,
				indented(displayText(t.Failure)))
			if t.Output != "" {
				fmt.Fprintf(w, "    output: %s\n", indented(strings.TrimSuffix(t.Output, "\n")))
			}
		}
	}
	summary, good := summarize(tests)
	fmt.Fprintln(w, summary)
	return good
}

// summarize returns the numbers of tests that passed, failed and were skipped, as text. good is
// true if no test failed.
func summarize(tests []policies.Test) (summary string, good bool) {
	var passed, failed, skipped int
	for _, t := range tests {
		switch {
		case t.Skipped:
			skipped++
		case t.Failure != "":
			failed++
		default:
			passed++
		}
	}
	summary = fmt.Sprintf("%d passed", passed)
	if failed > 0 {
		summary += fmt.Sprintf(", %d failed", failed)
	}
	if skipped > 0 {
		summary += fmt.Sprintf(", %d skipped", skipped)
	}
	return summary, failed == 0
}

func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

func printCoverage(w io.Writer, covered []policies.Coverage) {
	for _, c := range covered {
		fmt.Fprintf(w, "%5.1f%%  %s", c.Percent, displayPath(c.File))
		if len(c.Uncovered) > 0 {
			fmt.Fprintf(w, "  not covered: %s", lineRanges(c.Uncovered))
		}
		fmt.Fprintln(w)
	}
}

// lineRanges returns line numbers in the form "3, 7-9".
func lineRanges(lines []int) string {
	var parts []string
	for i := 0; i < len(lines); {
		j := i
		for j+1 < len(lines) && lines[j+1] == lines[j]+1 {
			j++
		}
		part := fmt.Sprint(lines[i])
		if j > i {
			part += fmt.Sprintf("-%d", lines[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
