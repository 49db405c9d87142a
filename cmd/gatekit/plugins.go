package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"

	"gatekit/core/config"
	"gatekit/core/pipeline"
	"gatekit/plugins"
)

// newHost is the host of a configuration's plugins; it runs none yet.
func newHost(limits config.Limits, log *slog.Logger, event func(plugin, action, reason string,
	err error)) (*plugins.Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find out which program this is: %w", err)
	}
	path := self
	if runtime.GOOS == "linux" {
		path = "/proc/self/exe" // this very program, whatever lies at its path by now
	}
	return plugins.New(plugins.Options{
		BuiltinCommand: append([]string{path, self, "plugin"}, builtinNames()...),
		MaxMessage:     limits.MessageBytes,
		MaxMemory:      int64(limits.PluginMemory),
		Log:            log,
		Event:          event,
	}), nil
}

// specs are the plugins of a configuration, as the host wants them.
func specs(c *config.Config) (all []plugins.Spec, errs config.Errors) {
	for _, p := range c.Plugins {
		settings := p.Config
		if settings == nil {
			settings = map[string]any{}
		}
		b, err := json.Marshal(settings)
		if err != nil {
			errs = append(errs, &config.Error{Position: p.Position,
				Message: fmt.Sprintf("plugin %q: config: %v", p.Name, err)})
		}
		sum, _ := hex.DecodeString(p.SHA256) // its shape was checked
		s := plugins.Spec{
			Name: p.Name, Use: p.Use, Command: p.Command, Env: revealed(p.Env), NoTLS: !p.MTLS,
			Servers: p.Servers, SkipOnError: p.OnError == "skip", Timeout: p.Timeout, Config: b,
			Grants: plugins.Grants{
				Body: slices.Contains(p.See, "body"), Request: slices.Contains(p.See, "request"),
				Principal: slices.Contains(p.See, "principal"),
				Modify:    slices.Contains(p.May, "modify"), Answer: slices.Contains(p.May,
					"answer"), Hide: slices.Contains(p.May, "hide"), Rename: slices.Contains(p.May,
					"rename"), Label: slices.Contains(p.May, "label"),
			},
		}
		if len(sum) > 0 {
			s.SHA256 = sum
		}
		all = append(all, s)
	}
	return all, errs
}

// loadPlugins starts what a configuration's plugins need. The error has what is wrong with each at
// its place in the file.
func loadPlugins(ctx context.Context, host *plugins.Host,
	c *config.Config) (*plugins.Set, []pipeline.StageConfig, error) {
	all, errs := specs(c)
	if errs != nil {
		return nil, nil, errs
	}
	set, err := host.Load(ctx, all)
	if err != nil {
		for _, e := range unjoined(err) {
			f, ok := errors.AsType[*plugins.LoadError](e)
			if !ok {
				return nil, nil, err
			}
			errs = append(errs, &config.Error{Position: c.Plugins[f.Index].Position, Message: f.Error()})
		}
		return nil, nil, errs
	}
	for _, p := range c.Plugins {
		if p.OnError == "skip" {
			host.Warn("its failures are skipped: on_error is skip", p.Name)
		}
	}
	return set, set.Stages(all), nil
}

// unjoined are the errors that were joined.
func unjoined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

// knownPlugins says which built-ins are asked for and are not there, at their places.
func knownPlugins(c *config.Config) (errs config.Errors) {
	for _, p := range c.Plugins {
		if p.Use != "" && !slices.Contains(builtinNames(), p.Use) {
			errs = append(errs, &config.Error{Position: p.Position,
				Message: fmt.Sprintf("plugin %q: there is no built-in %q; gatekit plugin list "+
					"shows those that there are", p.Name, p.Use)})
		}
	}
	return errs
}

// tried is what became of a plugin's canary.
func tried(ctx context.Context, set *plugins.Set, i int, stage pipeline.StageConfig,
	p config.Plugin) (what string, err error) {
	c, err := set.SelfTest(i)
	switch {
	case err != nil:
		return "", fmt.Errorf("the message that it wants to be tried with: %w", err)
	case c == nil:
		return "started; it names no message to be tried with", nil
	}
	m := c.Message
	if p.Servers[0] != "*" {
		m.Server = p.Servers[0]
	}
	seen := &witness{}
	pipeline.New(seen, pipeline.Options{}, stage).Pass(ctx, m)
	words := map[pipeline.Action]string{pipeline.Deny: "deny", pipeline.Allow: "pass",
		pipeline.Modify: "modify", pipeline.Answer: "answer"}
	said := c.Description + ": " + seen.action
	if len(seen.found) > 0 {
		said += " (" + strings.Join(seen.found, ", ") + ")"
	}
	if seen.err != nil {
		return "", seen.err
	}
	if seen.action != words[c.Action] && !(c.Action == pipeline.Modify && seen.action == "hide") {
		return "", fmt.Errorf("%s, and it says itself that it should be: %s", said, words[c.Action])
	}
	return said, nil
}

// witness is the recorder of a trial.
type witness struct {
	action string
	found  []string // types of findings
	err    error
}

func (w *witness) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	w.action, w.err = o.Action, o.Err
	for _, s := range o.Steps {
		for _, f := range s.Findings {
			if !slices.Contains(w.found, f.Type) {
				w.found = append(w.found, f.Type)
			}
		}
	}
	return 1, nil
}
