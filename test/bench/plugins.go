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

// stages are what one Gatekit has among those that are compared.
type stages struct {
	way      string // what it shows
	tables   string // of the configuration: plugins
	audit    string // keys of [audit]
	unlogged bool   // it is one that records no message
}

// plain is a Gatekit without any, which all others are held against.
const plain = "none"

// withPlugins are what is compared, plain first. Plugins of one's own run in a process each and
// those of Gatekit share one, so three that share one are three limits, which count and let pass;
// counting takes a microsecond or two.
func withPlugins() ([]stages, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	own := func(name, config string) string {
		return fmt.Sprintf("[[plugin]]\nname = %q\ntimeout = \"30s\"\ncommand = [%q, "+
			"\"plugin\", \"allow\"]\nconfig = %s\n", name, self, config)
	}
	use := func(name, builtin, config string) string {
		return fmt.Sprintf("[[plugin]]\nname = %q\ntimeout = \"30s\"\nuse = %q\nconfig = %s\n",
			name, builtin, config)
	}
	all := []stages{
		{way: plain},
		{way: "of other messages", tables: own("a", `{ methods = ["prompts/get"] }`)},
		{way: "one, no body", tables: own("a", `{ blind = true }`)},
		{way: "one", tables: own("a", `{}`)},
		{way: "three", tables: own("a", `{}`) + own("b", `{}`) + own("c", `{}`)},
	}
	together, scanning := "", ""
	for _, name := range []string{"a", "b", "c"} {
		together += use(name, "limits",
			`{ calls = [{ per = "tool", concurrent = 4096 }], loop = { action = "off" }, result = { bytes = 10000000 } }`)
	}
	scanners := scanners()
	for _, name := range scanners {
		scanning += use(name, name, `{}`)
	}
	all = append(all, stages{way: "three in one process", tables: together})
	if len(scanners) > 0 {
		all = append(all, stages{way: strings.Join(scanners, "+"), tables: scanning})
	}
	return all, nil
}

// scanners are the plugins of Gatekit that read all texts, those that there are.
func scanners() (names []string) {
	for _, p := range builtin.All() {
		if slices.Contains([]string{"secrets", "pii", "injection"}, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// measurePlugins compares Gatekit with plugins with Gatekit without.
func (p *plan) measurePlugins(l lane, out report) error {
	all, err := withPlugins()
	if err != nil {
		return err
	}
	return p.measureStages(l, all, out.pluginsHead, out.stages)
}

// measureStages compares Gatekits of several configurations with the first.
func (p *plan) measureStages(l lane, all []stages, head func(lane), row func(lane, int,
	comparison)) error {
	l.route, l.era, l.stages = p.routes[0], p.eras[0], all
	var ways []string
	for _, s := range all {
		ways = append(ways, s.way)
	}
	head(l)
	for _, l.workers = range p.at {
		targets, end, err := l.open(ways...)
		for _, size := range p.sizes {
			if err != nil {
				break
			}
			var c comparison
			c, err = compare(targets, l.workers, func(t *target) message {
				return callEcho(t.tool, size)
			}, p.rounds, p.length)
			if err == nil {
				row(l, size, c)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}

// servePlugin is this binary as a plugin that lets all pass.
func servePlugin() {
	sdk.Serve(sdk.Plugin{
		Name: "allow", Version: "1", Doc: "lets all pass",
		Schema: []byte(`{"properties":{"methods":{"type":"array","items":{"type":"string"}},"blind":{"type":"boolean"}},"additionalProperties":false}`),
		New: func(config []byte) (sdk.Stage, error) {
			var s allow
			err := json.Unmarshal(config, &s)
			return s, err
		},
	})
}

// allow is a stage that lets all pass.
type allow struct {
	Methods []string `json:"methods"` // that it wants; none is all
	Blind   bool     `json:"blind"`   // it needs no bodies
}

func (s allow) Wants() pipeline.Wants { return pipeline.Wants{Methods: s.Methods} }
func (s allow) Needs() sdk.Needs      { return sdk.Needs{Body: !s.Blind} }

func (allow) Inspect(context.Context, *mcp.Message) (sdk.Verdict, error) { return sdk.Allow(), nil }
