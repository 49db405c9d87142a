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
	"gatekit/plugins/builtin"
	"gatekit/plugins/sdk"
	"gatekit/transport/sandbox"
)

// newHost returns the host for the plugins of a configuration. Built-in plugins count in state,
// unless it is nil. newHost starts no plugin.
func newHost(limits config.Limits, state *plugins.SharedState, log *slog.Logger,
	event func(plugin, action, reason string, err error)) (*plugins.Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the path of this program: %w", err)
	}
	path := self
	if runtime.GOOS == "linux" {
		path = "/proc/self/exe" // this program, even if the file at its path has been replaced
	}
	return plugins.New(plugins.Options{
		BuiltinCommand: []string{path, self, "plugin"},
		BuiltinPlugins: builtinNames(),
		MaxMessage:     limits.MessageBytes,
		MaxMemory:      int64(limits.PluginMemory),
		Log:            log,
		Overflow:       stderrFolder(),
		Shared:         state,
		Event:          event,
	}), nil
}

// pluginSpecs returns the plugins of a configuration as specs for the host.
func pluginSpecs(c *config.Config) (all []plugins.Spec, errs config.Errors) {
	hidden, fixed := protectedFiles(c)
	if c.File != "" {
		hidden = append(hidden, c.File) // may have secrets, and often lies beside a plugin
	}
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
		sum, _ := hex.DecodeString(p.SHA256) // config.Load checked it
		s := plugins.Spec{
			Name: p.Name, Use: p.Use, Shared: p.Process == "shared", Command: p.Command,
			Env: revealed(p.Env), NoTLS: !p.MTLS, Sandbox: pluginSandbox(p, hidden, fixed),
			Servers: p.Servers, SkipOnError: p.OnError == "skip", Timeout: p.Timeout, Config: b,
			Grants: plugins.Grants{
				Body:      slices.Contains(p.See, "body"),
				Request:   slices.Contains(p.See, "request"),
				Principal: slices.Contains(p.See, "principal"),
				Modify:    slices.Contains(p.May, "modify"),
				Answer:    slices.Contains(p.May, "answer"),
				Hide:      slices.Contains(p.May, "hide"),
				Rename:    slices.Contains(p.May, "rename"),
				Label:     slices.Contains(p.May, "label"),
				Restore:   slices.Contains(p.May, "restore"),
			},
		}
		if c.Listen.HTTP != "" && !c.Listen.Auth.Required() {
			s.NoRestore = "HTTP clients are not authenticated, so all of them are one " +
				"principal\nhint: remove restore from the plugin's config, or listen.http"
		}
		if len(sum) > 0 {
			s.SHA256 = sum
		}
		all = append(all, s)
	}
	return all, errs
}

// pluginSandbox returns what the process of a plugin may do. It never includes Gatekit's own files.
func pluginSandbox(p config.Plugin, hidden, fixed []string) plugins.Sandbox {
	s := plugins.Sandbox{Hidden: hidden, Fixed: fixed,
		Network: p.Use != "" && builtin.NeedsNetwork(p.Use, p.Config)}
	if b := p.Sandbox; b != nil {
		s.Level, s.Network = sandbox.Level(b.Level), b.Network == "all"
		s.Read, s.Write, s.Run = b.Read, b.Write, b.Run
	}
	return s
}

// loadPlugins starts the plugins of a configuration. The error lists the plugins that cannot be
// used, with their positions in the file.
func loadPlugins(ctx context.Context, host *plugins.Host,
	c *config.Config) (*plugins.Set, []pipeline.StageConfig, error) {
	all, errs := pluginSpecs(c)
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
			errs = append(errs, &config.Error{Position: c.Plugins[f.Index].Position,
				Message: f.Error()})
		}
		return nil, nil, errs
	}
	for _, p := range c.Plugins {
		if p.OnError == "skip" {
			host.Warn("messages pass when this plugin fails: on_error is skip", p.Name)
		}
	}
	return set, set.Stages(all), nil
}

// unjoined returns the errors that errors.Join joined, or only err if it is not a joined error.
func unjoined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

// checkBuiltins reports the mistakes in the uses of built-in plugins, with their positions: names
// that no built-in plugin has, and settings that the plugin rejects.
func checkBuiltins(c *config.Config) (errs config.Errors) {
	specs, errs := pluginSpecs(c)
	for i, p := range c.Plugins {
		if p.Use == "" {
			continue
		}
		b := slices.IndexFunc(builtin.All(), func(b sdk.Plugin) bool { return b.Name == p.Use })
		if b < 0 {
			errs = append(errs, &config.Error{Position: positionOf(p, "use"),
				Message: fmt.Sprintf("plugin %q: there is no built-in plugin %q%s", p.Name, p.Use,
					suggestion(p.Use, builtinNames(), "gatekit plugin list"))})
			continue
		}
		if err := builtin.All()[b].Check(specs[i].Config); err != nil {
			for _, e := range unjoined(err) {
				errs = append(errs, &config.Error{Position: positionOf(p, "config"),
					Message: fmt.Sprintf("plugin %q (built-in %s): config: %v", p.Name, p.Use, e)})
			}
		}
	}
	return errs
}

// positionOf returns the position of a key of a plugin. If the configuration does not have the key,
// it returns the position of the plugin.
func positionOf(p config.Plugin, key string) config.Position {
	if at, ok := p.KeyPositions[key]; ok {
		return at
	}
	return p.Position
}

// suggestion returns the end of an error message about an unknown name. The text suggests the most
// similar known name. If no known name is similar, the text names a command that prints the known
// names. The parameter list is this command.
func suggestion(name string, known []string, list string) string {
	if best := config.Closest(name, known); best != "" {
		return fmt.Sprintf(", did you mean %q?", best)
	}
	return fmt.Sprintf("; `%s` shows them", list)
}

// selfTest runs the self-test of a plugin and returns a description of its result. It returns an
// error if the self-test fails.
func selfTest(ctx context.Context, set *plugins.Set, i int, stage pipeline.StageConfig,
	p config.Plugin) (string, error) {
	test, err := set.SelfTest(i)
	switch {
	case err != nil:
		return "", fmt.Errorf("self-test message: %w", err)
	case test == nil:
		return "started; no self-test", nil
	}
	m := test.Message
	if p.Servers[0] != "*" {
		m.Server = p.Servers[0]
	}
	got := &outcomeRecorder{}
	pipeline.New(got, pipeline.Options{}, stage).Pass(ctx, m)
	if got.err != nil {
		return "", got.err
	}
	want := map[pipeline.Action]string{pipeline.Deny: "deny", pipeline.Allow: "pass",
		pipeline.Modify: "modify", pipeline.Answer: "answer"}[test.Action]
	if got.action != want && !(test.Action == pipeline.Modify && got.action == "hide") {
		return "", fmt.Errorf("self-test failed: expected %s, got %s (%s)", want, got.action,
			test.Description)
	}
	result := test.Description + ": " + got.action
	if len(got.findings) > 0 {
		result += " (" + strings.Join(got.findings, ", ") + ")"
	}
	return result, nil
}

// outcomeRecorder keeps the outcome of one message instead of recording it.
type outcomeRecorder struct {
	action   string
	findings []string // the types of the findings, without duplicates
	err      error
}

// Record implements pipeline.Recorder.
func (r *outcomeRecorder) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.action, r.err = o.Action, o.Err
	for _, s := range o.Steps {
		for _, f := range s.Findings {
			if !slices.Contains(r.findings, f.Type) {
				r.findings = append(r.findings, f.Type)
			}
		}
	}
	return 1, nil
}
