package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/config"
)

// configFlag adds --config to a command.
func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", "",
		"configuration `file` (default: see gatekit help)")
}

// loadConfig reads the configuration at path. If path is empty, it reads the first default path
// that exists.
func loadConfig(path string) (*config.Config, error) {
	if path == "" {
		var err error
		if path, err = findConfig(); err != nil {
			return nil, err
		}
	}
	c, err := config.Load(path, checkRunnable)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w\nhint: name another file with --config; gatekit.toml.example "+
			"shows every key", err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func findConfig() (string, error) {
	places := []string{"gatekit.toml"}
	if dir, err := os.UserConfigDir(); err == nil {
		places = append(places, filepath.Join(dir, "gatekit", "gatekit.toml"))
	}
	for _, p := range places {
		if _, err := os.Stat(p); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: there is no %s\nhint: name one with --config, or run a single "+
		"server without a configuration: gatekit wrap COMMAND", errNoConfig,
		strings.Join(places, " and no "))
}

// errNoConfig is the error when there is no configuration at a default path.
var errNoConfig = errors.New("no configuration found")

// checkRunnable is a check for config.Load and config.Watch. It reports built-in plugins that do
// not exist, and mistakes in the policies, with their positions. Gatekit must not run without a
// plugin or a policy that the configuration names.
func checkRunnable(c *config.Config) (errs config.Errors) {
	errs = checkBuiltins(c)
	if err := checkPolicyFiles(c); err != nil {
		if es, ok := errors.AsType[config.Errors](err); ok {
			return append(errs, es...)
		}
		return append(errs, &config.Error{Position: c.Policy.Position, Message: err.Error()})
	}
	return errs
}
