package policies

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatekit/core/regularfile"
	"gatekit/policies/library"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// Options select policies and how to evaluate them.
type Options struct {
	Rules  []string                  // library rules by their names, such as roots/traversal
	Files  []string                  // .rego files, folders with .rego files, bundles (.tar.gz)
	Data   []string                  // JSON documents, merged into data
	Config map[string]map[string]any // the settings of library rules: data.config[rule]
	Shadow bool                      // record the effects without enforcing them
	// a label is kept for all sessions of its principal, not only for the session that got it
	LabelsByPrincipal bool

	// the keys that verify bundles, by the names that signatures may use for them; see ReadBundle
	Keys    map[string]Key
	Bundles []*Bundle // further bundles, which the caller has read

	// The stage keeps what rules returned for an input, and returns it again for an equal input. It
	// is for many recorded messages at once: rules that read files see them as they were at first.
	ReuseDecisions bool

	Sessions *SessionStore    // nil means a new store
	Shared   *SharedSessions  // what several replicas know together; nil if there is one
	Now      func() time.Time // nil means time.Now
}

//go:embed input.schema.json
var inputSchema []byte

// forbidden are the built-in functions that policies must not use. Some reach out of a policy or
// reveal the environment. With others, a large number in a message could use all memory or time,
// and no deadline would stop these functions.
var forbidden = []string{"http.send", "opa.runtime", "net.lookup_ip_addr", "rego.parse_module",
	"trace", "bits.lsh", "units.parse", "units.parse_bytes"}

// Capabilities returns the built-in functions that policies may use: OPA's own without the
// forbidden ones, and [Builtins].
func Capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		return slices.Contains(forbidden, b.Name)
	})
	for _, f := range Builtins() {
		c.Builtins = append(c.Builtins, f.Decl)
	}
	c.AllowNet = []string{}
	return c
}

// sources are the modules and data that Options select.
type sources struct {
	modules map[string]*ast.Module // by file name
	data    map[string]any
	texts   [][]byte // the texts of the modules that are not tests
	bundles []*Bundle
	keys    map[string]Key
	tests   bool // whether to read the tests beside the policies
}

// readSources reads all files that o selects. If tests is set, it also reads the tests beside these
// files. The error joins all errors. Each error names its file, and its line if there is one.
func readSources(o Options, tests bool) (*sources, error) {
	s := &sources{modules: map[string]*ast.Module{}, data: map[string]any{}, keys: o.Keys,
		tests: tests}
	var faults []error
	for _, rule := range o.Rules {
		faults = append(faults, s.addLibraryRule(rule, o.Config[rule]))
	}
	for rule := range o.Config {
		if !slices.Contains(o.Rules, rule) {
			faults = append(faults, fmt.Errorf("policy.config: the rule %q is not in policy.rules",
				rule))
		}
	}
	for _, f := range o.Files {
		faults = append(faults, s.addFile(f))
	}
	for _, b := range o.Bundles {
		faults = append(faults, s.addBundle(b))
	}
	for _, f := range o.Data {
		faults = append(faults, s.addDataFile(f))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	config := map[string]any{}
	for _, rule := range o.Rules {
		config[rule] = map[string]any{} // a rule without settings reads an empty object
		if settings := o.Config[rule]; settings != nil {
			config[rule] = settings
		}
	}
	if _, taken := s.data["config"]; taken {
		return nil, errors.New(
			`the data contain "config", which is reserved for the settings of library rules`)
	}
	s.data["config"] = config
	return s, nil
}

// addLibraryRule adds a library rule, after checking its settings.
func (s *sources) addLibraryRule(name string, settings map[string]any) error {
	b, err := fs.ReadFile(library.FS, path.Join(name, "rule.rego"))
	if err != nil {
		return &UnknownRuleError{name}
	}
	if err := library.CheckSettings(name, settings); err != nil {
		return settingsErrors(name, err)
	}
	return s.addModule("library/"+name+"/rule.rego", b)
}

// UnknownRuleError is the error about a rule that is not in the library.
type UnknownRuleError struct{ Rule string }

func (e *UnknownRuleError) Error() string {
	return fmt.Sprintf("the library has no rule %q; `gatekit policy list` shows its rules", e.Rule)
}

// SettingsError is one error in the settings of a library rule.
type SettingsError struct {
	Rule string
	Err  error // starts with the option's name
}

func (e *SettingsError) Error() string { return fmt.Sprintf("policy.config.%q: %v", e.Rule, e.Err) }
func (e *SettingsError) Unwrap() error { return e.Err }

// settingsErrors wraps err in a SettingsError. If err joins several errors, it wraps each of them.
func settingsErrors(rule string, err error) error {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return &SettingsError{rule, err}
	}
	var faults []error
	for _, e := range all.Unwrap() {
		faults = append(faults, &SettingsError{rule, e})
	}
	return errors.Join(faults...)
}

