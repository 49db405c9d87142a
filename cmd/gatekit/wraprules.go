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

// judges puts the default rules, and what the flags name, into the configuration.
func (o *wrapping) judges(c *config.Config, command []string) error {
	p := &config.Policy{Mode: "enforce", Config: map[string]map[string]any{}}
	if o.shadow {
		p.Mode = "shadow"
	}
	if !o.noDefaultRules {
		p.Config = library.DefaultRules()
	}
	for _, rule := range o.rules {
		p.Config[rule] = nil
	}
	home := string(c.Servers[0].Env["HOME"]) // the server's
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
	_, inForce := p.Config[traversal]
	switch named := slices.Contains(o.rules, traversal); {
	case named && len(o.roots) > 0:
		p.Config[traversal] = map[string]any{"roots": library.FolderSettings(folders,
			home)["roots"]}
	case !named && len(folders) > 0 && (inForce || len(o.roots) > 0):
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
	if errs := knownPlugins(c); len(errs) > 0 {
		return errs
	}
	return nil // the policies are compiled when they are put to work
}

// folders are those that paths have to stay in, as absolute paths: what --root names, or else what
// the command of a server that is known names.
func (o *wrapping) folders(command []string, home string) (folders []string, err error) {
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

// filesystemServer is a word of a command that runs @modelcontextprotocol/server-filesystem: the
// package, with or without a version, its program, or its main file.
var filesystemServer = regexp.MustCompile(
	`(^|[/@])(mcp-)?server-filesystem(@[^/]*)?(/dist/index\.js)?$`)

// filesystemFolders are the folders that a command gives to server-filesystem. It is none when that
// is not what the command runs, or when any of them cannot be found from here (as in a container):
// it would be worse to refuse what the server allows.
func filesystemFolders(command []string, cwd, home string) (folders []string) {
	at := slices.IndexFunc(command, filesystemServer.MatchString)
	if at < 0 {
		return nil
	}
	for _, word := range command[at+1:] {
		if word == "~" || strings.HasPrefix(word, "~/") { // the server does so, too
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
