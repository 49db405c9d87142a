package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gatekit/policies/library"
)

// completeValues lets the shell complete the values of flags and arguments.
func completeValues(c *cobra.Command) {
	fixed := func(values func() []string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values(), cobra.ShellCompDirectiveNoFileComp
		}
	}
	one := func(values func() []string) cobra.CompletionFunc {
		return func(_ *cobra.Command, args []string, _ string) ([]string,
			cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return values(), cobra.ShellCompDirectiveNoFileComp
		}
	}
	values := map[string]func() []string{
		"rule":   library.Names,
		"plugin": builtinNames,
		"action": func() []string { return recordActions },
		"kind": func() []string {
			return []string{"request", "response", "error", "notification", "event"}
		},
		"stage": func() []string { return append(configuredPlugins(), pinStage, policyStage) },
		"server": func() []string {
			c, err := loadConfig("")
			if err != nil {
				return nil
			}
			var names []string
			for _, s := range c.Servers {
				names = append(names, s.Name)
			}
			return names
		},
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		find := values[f.Name]
		if word, ok := f.Value.(*choice); ok {
			find = func() []string { return word.allowed }
		}
		if find != nil {
			// the only possible error is that the flag already has a completion function
			_ = c.RegisterFlagCompletionFunc(f.Name, fixed(find))
		}
	})
	switch c.CommandPath() {
	case "gatekit policy list":
		c.ValidArgsFunction = fixed(library.Names)
	case "gatekit plugin":
		c.ValidArgsFunction = func(_ *cobra.Command, args []string,
			_ string) ([]string, cobra.ShellCompDirective) {
			names := builtinNames()
			if len(args) == 0 {
				names = append(names, "list")
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}
	case "gatekit auth login", "gatekit auth logout":
		c.ValidArgsFunction = fixed(serversWithLogins)
	case "gatekit approve":
		c.ValidArgsFunction = fixed(waitingRequests)
	case "gatekit allow":
		c.ValidArgsFunction = one(recentIDs)
		for name, find := range map[string]func() []string{
			"for":    func() []string { return []string{"10m", "1h", "8h", "24h", "168h", "720h"} },
			"reason": func() []string { return nil },
		} {
			// the only possible error is that the command has no such flag
			_ = c.RegisterFlagCompletionFunc(name, fixed(find))
		}
	case "gatekit allow remove":
		c.ValidArgsFunction = one(allowanceIDs)
	}
	for _, sub := range c.Commands() {
		completeValues(sub)
	}
}

// configuredPlugins returns the names of the plugins in the configuration.
func configuredPlugins() (names []string) {
	c, err := loadConfig("")
	if err != nil {
		return nil
	}
	for _, p := range c.Plugins {
		names = append(names, p.Name)
	}
	return names
}

// waitingRequests returns the ids of the requests that wait for approval.
func waitingRequests() (ids []string) {
	a, err := approvals(nil)
	if err != nil {
		return nil
	}
	waiting, err := a.List()
	if err != nil {
		return nil
	}
	for _, r := range waiting {
		if !r.Approved {
			ids = append(ids, r.ID)
		}
	}
	return slices.Compact(ids)
}