// addModule parses a .rego file and adds it.
func (s *sources) addModule(file string, b []byte) error {
	m, err := ast.ParseModuleWithOpts(file, string(b), ast.ParserOptions{ProcessAnnotation: true,
		RegoVersion: ast.RegoV1, Capabilities: Capabilities()})
	if err != nil {
		return withLocations(err)
	}
	if m == nil {
		return fmt.Errorf("%s: the file is empty", file)
	}
	s.modules[file] = m
	if !isTest(file) {
		s.texts = append(s.texts, b)
	}
	return nil
}

// addFile adds a .rego file, a folder, or a bundle.
func (s *sources) addFile(name string) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return s.addFolder(name)
	case strings.HasSuffix(name, ".tar.gz"):
		return s.addBundleFile(name)
	case isTest(name) && !s.tests:
		return fmt.Errorf("%s: a file whose name ends in _test.rego contains tests, and its rules "+
			"are not in force\nhint: name the policy itself; `gatekit policy test` finds its tests",
			name)
	}
	faults := []error{s.addPolicyFile(name)}
	if other := testCounterpart(name); s.tests && other != "" {
		faults = append(faults, s.addPolicyFile(other))
	}
	return errors.Join(faults...)
}

// addFolder adds the .rego files in a folder and its subfolders. Hidden subfolders are left out: a
// folder that Kubernetes mounts has a second copy of each file in a hidden subfolder. A folder
// without policies is an error, because it is probably the wrong folder. A signed folder is an
// error, because only signatures of bundles are verified. Links to folders are not followed,
// because links can form circles. Such a link is an error, because the policies behind it would not
// be in force.
func (s *sources) addFolder(name string) error {
	if _, err := os.Lstat(filepath.Join(name, ".signatures.json")); err == nil {
		return fmt.Errorf("%s: the folder is signed, and Gatekit verifies only the "+
			"signatures of bundles\nhint: opa build --bundle %[1]s --signing-key private.pem "+
			"makes a signed bundle of the folder", name)
	}
	var faults []error
	found := false
	// the path ends with a separator, because WalkDir does not follow a folder that is a link
	err := filepath.WalkDir(name+string(filepath.Separator), func(path string, d fs.DirEntry,
		err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") &&
			path != name+string(filepath.Separator):
			return fs.SkipDir
		case d.Type()&fs.ModeSymlink != 0 && !strings.HasPrefix(d.Name(), "."):
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				faults = append(faults, fmt.Errorf("%s: links to folders are not followed\nhint: "+
					"name the folder itself in policy.files", path))
				return nil
			}
		}
		if d.IsDir() || filepath.Ext(path) != ".rego" || isTest(path) && !s.tests {
			return nil
		}
		found = true
		faults = append(faults, s.addPolicyFile(path))
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: the folder contains no .rego file", name)
	}
	return errors.Join(append(faults, err)...)
}

// addPolicyFile adds one .rego file.
func (s *sources) addPolicyFile(file string) error {
	b, err := regularfile.Read(file, maxFileBytes)
	if err != nil {
		return err
	}
	return s.addModule(filepath.Clean(file), b)
}

// maxFileBytes bounds a policy file and a file of data.
const maxFileBytes = 64 << 20 // bytes

// addDataFile reads a JSON document and adds its members to the data.
func (s *sources) addDataFile(name string) error {
	b, err := regularfile.Read(name, maxFileBytes)
	if err != nil {
		return err
	}
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return fmt.Errorf("%s: not a JSON object: %w", name, err)
	}
	return s.addData(name, doc)
}

// addData adds the members of a document to the data. Two documents may not have the same member.
func (s *sources) addData(name string, doc map[string]any) error {
	for _, k := range slices.Sorted(maps.Keys(doc)) {
		if _, twice := s.data[k]; twice {
			return fmt.Errorf("%s: the member %q is also in another document", name, k)
		}
		s.data[k] = doc[k]
	}
	return nil
}

