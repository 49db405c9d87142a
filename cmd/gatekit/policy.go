package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/policies"
	"gatekit/policies/library"
)

// policyTimeout limits how long the policies take for one message.
const policyTimeout = time.Second

// policyStage is the name of the stage that evaluates all policies. Records have this name, too.
const policyStage = "policy"

// loadPolicies compiles the policies of a configuration, with the bundles from services. It returns
// nil if the configuration has no policies. With policy.tests, it also runs the tests of the
// policies, and a failed test is an error. The policies keep their state of sessions in the session
// store, and what replicas share in shared, which may be nil.
func loadPolicies(c *config.Config, bundles []*policies.Bundle, sessions *policies.SessionStore,
	shared *policies.SharedSessions) (*policies.Stage, error) {
	if c.Policy == nil {
		return nil, nil
	}
	o := policyOptions(c)
	o.Bundles, o.Sessions, o.Shared = bundles, sessions, shared
	stage, err := policies.Load(o)
	if err != nil {
		return nil, withPositions(c, err)
	}
	if c.Policy.Tests {
		ctx, cancel := context.WithTimeout(context.Background(), policyTestsTimeout)
		defer cancel()
		if err := policies.CheckTests(ctx, o); err != nil {
			return nil, withPositions(c, err)
		}
	}
	return stage, nil
}

// policyTestsTimeout limits the tests of the policies that run before a start or a reload.
const policyTestsTimeout = 2 * time.Minute

// checkPolicyFiles reports mistakes in the policies of a configuration. If bundles come from
// services, the policies cannot be compiled yet. Then mistakes that only compilation finds are
// reported later, when the bundles are available.
func checkPolicyFiles(c *config.Config) (err error) {
	if c.Policy == nil {
		return nil
	}
	if len(c.Policy.Bundles) == 0 {
		_, err = policies.Load(policyOptions(c))
	} else {
		err = policies.Check(policyOptions(c))
	}
	if err != nil {
		return withPositions(c, err)
	}
	return nil
}

// policyOptions returns the options for a configuration that has policies.
func policyOptions(c *config.Config) policies.Options {
	return policies.Options{
		Rules: c.Policy.Rules, Files: c.Policy.Files, Data: c.Policy.Data, Config: c.Policy.Config,
		Shadow: c.Policy.Mode == "shadow", Keys: policyKeys(c),
		LabelsByPrincipal: c.Policy.Labels == "principal",
	}
}

// policyKeys returns the keys that verify bundles.
func policyKeys(c *config.Config) map[string]policies.Key {
	keys := map[string]policies.Key{}
	for _, k := range c.Policy.Keys {
		keys[k.Name] = policies.Key{Key: string(k.Key), Algorithm: k.Algorithm, Scope: k.Scope}
	}
	return keys
}

// describePolicies describes the active policies for the audit log. If no policies are active, it
// returns an empty string.
func describePolicies(stage *policies.Stage) string {
	if stage == nil {
		return ""
	}
	text := "policies " + stage.Digest()
	for _, b := range stage.Bundles() {
		text += fmt.Sprintf(", bundle %q revision %q", b.Name, b.Revision)
	}
	return text
}

// loadPolicyOptions returns the configuration at path and the options of its policies. The options
// include the bundles that the services provide.
func (p *program) loadPolicyOptions(ctx context.Context,
	path string) (*config.Config, policies.Options, error) {
	c, err := loadConfig(path)
	if err != nil {
		return nil, policies.Options{}, err
	}
	if c.Policy == nil {
		return nil, policies.Options{},
			fmt.Errorf("%s has no [policy] table\nhint: gatekit help policy shows an example",
				displayPath(c.File))
	}
	o := policyOptions(c)
	if o.Bundles, err = bundlesOnce(ctx, c, p.log); err != nil {
		return nil, o, err
	}
	return c, o, nil
}

// displayPath returns the path of a file. If the file is inside the working folder, the path is
// relative to this folder.
func displayPath(file string) string {
	if dir, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(short) {
			return short
		}
	}
	return file
}

// displayText shortens the paths in a text: it makes the paths of files inside the working folder
// relative to this folder.
func displayText(text string) string {
	dir, err := os.Getwd()
	if err != nil {
		return text
	}
	return strings.ReplaceAll(text, dir+string(filepath.Separator), "")
}

