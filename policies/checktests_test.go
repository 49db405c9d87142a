package policies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/policies"
)

// CheckTests names the file and the line of each failed test, and policies without tests fail.
func TestCheckTestsNamesFailedTests(t *testing.T) {
	const (
		policy = "package gatekit.mine\n\ndeny contains \"no\" if input.name == \"write\"\n"
		head   = "package gatekit.mine_test\n\nimport data.gatekit.mine\n\n"
		passes = "test_write if \"no\" in mine.deny with input as {\"name\": \"write\"}\n"
		fails  = "test_read if \"no\" in mine.deny with input as {\"name\": \"read\"}\n"
	)
	for name, c := range map[string]struct {
		tests string
		want  []string // parts of the error; none for no error
	}{
		"a test that passes": {tests: head + passes},
		"one of two fails": {tests: head + passes + fails,
			want: []string{"mine_test.rego:6: the test gatekit.mine_test.test_read fails: "}},
		"two fail": {tests: head + fails + strings.Replace(fails, "read", "list", 1),
			want: []string{"mine_test.rego:5: ", "mine_test.rego:6: "}},
		"no test": {want: []string{"the policies have no test that runs"}},
		"only a test to be written": {tests: head + "todo_" + passes,
			want: []string{"the policies have no test that runs"}},
		"a mistake in the tests": {tests: head + "test_a if input.nmae == 1\n",
			want: []string{"mine_test.rego:5:"}},
		"an effect in the tests": {tests: "package gatekit.mine\n\ndeny contains \"x\"\n",
			want: []string{"mine_test.rego:3: deny is not in force"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"mine.rego": policy,
				"mine_test.rego": c.tests} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := policies.CheckTests(t.Context(), policies.Options{Files: []string{dir},
				Rules: []string{"tools/readonly"}})
			if len(c.want) == 0 && err != nil {
				t.Fatalf("got the error %v, want none", err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %v, want one with %q", err, want)
				}
			}
		})
	}
}
