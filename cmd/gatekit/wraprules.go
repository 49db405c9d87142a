package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gatekit/core/config"
	"gatekit/policies/library"
)

// addRules adds the default rules to the configuration, and the rules, policies and plugins
// that the flags name.
func (o *wrapOptions) addRules(c *config.Config, command []string) error {
	p := &config.Policy{Mode: "enforce", Labels: "session", Config: map[string]map[string]any{}}
	if o.shadow {
		p.Mode = "shadow"
	}
	if !o.noDefaultRules {
		p.Config = library.DefaultRules()
	}
	for _, rule := range o.rules {
		if does := library.WithoutSettings(rule); does != "" {
			return fmt.Errorf("--rule %s: without settings this rule %s, and wrap takes no "+
				"settings\nhint: write a configuration with [policy.config.%[1]q] for gatekit "+
				"run; gatekit policy list %[1]s shows the settings", rule, does)
		}
		p.Config[rule] = nil
	}
	home := string(c.Servers[0].Env["HOME"]) // HOME of the server
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	if !filepath.IsAbs(home) {
		home = ""
	}
	folders, err := o.folders(command, home)
	if err != nil {
		return err
	}
	const traversal = "roots/traversal"
	_, isActive := p.Config[traversal]
	switch named := slices.Contains(o.rules, traversal); {
	case named && len(o.roots) > 0:
		p.Config[traversal] = map[string]any{"roots": library.FolderSettings(folders,
			home)["roots"]}
	case !named && len(folders) > 0 && (isActive || len(o.roots) > 0):
		p.Config[traversal] = library.FolderSettings(folders, home)
	}
	p.Rules = slices.Sorted(maps.Keys(p.Config))
	for _, file := range o.policies {
		if file, err = filepath.Abs(file); err != nil {
			return err
		}
		p.Files = append(p.Files, file)
	}
	if len(p.Rules)+len(p.Files) > 0 {
		c.Policy = p
	}
	for _, name := range o.plugins {
		c.Plugins = append(c.Plugins, config.BuiltIn(name, nil))
	}
	if errs := checkBuiltins(c); len(errs) > 0 {
		return errs
	}
	return nil // the policies are compiled when the gateway starts
}

// folders returns the folders in which paths must stay, as absolute paths. These are the folders of
// --root or, without --root, the folders in the command of server-filesystem.
func (o *wrapOptions) folders(command []string, home string) (folders []string, err error) {
	for _, root := range o.roots {
		if root, err = filepath.Abs(root); err != nil {
			return nil, err
		}
		if i, err := os.Stat(root); err != nil || !i.IsDir() {
			return nil, fmt.Errorf("--root %s is not a folder\nhint: relative paths start at the "+
				"folder in which Gatekit runs", root)
		}
		folders = append(folders, root)
	}
	if len(folders) > 0 {
		return folders, nil
	}
	return filesystemFolders(command, o.cwd, home), nil
}

// filesystemServer matches a word of a command that runs @modelcontextprotocol/server-filesystem:
// the package, with or without a version, its program, or its main file.
var filesystemServer = regexp.MustCompile(
	`(^|[/@])(mcp-)?server-filesystem(@[^/]*)?(/dist/index\.js)?$`)

// filesystemFolders returns the folders that a command gives to server-filesystem. It returns none
// if the command runs another program. It also returns none if one of the folders does not exist on
// this machine, as in a container: the rule must not deny paths that the server allows.
func filesystemFolders(command []string, cwd, home string) (folders []string) {
	index := slices.IndexFunc(command, filesystemServer.MatchString)
	if index < 0 {
		return nil
	}
	for _, word := range command[index+1:] {
		if word == "~" || strings.HasPrefix(word, "~/") { // server-filesystem expands ~, too
			if home == "" {
				return nil
			}
			word = home + word[1:]
		}
		if !filepath.IsAbs(word) {
			word = filepath.Join(cwd, word)
		}
		abs, err := filepath.Abs(word)
		if err != nil {
			return nil
		}
		if i, err := os.Stat(abs); err != nil || !i.IsDir() {
			return nil
		}
		folders = append(folders, abs)
	}
	return folders
}