// withLocations returns OPA's errors, one on each line. Each line begins with the location of the
// error.
func withLocations(err error) error {
	var all ast.Errors
	if !errors.As(err, &all) {
		return err
	}
	var lines []error
	for _, e := range all {
		if e.Location != nil {
			lines = append(lines, fmt.Errorf("%s:%d:%d: %s", e.Location.File, e.Location.Row,
				e.Location.Col, e.Message))
		} else {
			lines = append(lines, errors.New(e.Message))
		}
	}
	return errors.Join(lines...)
}

// compiler returns a compiler in strict mode. It checks references against the schema of the input,
// so that a misspelt member is an error.
func compiler() (*ast.Compiler, error) {
	var schema any
	if err := json.Unmarshal(inputSchema, &schema); err != nil {
		return nil, err
	}
	schemas := ast.NewSchemaSet()
	schemas.Put(ast.SchemaRootRef, schema)
	return ast.NewCompiler().WithCapabilities(Capabilities()).WithStrict(
		true).WithSchemas(schemas).WithUseTypeCheckAnnotations(true), nil
}

// compile compiles modules.
func compile(modules map[string]*ast.Module) (*ast.Compiler, error) {
	c, err := compiler()
	if err != nil {
		return nil, err
	}
	if c.Compile(modules); c.Failed() {
		return nil, withLocations(c.Errors)
	}
	return c, nil
}

// Check returns the errors in the files and settings of o. It does not compile the policies, so it
// also works when bundles that the policies need are not available.
func Check(o Options) error {
	_, err := readSources(o, false)
	return err
}

// Load reads and compiles policies into a stage. The error joins all errors, one on each line, with
// file and line.
func Load(o Options) (*Stage, error) {
	s, err := readSources(o, false)
	if err != nil {
		return nil, err
	}
	rules, err := findEffectRules(s.modules)
	if err != nil {
		return nil, err
	}
	c, err := compile(s.modules)
	if err != nil {
		return nil, err
	}
	digest, err := s.digest(o)
	if err != nil {
		return nil, err
	}
	stage := &Stage{reads: allReads(c.Modules), graph: c.Graph, shadow: o.Shadow,
		labelsByPrincipal: o.LabelsByPrincipal,
		shared:            o.Shared,
		sessions:          o.Sessions,
		now:               o.Now, digest: digest, bundles: s.bundles}
	for _, file := range slices.Sorted(maps.Keys(s.modules)) {
		if !strings.HasPrefix(file, "library/") {
			stage.files = append(stage.files, file)
		}
	}
	if stage.sessions == nil {
		stage.sessions = &SessionStore{}
	}
	if o.ReuseDecisions {
		stage.decisions = &decisionCache{}
	}
	if stage.now == nil {
		stage.now = time.Now
	}
	data := inmem.NewFromObject(s.data)
	if stage.all, err = prepare(allRules, rules, c, data); err == nil {
		stage.hides, err = prepare(hideRules, onlyHides(rules), c, data)
	}
	if err == nil {
		stage.ownHides, err = prepare(ownHideRules, slices.DeleteFunc(onlyHides(rules),
			func(r effectRule) bool {
				return r.library
			}), c, data)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the policies: %w", withLocations(err))
	}
	settings, err := ast.InterfaceToValue(s.data["config"])
	if err != nil {
		return nil, fmt.Errorf("read the settings of the rules: %w", err)
	}
	stage.selector = newRuleSelector(c, data, settings)
	if stage.contributions, err = contributions(c, stage.selector, rules); err != nil {
		return nil, err
	}
	return stage, nil
}

// prepare returns the query of rules. A query without rules is never evaluated.
func prepare(set ruleSet, rules []effectRule, c *ast.Compiler,
	data storage.Store) (ruleQuery, error) {
	if len(rules) == 0 {
		return ruleQuery{ruleSet: set}, nil
	}
	refs := make([]string, len(rules))
	for i, r := range rules {
		refs[i] = r.ref
	}
	options := []func(*rego.Rego){rego.Query("x := [" + strings.Join(refs, ",") + "]"),
		rego.Compiler(c), rego.Store(data), rego.StrictBuiltinErrors(true)}
	for _, f := range Builtins() {
		options = append(options, f.Func)
	}
	query, err := rego.New(options...).PrepareForEval(context.Background())
	return ruleQuery{ruleSet: set, rules: rules, query: query}, err
}
