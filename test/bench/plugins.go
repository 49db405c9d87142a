//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin"
	"gatekit/plugins/sdk"
)

// variant is a Gatekit with a configuration that is compared with other configurations.
type variant struct {
	name      string // in the report
	tables    string // tables of the configuration: plugins, policies, sinks or telemetry
	auditKeys string // keys of [audit]
	// keys of [listen], and the client's bearer token; only for routes with an HTTP client
	listenKeys, token string
	unlogged          bool     // this Gatekit is built to record no message
	binary            string   // path of another gatekit than that of the setup
	env               []string // KEY=VALUE of its environment
}

// baseline is the name of the variant that all other variants are compared with.
const baseline = "none"

// pluginVariants returns the variants with plugins, after the baseline. Each external plugin runs
// in a process of its own, and the built-in plugins share a process. The variant "three in one
// process" has three instances of the plugin limits. Each instance counts the calls and allows
// them, which takes one or two microseconds.
func pluginVariants() ([]variant, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	external := func(name, config string) string {
		return fmt.Sprintf("[[plugin]]\nname = %q\ntimeout = \"30s\"\ncommand = [%q, "+
			"\"plugin\", \"allow\"]\nconfig = %s\n", name, self, config)
	}
	builtIn := func(name, use, config string) string {
		return fmt.Sprintf("[[plugin]]\nname = %q\ntimeout = \"30s\"\nuse = %q\nconfig = %s\n",
			name, use, config)
	}
	all := []variant{
		{name: baseline},
		{name: "for other messages", tables: external("a", `{ methods = ["prompts/get"] }`)},
		{name: "one, no body", tables: external("a", `{ blind = true }`)},
		{name: "one", tables: external("a", `{}`)},
		{name: "three", tables: external("a", `{}`) + external("b", `{}`) + external("c", `{}`)},
	}
	limits, scanners := "", ""
	for _, name := range []string{"a", "b", "c"} {
		limits += builtIn(name, "limits",
			`{ calls = [{ per = "tool", concurrent = 4096 }], `+
				`loop = { action = "off" }, result = { bytes = 10000000 } }`) +
			"process = \"shared\"\n"
	}
	names := scannerNames()
	for _, name := range names {
		scanners += builtIn(name, name, `{}`)
	}
	all = append(all, variant{name: "three in one process", tables: limits})
	if len(names) > 0 {
		all = append(all, variant{name: strings.Join(names, "+"), tables: scanners})
	}
	return all, nil
}

// scannerNames returns the built-in plugins that read all texts.
func scannerNames() (names []string) {
	for _, p := range builtin.All() {
		if slices.Contains([]string{"secrets", "pii", "injection"}, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// measurePlugins compares Gatekit with and without plugins.
func (p *plan) measurePlugins(s setup, out report) error {
	all, err := pluginVariants()
	if err != nil {
		return err
	}
	return p.measureVariants(s, all, out.pluginsHeader, out.variantRows)
}

// measureVariants compares variants with the first one.
func (p *plan) measureVariants(s setup, all []variant, header func(setup), row func(setup, int,
	comparison)) error {
	s.route, s.era, s.variants = p.routes[0], p.eras[0], all
	var names []string
	for _, v := range all {
		names = append(names, v.name)
	}
	header(s)
	for _, s.workers = range p.workers {
		targets, end, err := s.open(names...)
		for _, size := range p.sizes {
			if err != nil {
				break
			}
			var c comparison
			c, err = compare(targets, s.workers, func(t *target) message {
				return echoCall(t.tool, size)
			}, p.rounds, p.length)
			if err == nil {
				row(s, size, c)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}

// servePlugin runs this binary as a plugin that allows everything.
func servePlugin() {
	sdk.Serve(sdk.Plugin{
		Name: "allow", Version: "1", Doc: "allows everything",
		Schema: []byte(`{"properties":{"methods":{"type":"array","items":{"type":"string"}},"blind":{"type":"boolean"}},"additionalProperties":false}`),
		New: func(config []byte) (sdk.Stage, error) {
			var s allowStage
			err := json.Unmarshal(config, &s)
			return s, err
		},
	})
}

// allowStage is a stage that allows everything.
type allowStage struct {
	Methods []string `json:"methods"` // the methods that the stage inspects; empty for all methods
	Blind   bool     `json:"blind"`   // the stage does not read bodies
}

func (s allowStage) Wants() pipeline.Wants { return pipeline.Wants{Methods: s.Methods} }
func (s allowStage) Needs() sdk.Needs      { return sdk.Needs{Body: !s.Blind} }

func (allowStage) Inspect(context.Context, *mcp.Message) (sdk.Verdict, error) {
	return sdk.Allow(), nil
}
