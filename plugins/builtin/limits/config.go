package limits

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// config is the configuration as it is written.
type config struct {
	Calls   []rule `json:"calls"`
	Timeout string `json:"timeout"`
	Loop    loop   `json:"loop"`
	Result  result `json:"result"`

	timeout time.Duration
}

// rule is one of calls.
type rule struct {
	Per        string   `json:"per"`
	Methods    []string `json:"methods"`
	Tools      []string `json:"tools"`
	Except     []string `json:"except"`
	Rate       int      `json:"rate"`
	Burst      int      `json:"burst"`
	Concurrent int      `json:"concurrent"`
}

type loop struct {
	Action string   `json:"action"`
	Same   int      `json:"same"`
	Within string   `json:"within"`
	Except []string `json:"except"`

	within time.Duration
}

type result struct {
	Action string `json:"action"`
	Bytes  int    `json:"bytes"`
	Media  int    `json:"media"`
}

func (l *loop) on() bool   { return l.Action != off }
func (r *result) on() bool { return r.Action != off }

const off = "off"

// perTool, perServer and perPrincipal say what has a count of its own.
const (
	perTool      = "tool"
	perServer    = "server"
	perPrincipal = "principal"
)

// defaults are generous: they are to stop what went wrong, not what is busy. None counts open
// calls, because a stage may not hear of their end (doc.go).
func defaults() config {
	return config{
		Calls: []rule{
			{Per: perTool, Rate: 240, Burst: 60},
			{Per: perPrincipal, Rate: 600, Burst: 200},
			{Per: perServer, Methods: []string{"sampling/createMessage", "elicitation/create"},
				Rate: 30, Burst: 10},
		},
		Timeout: "60s",
		Loop:    loop{Action: "deny", Same: 10, Within: "2m"},
		Result:  result{Action: "cut", Bytes: 1_000_000, Media: 10_000_000},
	}
}

// parse reads a configuration.
func parse(raw []byte) (config, error) {
	c := defaults()
	builtIn := c.Calls
	c.Calls = nil // a list of the user's own replaces ours, and is not merged into it
	if err := json.Unmarshal(raw, &c, json.RejectUnknownMembers(true)); err != nil {
		return config{}, err
	}
	if c.Calls == nil {
		c.Calls = builtIn
	}
	var errs []error
	for i := range c.Calls {
		if err := c.Calls[i].check(); err != nil {
			errs = append(errs, fmt.Errorf("calls[%d].%w", i, err))
		}
	}
	if err := duration(c.Timeout, &c.timeout); err != nil {
		errs = append(errs, fmt.Errorf("timeout: %w", err))
	}
	if c.Loop.Action != "deny" && c.Loop.Action != off {
		errs = append(errs, fmt.Errorf(`loop.action: must be "deny" or "off"`))
	}
	if c.Loop.Same < 1 || c.Loop.Same > maxSteps/2 {
		errs = append(errs, fmt.Errorf("loop.same: must be from 1 to %d", maxSteps/2))
	}
	if err := duration(c.Loop.Within, &c.Loop.within); err != nil {
		errs = append(errs, fmt.Errorf("loop.within: %w", err))
	}
	if c.Result.Action != "cut" && c.Result.Action != "deny" && c.Result.Action != off {
		errs = append(errs, fmt.Errorf(`result.action: must be "cut", "deny" or "off"`))
	}
	if c.Result.Bytes < leastBytes {
		errs = append(errs, fmt.Errorf("result.bytes: must be at least %d", leastBytes))
	}
	if c.Result.Media < 0 {
		errs = append(errs, errors.New("result.media: must not be below 0"))
	}
	if len(errs) == 0 && len(c.Calls) == 0 && !c.Loop.on() && !c.Result.on() {
		errs = append(errs, errors.New("nothing is limited: set calls, loop or result, or leave "+
			"the plugin out"))
	}
	return c, errors.Join(errs...)
}

// leastBytes leaves room for what a result has beside its content.
const leastBytes = 1000

