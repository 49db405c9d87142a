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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/policies"
	"gatekit/policies/library"
)

// policyTimeout is how long the policies may take over one message.
const policyTimeout = time.Second

// policyStage is what all policies together are called in the record.
const policyStage = "policy"

// loadPolicies compiles a configuration's policies, with the bundles that came from services; nil
// when it has none. What they remember of sessions is memory's.
func loadPolicies(c *config.Config, polled []*policies.Bundle,
	memory *policies.SessionStore) (*policies.Stage, error) {
	if c.Policy == nil {
		return nil, nil
	}
	o := policyOptions(c)
	o.Bundles, o.Sessions = polled, memory
	stage, err := policies.Load(o)
	if err != nil {
		return nil, placed(c, err)
	}
	return stage, nil
}

// soundPolicies says what is wrong with the policies of a configuration. With bundles that come
// from a service, what only shows when all are compiled is found when those are here.
func soundPolicies(c *config.Config) (err error) {
	if c.Policy == nil {
		return nil
	}
	if len(c.Policy.Bundles) == 0 {
		_, err = policies.Load(policyOptions(c))
	} else {
		err = policies.Check(policyOptions(c))
	}
	if err != nil {
		return placed(c, err)
	}
	return nil
}

// policyOptions are the policies of a configuration that has some.
func policyOptions(c *config.Config) policies.Options {
	return policies.Options{
		Rules: c.Policy.Rules, Files: c.Policy.Files, Data: c.Policy.Data, Config: c.Policy.Config,
		Shadow: c.Policy.Mode == "shadow", Keys: policyKeys(c),
	}
}

// policyKeys are what bundles are verified with.
func policyKeys(c *config.Config) map[string]policies.Key {
	keys := map[string]policies.Key{}
	for _, k := range c.Policy.Keys {
		keys[k.Name] = policies.Key{Key: string(k.Key), Algorithm: k.Algorithm, Scope: k.Scope}
	}
	return keys
}

// describePolicies says which policies they are, for the audit log; "" when there are none.
func describePolicies(stage *policies.Stage) string {
	if stage == nil {
		return ""
	}
	said := "policies " + stage.Digest()
	for _, b := range stage.Bundles() {
		said += fmt.Sprintf(", bundle %q revision %q", b.Name, b.Revision)
	}
	return said
}

// configured are the policies of the configuration at path, with the bundles of its services.
func (p *program) configured(ctx context.Context,
	path string) (*config.Config, policies.Options, error) {
	c, err := load(path)
	if err != nil {
		return nil, policies.Options{}, err
	}
	if c.Policy == nil {
		return nil, policies.Options{},
			fmt.Errorf("%s has no [policy] table\nhint: gatekit help policy shows an example",
				shown(c.File))
	}
	o := policyOptions(c)
	if o.Bundles, err = bundlesOnce(ctx, c, p.log); err != nil {
		return nil, o, err
	}
	return c, o, nil
}

// shown is a path as it is shorter to read: from the working folder when it is in there.
func shown(file string) string {
	if dir, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(short) {
			return short
		}
	}
	return file
}

// shortened is a text in which what lies in the working folder is called as shown calls it.
func shortened(text string) string {
	dir, err := os.Getwd()
	if err != nil {
		return text
	}
	return strings.ReplaceAll(text, dir+string(filepath.Separator), "")
}

// placed is an error of the policies at its place: that of the policy's file, or of the rule's
// settings, where it has one, else that of [policy].
func placed(c *config.Config, err error) error {
	var errs config.Errors
	for _, line := range unjoined(err) {
		for _, one := range unjoined(line) {
			text := one.Error()
			switch setting, ok := errors.AsType[*policies.SettingsError](one); {
			case ok && c.Policy.ConfigPositions[setting.Rule] != (config.Position{}):
				errs = append(errs, &config.Error{Position: c.Policy.ConfigPositions[setting.Rule],
					Message: text})
			case strings.Contains(text, ".rego:"):
				errs = append(errs, &config.Error{Message: text})
			default:
				errs = append(errs, &config.Error{Position: c.Policy.Position, Message: "policy: " +
					"" + text})
			}
		}
	}
	return errs
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
  list          lists the rules of the library
  capabilities  prints the functions that policies may use, for opa build

A file can also be a bundle that opa build made. [policy.bundle.NAME] gets bundles from a server;
with [policy.key.NAME], every bundle must be signed. A running Gatekit applies a changed file. It
rejects a broken one, and the previous policies stay active.`,
	}
	c.AddCommand(p.policyTest(), p.policyExplain(), p.policyNew(), p.policyReplay(), policyList(),
		policyCapabilities())
	return c
}

func policyList() *cobra.Command {
	return &cobra.Command{
		Use:   "list [RULE]",
		Short: "List the rules of the library, or print one",
		Long: `List prints the rules of Gatekit's library. List RULE prints the source of one rule, which begins
with its description and its settings.`,
		Example: `  gatekit policy list
  gatekit policy list tools/readonly`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, name := range library.Names() {
					fmt.Fprintf(cmd.OutOrStdout(), "%-22s %s\n", name, library.Title(name))
				}
				return nil
			}
			b, err := fs.ReadFile(library.FS, path.Join(args[0], "rule.rego"))
			if err != nil {
				return fmt.Errorf("there is no rule %q in the library\nhint: gatekit policy list "+
					"shows the rules", args[0])
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
}

func policyCapabilities() *cobra.Command {
	return &cobra.Command{
		Use:   "capabilities",
		Short: "Print the functions that policies may use, for OPA's tools",
		Long: `Capabilities prints the functions that policies may use, in the format of OPA's tools: the functions
of OPA without those that access the network or the system, and those of Gatekit. With this file,
opa build rejects what Gatekit would reject, and knows gatekit.path.fault.`,
		Example: `  gatekit policy capabilities > capabilities.json
  opa build --capabilities capabilities.json --bundle policies --revision 42 \
    --signing-key private.pem --output acme.tar.gz`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(policies.Capabilities())
		},
	}
}