// withPositions returns the errors of policies and adds a position to each. The position is in the
// policy file, at the name or the settings of the rule, or else at [policy].
func withPositions(c *config.Config, err error) error {
	var errs config.Errors
	for _, joined := range unjoined(err) {
		for _, e := range unjoined(joined) {
			text := e.Error()
			unknown, isUnknown := errors.AsType[*policies.UnknownRuleError](e)
			switch setting, ok := errors.AsType[*policies.SettingsError](e); {
			case isUnknown:
				errs = append(errs, unknownRule(c.Policy, unknown.Rule))
			case ok && c.Policy.ConfigPositions[setting.Rule] != (config.Position{}):
				errs = append(errs, &config.Error{Position: c.Policy.ConfigPositions[setting.Rule],
					Message: text})
			case strings.Contains(text, ".rego:"):
				errs = append(errs, &config.Error{Message: text})
			default:
				errs = append(errs, &config.Error{Position: c.Policy.Position, Message: "policy: " +
					text})
			}
		}
	}
	return errs
}

// unknownRule returns the error about a rule that is not in the library.
func unknownRule(p *config.Policy, rule string) *config.Error {
	at := p.Position
	if i := slices.Index(p.Rules, rule); i >= 0 && i < len(p.RulePositions) {
		at = p.RulePositions[i]
	}
	return &config.Error{Position: at, Message: fmt.Sprintf("the library has no rule %q%s", rule,
		suggestion(rule, library.Names(), "gatekit policy list"))}
}

func (p *program) policy() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Test, explain and write policies, and list the rules of the library",
		Long: `Policies decide which messages may pass. They are written in Rego:
https://www.openpolicyagent.org/docs/policy-language. A configuration names rules of Gatekit's
library and your own files:

  [policy]
  rules = ["tools/readonly"]
  files = ["policies"]

The subcommands:
  new           writes a policy to start from, with tests
  test          runs the tests
  explain       shows why a message is allowed or denied
  replay        shows what the policies would do with recorded messages
  learn         writes a policy from the audit log
  status        lists the learned rules, and what they would have refused
  ratify        enforces a learned rule
  reject        removes a learned rule
  widen         makes a learned rule allow what a record has
  diff          shows which recorded messages a change would decide differently
  list          lists the rules of the library
  capabilities  prints the functions that policies may use, for opa build

A file can also be a bundle that opa build made. [policy.bundle.NAME] gets bundles from a server.
With [policy.key.NAME], every bundle must be signed. A running Gatekit applies a changed file. It
rejects a file with mistakes, and the previous policies stay active.`,
	}
	c.AddCommand(p.policyTest(), p.policyExplain(), p.policyNew(), p.policyReplay(),
		p.policyDiff(), p.policyLearn(), p.policyStatus(), p.policyRatify(), p.policyReject(),
		p.policyWiden(), policyList(), policyCapabilities())
	return group(c)
}

func policyList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list [RULE]",
		Short: "List the rules of the library, or print one of them",
		Long: `List prints the rules of Gatekit's library. List RULE prints the source of one rule,
which begins with its description and its settings.`,
		Example: `  gatekit policy list
  gatekit policy list tools/readonly
  gatekit policy list --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, name := range library.Names() {
					if asJSON {
						if err := printJSON(cmd.OutOrStdout(), listedRule{Rule: name,
							Title: library.Title(name)}); err != nil {
							return err
						}
						continue
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%-22s %s\n", name, library.Title(name))
				}
				return nil
			}
			b, err := fs.ReadFile(library.FS, path.Join(args[0], "rule.rego"))
			if err != nil {
				return unknownRule(&config.Policy{}, args[0])
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), listedRule{args[0], library.Title(args[0]),
					string(b)})
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each rule")
	return c
}

// listedRule is a rule of the library as gatekit policy list --json prints it.
type listedRule struct {
	Rule   string `json:"rule"`
	Title  string `json:"title"`
	Source string `json:"source,omitempty"` // only in the output of gatekit policy list --json RULE
}

func policyCapabilities() *cobra.Command {
	return &cobra.Command{
		Use:   "capabilities",
		Short: "Print the functions that policies may use, for OPA's tools",
		Long: `Capabilities prints the functions that policies may use, in the format of OPA's
tools. These are the functions of OPA, except those that access the network or the system, and the
functions of Gatekit. Save the output in a file for opa build --capabilities: opa build then accepts
the same functions as Gatekit.`,
		Example: `  gatekit policy capabilities > capabilities.json
  opa build --capabilities capabilities.json --bundle policies --revision 42 \
    --signing-key private.pem --output acme.tar.gz`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(policies.Capabilities())
		},
	}
}
