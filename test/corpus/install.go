package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// installTime limits the installation of one package.
const installTime = 5 * time.Minute

// install installs the package of e below modules, unless it is installed. It returns the folder of
// the package. npm runs no scripts of the packages.
func install(ctx context.Context, modules string, e entry) (string, error) {
	dir := filepath.Join(modules, e.folder())
	pkg := filepath.Join(dir, "node_modules", filepath.FromSlash(e.pkg))
	if _, err := os.Stat(dir); err == nil {
		return pkg, nil
	}
	if err := os.MkdirAll(modules, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(modules, "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--prefix", tmp, "--ignore-scripts",
		"--no-audit", "--no-fund", "--no-package-lock", "--legacy-peer-deps", "--prefer-offline",
		e.name())
	npm.Dir = tmp
	npm.WaitDelay = time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install %s: %v: %s", e.name(), err, clip(string(out), 300))
	}
	err = os.Rename(tmp, dir) // so that dir never holds half an installation
	if _, statErr := os.Stat(dir); statErr == nil {
		return pkg, nil // maybe another job was faster
	}
	return pkg, err
}

// mainFile returns the file of an installed package that node runs.
func mainFile(pkg string, e entry, m manifest) (string, error) {
	name := e.main
	if name == "" {
		name = firstCommand(m)
	}
	if name == "" {
		return "", errors.New("the package has no command")
	}
	return filepath.Join(pkg, filepath.FromSlash(name)), nil
}

// firstCommand returns the file of the command that npx would run, or of a command for stdio.
func firstCommand(m manifest) string {
	var one string
	if json.Unmarshal(m.Bin, &one) == nil {
		return one
	}
	var many map[string]string
	if json.Unmarshal(m.Bin, &many) != nil || len(many) == 0 {
		return ""
	}
	short := m.Name[strings.LastIndex(m.Name, "/")+1:]
	if file, ok := many[short]; ok {
		return file
	}
	names := make([]string, 0, len(many))
	for name := range many {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, word := range []string{"stdio", "mcp", "server"} {
		for _, name := range names {
			if strings.Contains(name, word) {
				return many[name]
			}
		}
	}
	return many[names[0]]
}

// clip returns at most n bytes of the end of s, on one line.
func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > n {
		s = "…" + strings.ToValidUTF8(s[len(s)-n:], "")
	}
	return s
}
