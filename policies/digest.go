package policies

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// digest is Stage.Digest of what was read.
func (s *sources) digest(shadow bool) (string, error) {
	var texts [][]byte
	for _, text := range s.texts {
		sum := sha256.Sum256(text)
		texts = append(texts, sum[:])
	}
	slices.SortFunc(texts, bytes.Compare)
	data, err := json.Marshal(s.data) // its members are in order
	if err != nil {
		return "", fmt.Errorf("the data: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%t %d %d\n", shadow, len(texts), len(data))
	for _, t := range texts {
		h.Write(t)
	}
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// LogRules are the rules system.log.mask and system.log.drop: what a decision log may say. See https://www.openpolicyagent.org/docs/management-decision-logs.
type LogRules struct {
	Compiler *ast.Compiler
	Data     map[string]any // not to be changed
}

// LogRules are those of the policies; nil when they have none.
func (s *Stage) LogRules() *LogRules { return s.logRules }

var systemLog = ast.MustParseRef("data.system.log")

// splitLogRules takes the modules of data.system.log out of those that decide about messages: their input is another, the decision. They see the data, and no other rules.
func (s *sources) splitLogRules() (*LogRules, error) {
	own := map[string]*ast.Module{}
	for file, m := range s.modules {
		if m.Package.Path.HasPrefix(systemLog) {
			own[file] = m
			delete(s.modules, file)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	caps := Capabilities()
	ours := map[string]bool{}
	for _, f := range Functions() {
		ours[f.Decl.Name] = true
	}
	caps.Builtins = slices.DeleteFunc(caps.Builtins, func(b *ast.Builtin) bool { return ours[b.Name] })
	c := ast.NewCompiler().WithCapabilities(caps).WithStrict(true)
	if c.Compile(own); c.Failed() {
		return nil, located(c.Errors)
	}
	return &LogRules{Compiler: c, Data: s.data}, nil
}

// revisions are those of the bundles that were read.
func (s *sources) revisions() map[string]string {
	all := map[string]string{}
	for _, b := range s.bundles {
		all[b.Name] = cmp.Or(all[b.Name], b.Revision)
	}
	return all
}
