package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Environment returns the environment of a server: the given variables, and some variables of
// Gatekit's own environment, unless given has a variable of that name. These are LANG, TMPDIR and
// the variables that the MCP SDKs let a server inherit from its client.
func Environment(given map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG",
		"TERM", "TMPDIR"} {
		if _, ok := given[name]; ok {
			continue
		}
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range given {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// FindProgram returns the absolute path of a program, as Start finds it. It searches the PATH in
// env, not the PATH of Gatekit.
func FindProgram(path, dir string, env []string) (string, error) {
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("working folder %s is not a folder\nhint: correct cwd", dir)
		}
	}
	if path == "" {
		return "", errors.New("no command is given")
	}
	if strings.Contains(path, "/") {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		if err := checkExecutable(abs); err != nil {
			return "", fmt.Errorf("cannot run %s: %w\nhint: correct command; a relative "+
				"path starts at cwd", path, err)
		}
		return abs, nil
	}
	var searchPath string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			searchPath = v
		}
	}
	for _, folder := range filepath.SplitList(searchPath) {
		if !filepath.IsAbs(folder) {
			continue // a relative folder such as "." would run programs in the working folder
		}
		if file := filepath.Join(folder, path); checkExecutable(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("command %q is not in PATH\nhint: install it, or give its full path; "+
		"PATH is %s", path, searchPath)
}

// checkExecutable returns the reason why a file cannot be run, or nil.
func checkExecutable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return errors.Unwrap(err)
	case info.IsDir():
		return errors.New("is a folder")
	case info.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}
