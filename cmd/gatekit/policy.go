package main

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/pipeline"
	"gatekit/policies"
	"gatekit/policies/library"
)

// policyTimeout is how long the policies may take over one message.
const policyTimeout = time.Second

// loadPolicies compiles a configuration's policies; none is no stage. What they remember of sessions is memory's.
func loadPolicies(c *config.Config, memory *policies.Memory) ([]pipeline.Named, error) {
	if c.Policy == nil {
		return nil, nil
	}
	stage, err := policies.Load(policies.Options{
		Rules:  c.Policy.Rules,
		Files:  c.Policy.Files,
		Data:   c.Policy.Data,
		Config: c.Policy.Config,
		Shadow: c.Policy.Mode == "shadow",
		Memory: memory,
	})
	if err != nil {
		return nil, placed(c, err)
	}
	return []pipeline.Named{{Name: "policy", Stage: stage, Timeout: policyTimeout}}, nil
}

// placed is an error of the policies at its place: that of the policy's file where it has one, else that of [policy].
func placed(c *config.Config, err error) error {
	var errs config.Errors
	for _, line := range unjoined(err) {
		for _, one := range unjoined(line) {
			if text := one.Error(); strings.Contains(text, ".rego:") {
				errs = append(errs, &config.Error{Message: text})
			} else {
				errs = append(errs, &config.Error{At: c.Policy.At, Message: "policy: " + text})
			}
		}
	}
	return errs
}

func (p *program) policy() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "List the rules that come with Gatekit",
		Long: `Policies say in Rego what may happen: https://www.openpolicyagent.org/docs/policy-language. A configuration uses rules of Gatekit's library by name, and
files of one's own:

  [policy]
  rules = ["tools/readonly"]
  files = ["policies"]`,
	}
	c.AddCommand(&cobra.Command{
		Use:     "list [RULE]",
		Short:   "List the rules of the library, or show one",
		Long:    "List prints the rules that come with Gatekit; list RULE prints one, with what it says of itself and its settings.",
		Example: "  gatekit policy list\n  gatekit policy list tools/readonly",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, name := range library.Names() {
					fmt.Fprintf(cmd.OutOrStdout(), "%-22s %s\n", name, library.Title(name))
				}
				return nil
			}
			b, err := fs.ReadFile(library.FS, path.Join(args[0], "rule.rego"))
			if err != nil {
				return fmt.Errorf("there is no rule %q in the library\nhint: gatekit policy list shows those that there are", args[0])
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	})
	return c
}
