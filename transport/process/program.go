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

// Environment is what a server's process gets: a few words of ours, and what was given.
func Environment(given map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
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

// lookup finds the program that the child's own PATH means, not ours.
func lookup(path, dir string, env []string) (string, error) {
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("its working folder %s is no folder\nhint: correct its cwd", dir)
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
		if err := executable(abs); err != nil {
			return "", fmt.Errorf("cannot run %s: %w\nhint: correct its command; a relative "+
				"path is taken from its cwd", path, err)
		}
		return abs, nil
	}
	var where string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			where = v
		}
	}
	for _, folder := range filepath.SplitList(where) {
		if !filepath.IsAbs(folder) {
			continue // "" or "." in PATH would run whatever lies in the working folder
		}
		if file := filepath.Join(folder, path); executable(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("command %q is not in PATH\nhint: install it, or give its full path; "+
		"PATH is %s", path, where)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return errors.Unwrap(err)
	case info.IsDir():
		return errors.New("it is a folder")
	case info.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}
