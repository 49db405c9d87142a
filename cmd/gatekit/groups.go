package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
)

// nearest returns the known word that is most similar to word. It returns "" if none is similar.
func nearest(word string, known []string) string {
	best, distance := "", max(2, len(word)/2)+1
	for _, k := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	return best
}

// group makes c a command that only has subcommands. Without a subcommand, c prints its help. An
// unknown subcommand is a usage error.
func group(c *cobra.Command) *cobra.Command {
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	c.DisableFlagsInUseLine = true
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return c
}

// unknownCommand returns the error about a subcommand of c that does not exist.
func unknownCommand(c *cobra.Command, word string) error {
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	hint := "the commands are " + strings.Join(known, ", ")
	if meant := commandsFor(c, word); len(meant) > 0 {
		hint = "did you mean " + strings.Join(meant, " or ") + "?"
	} else if near := nearest(word, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", c.CommandPath()+" "+near)
	}
	return fmt.Errorf("unknown command %q for %q\nhint: %s", word, c.CommandPath(), hint)
}

// commandsFor returns the commands below c, in quotes, that have the word as their name or as
// another word for it.
func commandsFor(c *cobra.Command, word string) (paths []string) {
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if sub.Name() == word || slices.Contains(sub.SuggestFor, word) {
			paths = append(paths, strconv.Quote(sub.CommandPath()))
		}
		paths = append(paths, commandsFor(sub, word)...)
	}
	return paths
}

// helpCommand prints the help of a command. An unknown command is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print help about a command",
		Args: func(cmd *cobra.Command, args []string) error {
			c, rest, err := cmd.Root().Find(args)
			if c == nil || err != nil {
				return unknownCommand(cmd.Root(), args[0])
			}
			if len(rest) > 0 && c.HasSubCommands() {
				return unknownCommand(c, rest[0])
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string,
			_ string) ([]string, cobra.ShellCompDirective) {
			c, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			c.InitDefaultHelpFlag()
			c.InitDefaultVersionFlag()
			return c.Help()
		},
	}
}
