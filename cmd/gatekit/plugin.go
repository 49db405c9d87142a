package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/plugins/builtin"
	"gatekit/plugins/sdk"
)

// listedPlugin is a built-in plugin as gatekit plugin list --json prints it.
type listedPlugin struct {
	Plugin string          `json:"plugin"`
	Doc    string          `json:"doc"`
	Schema json.RawMessage `json:"schema,omitempty"` // only for plugins that the arguments name
}

func (p *program) plugin() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "plugin list | NAME…",
		Short: "List the built-in plugins, or run them as a plugin process",
		Long: `Plugin list prints the built-in plugins. Plugin list NAME prints the options of this
plugin, as a JSON Schema. A configuration uses a plugin by its name:

  [[plugin]]
  name = "secrets"
  use = "secrets"
  config = { action = "redact" }

Gatekit itself runs "gatekit plugin NAME…" to start a plugin process. In a terminal, this command
prints a message and exits.`,
		Example: `  gatekit plugin list
  gatekit plugin list secrets`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("plugin needs an argument: list, or the name of a built-in "+
					"plugin: %s", strings.Join(builtinNames(), ", "))
			}
			for i, name := range args {
				if i == 0 && name == "list" {
					continue
				}
				if !slices.Contains(builtinNames(), name) {
					return fmt.Errorf("there is no built-in plugin %q%s", name,
						suggestion(name, builtinNames(), "gatekit plugin list"))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "list" {
				sdk.Serve(slices.DeleteFunc(builtin.All(), func(p sdk.Plugin) bool {
					return !slices.Contains(args, p.Name)
				})...)
				return nil
			}
			for _, p := range builtin.All() {
				isNamed := slices.Contains(args[1:], p.Name)
				switch listed := (listedPlugin{Plugin: p.Name, Doc: p.Doc}); {
				case asJSON && (isNamed || len(args) == 1):
					if isNamed {
						listed.Schema = p.Schema
					}
					if err := printJSON(cmd.OutOrStdout(), listed); err != nil {
						return err
					}
				case len(args) == 1:
					fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", p.Name, p.Doc)
				case isNamed && !asJSON:
					fmt.Fprintf(cmd.OutOrStdout(), "%s\n", p.Schema)
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "with list: print one JSON object for each plugin")
	return c
}

func builtinNames() (names []string) {
	for _, p := range builtin.All() {
		names = append(names, p.Name)
	}
	return names
}