// check fills in defaults and says what is wrong with a rule, beginning with the option.
func (r *rule) check() error {
	switch r.Per {
	case perTool, perServer, perPrincipal:
	default:
		return errors.New(`per: must be "tool", "server" or "principal"`)
	}
	if r.Methods == nil {
		r.Methods = []string{"tools/call"}
	}
	if len(r.Methods) == 0 {
		return errors.New("methods: must name a method")
	}
	callsOnly := true
	for i, name := range r.Methods {
		method, known := mcp.LookupMethod(name)
		if !known {
			return fmt.Errorf("methods[%d]: the protocol has no such method: write it as in "+
				"\"tools/call\"", i)
		}
		if r.Concurrent > 0 && (method.Kind != mcp.Request || method.Direction == mcp.ToClient) {
			return fmt.Errorf("concurrent: counts the requests of clients only, and %s is none",
				name)
		}
		callsOnly = callsOnly && name == "tools/call"
	}
	switch {
	case !callsOnly && r.Per == perTool:
		return errors.New(`per: "tool" is for tools/call: write "server" or "principal"`)
	case !callsOnly && (r.Tools != nil || r.Except != nil):
		return errors.New("tools: are for tools/call: leave tools and except out, or the other " +
			"methods")
	case slices.Contains(r.Tools, ""), slices.Contains(r.Except, ""):
		return errors.New("tools: an empty name is no tool")
	case r.Rate < 0, r.Burst < 0, r.Concurrent < 0:
		return errors.New("rate: rate, burst and concurrent must be above 0")
	case r.Rate == 0 && r.Concurrent == 0:
		return errors.New("rate: is missing: a rule needs rate, concurrent or both")
	case r.Burst > 0 && r.Rate == 0:
		return errors.New("burst: needs rate")
	case r.Rate > 0 && r.Burst == 0:
		r.Burst = (r.Rate + 5) / 6
	}
	return nil
}

// fits says whether the rule is about m.
func (r *rule) fits(m *mcp.Message) bool {
	return slices.Contains(r.Methods, m.Method) && (r.Tools == nil || match(r.Tools, m.Name)) &&
		!match(r.Except, m.Name)
}

// match says whether a name is one of the patterns'.
func match(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, ok := strings.CutSuffix(p, "*")
		return ok && strings.HasPrefix(name, prefix) || p == name
	})
}

func duration(s string, d *time.Duration) (err error) {
	if *d, err = time.ParseDuration(s); err != nil || *d < time.Second || *d > 24*time.Hour {
		return errors.New(`must be a time from "1s" to "24h", such as "90s"`)
	}
	return nil
}

// wants says which messages the configuration is about.
func (c *config) wants() pipeline.Wants {
	var w pipeline.Wants
	want := func(to mcp.Direction, kinds []mcp.Kind, methods ...string) {
		add(&w.Methods, methods...)
		add(&w.Kinds, kinds...)
		add(&w.Directions, to)
	}
	request, notification := []mcp.Kind{mcp.Request}, []mcp.Kind{mcp.Notification}
	answer := []mcp.Kind{mcp.Response, mcp.Error}
	for _, r := range c.Calls {
		for _, name := range r.Methods {
			method, _ := mcp.LookupMethod(name)
			for _, to := range []mcp.Direction{mcp.ToServer, mcp.ToClient} {
				if method.Direction == 0 || method.Direction == to {
					want(to, []mcp.Kind{method.Kind}, name)
				}
			}
			if r.Concurrent > 0 {
				want(mcp.ToClient, answer, name)
				want(mcp.ToClient, notification, "notifications/progress")
				want(mcp.ToClient, request, questions...)
				want(mcp.ToServer, answer, questions...)
				want(mcp.ToServer, notification, "notifications/cancelled")
			}
		}
	}
	if c.Loop.on() {
		want(mcp.ToServer, request, "tools/call")
	}
	if c.Result.on() {
		want(mcp.ToClient, answer, "tools/call", "resources/read", "prompts/get", "tasks/result",
			"tasks/get")
		want(mcp.ToClient, notification, "notifications/tasks")
	}
	return w
}

// questions are what a server may ask of a client while a call is open.
var questions = []string{"sampling/createMessage", "elicitation/create", "roots/list"}

func add[T comparable](list *[]T, values ...T) {
	for _, v := range values {
		if !slices.Contains(*list, v) {
			*list = append(*list, v)
		}
	}
}
