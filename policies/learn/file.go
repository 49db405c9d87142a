package learn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/policies"

	"github.com/go-json-experiment/json"
)

// File is the file of a learned rule. People may have edited it.
type File struct {
	Rule    string // learned/files/read_text_file/arguments
	Path    string
	Shadow  bool // the rule is recorded and not enforced
	Content []byte
}

// TestPath returns the path of the file with the rule's tests, which may not exist.
func (f *File) TestPath() string { return strings.TrimSuffix(f.Path, ".rego") + "_test.rego" }

// ReadFolder returns the learned rules in a folder that Policy.Write made, sorted by their names.
func ReadFolder(dir string) (files []File, err error) {
	err = walkPolicies(dir, func(path string) error {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f := File{Path: path,
			Rule: "learned/" + strings.TrimSuffix(filepath.ToSlash(rel), ".rego")}
		if f.Content, err = os.ReadFile(path); err != nil {
			return err
		}
		head := "\npackage " + packagePath("gatekit", f.Rule) + "\n"
		if !bytes.Contains(f.Content, []byte(head)) {
			return nil // another policy
		}
		f.Shadow = bytes.Contains(f.Content, []byte(shadowMetadata))
		files = append(files, f)
		return nil
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Rule, b.Rule) })
	return files, err
}

// walkPolicies calls a function with each policy file in a folder. Hidden folders are left out, as
// they are when Gatekit loads the folder.
func walkPolicies(dir string, f func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".rego" || strings.HasSuffix(path, "_test.rego"):
			return nil
		}
		return f(path)
	})
}

// The files that Remove leaves in a folder in place of the last policy. policy.tests needs a test.
const (
	noRulesFile     = "no_rules.rego"
	noRulesTestFile = "no_rules_test.rego"

	noRules = `# Every learned rule of this folder was rejected, so it refuses nothing.
# Remove the folder from policy.files, or call gatekit policy learn again.
package gatekit.no_learned_rules

deny contains "no learned rule is left" if false
`
	noRulesTest = `package gatekit.no_learned_rules_test

test_nothing_is_refused if count(data.gatekit.no_learned_rules.deny) == 0
`
)

// IsLastIn reports whether a folder has no other policy. Gatekit refuses to load a folder without
// policies.
func (f *File) IsLastIn(dir string) (bool, error) {
	last := true
	err := walkPolicies(dir, func(path string) error {
		last = last && path == f.Path
		return nil
	})
	return last, err
}

// Remove removes the rule and its tests from the folder that ReadFolder read. In place of the last
// policy of the folder, Remove leaves one that refuses nothing: a folder that anything else has
// emptied stays an error, so that a reload never takes it for a decision.
func (f *File) Remove(dir string) error {
	last, err := f.IsLastIn(dir)
	if err != nil {
		return err
	}
	if last {
		for name, content := range map[string]string{noRulesFile: noRules,
			noRulesTestFile: noRulesTest} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o640); err != nil {
				return err
			}
		}
	}
	// the tests first: without the rule they would not compile
	if err := os.Remove(f.TestPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(f.Path)
}

// shadowMetadata are the lines of a rule that is recorded and not enforced.
const shadowMetadata = "# custom:\n#   mode: shadow\n"

// Enforced returns the content of the file with the rule enforced.
func (f *File) Enforced() []byte {
	return bytes.Replace(f.Content, []byte(shadowMetadata), nil, 1)
}

// maxWidening bounds the Rego that a record adds to a rule.
const maxWidening = 16 << 10

// Widened returns the content of the file with the rule also allowing a recorded request. The
// comment says who allowed it and when. It is an error if the rule allows the request already, or
// if the record has not what the rule reads.
func (f *File) Widened(ctx context.Context, c *policies.Case, comment string) ([]byte, error) {
	denied, err := f.denies(ctx, f.Content, c)
	if err != nil {
		return nil, err
	}
	if !denied {
		return nil, fmt.Errorf("the rule %s does not refuse record %d", f.Rule, c.Seq)
	}
	clause, err := f.clause(c)
	if err != nil {
		return nil, err
	}
	if len(clause) > maxWidening {
		return nil, fmt.Errorf("the values of record %d are larger than %d bytes\nhint: edit %s",
			c.Seq, maxWidening, f.Path)
	}
	wider := slices.Concat(f.Content, []byte("\n# "+comment+"\n"+clause))
	if denied, err = f.denies(ctx, wider, c); err == nil && denied {
		err = fmt.Errorf("the rule %s would still refuse record %d\nhint: edit %s", f.Rule, c.Seq,
			f.Path)
	}
	return wider, err
}

// denies reports whether a rule with a content denies a case.
func (f *File) denies(ctx context.Context, content []byte, c *policies.Case) (bool, error) {
	dir, err := os.MkdirTemp("", "gatekit-widen-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "rule.rego")
	enforced := (&File{Content: content}).Enforced()
	if err := os.WriteFile(file, enforced, 0o600); err != nil {
		return false, err
	}
	stage, err := policies.Load(policies.Options{Files: []string{file}})
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.Path, err)
	}
	missing, err := stage.MissingMembers(c)
	if err != nil {
		return false, err
	}
	if len(missing) > 0 {
		return false, fmt.Errorf("record %d has no body, and the rule %s reads it", c.Seq, f.Rule)
	}
	o := stage.Evaluate(ctx, c)
	return o.Action == "deny", o.Err
}

// clause returns the Rego that allows what a case has.
func (f *File) clause(c *policies.Case) (string, error) {
	m := c.Message
	switch last := f.Rule[strings.LastIndexByte(f.Rule, '/')+1:]; {
	case f.Rule == "learned/servers":
		return fmt.Sprintf("learned if {\n\tgroup == %s\n\tinput.server == %s\n}\n",
			quote(groupOf(c)), quote(m.Server)), nil
	case m.Direction == mcp.ToClient && last == "asks":
		return fmt.Sprintf("learned if input.method == %s\n", quote(m.Method)), nil
	case strings.Count(f.Rule, "/") == 2 && last == learnedMethods[m.Method]:
		return fmt.Sprintf("learned if {\n\tgroup == %s\n\tinput.name == %s\n}\n",
			quote(groupOf(c)), quote(m.Name)), nil
	}
	_, rest, found := bytes.Cut(f.Content, []byte("\n"+placePrefix))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	var place []any
	if !found || json.Unmarshal(line, &place) != nil {
		return "", fmt.Errorf("the rule %s cannot be widened from a record\nhint: edit %s", f.Rule,
			f.Path)
	}
	raw, ok := m.Get("/arguments")
	arguments := parseArguments(raw)
	if !ok || arguments == nil {
		return "", errors.New("the record has no arguments")
	}
	values := valuesAt([]any{arguments}, place)
	if bytes.Contains(f.Content, []byte("\nnames := ")) {
		var names []string
		for _, v := range values {
			object, _ := v.(map[string]any)
			for name := range object {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return fmt.Sprintf("allowed(value) if {\n\tis_object(value)\n\tcount(object.keys(value) "+
			"- (names | %s)) == 0\n}\n", setOf(slices.Compact(names))), nil
	}
	list, err := marshal(values)
	return fmt.Sprintf("allowed(value) if value in %s\n", escape(list)), err
}

// valuesAt returns the values at a place in each of the values.
func valuesAt(values []any, place []any) []any {
	for _, step := range place {
		var below []any
		for _, v := range values {
			switch name, isName := step.(string); {
			case isName:
				object, _ := v.(map[string]any)
				if member, ok := object[name]; ok {
					below = append(below, member)
				}
			default:
				items, _ := v.([]any)
				below = append(below, items...)
			}
		}
		values = below
	}
	return values
}
