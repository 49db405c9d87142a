package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// errNone says that a server has nothing of the kind that was asked for: no failure, and nothing to tell of.
var errNone = errors.New("the server does not have it")

// part is what one server answered to a request that all were asked.
type part struct {
	server  string
	answers []pipeline.Passed // pages, for a list
	err     error
}

// add takes an answer of the server, which may be an error message.
func (p *part) add(answer pipeline.Passed) {
	m := answer.Message()
	switch {
	case m.Kind == mcp.Response:
		p.answers = append(p.answers, answer)
	case m.ErrorCode() == mcp.CodeMethodNotFound:
		p.err = errNone
	default:
		p.err = &Unavailable{Server: p.server, Reason: "it answered " + errorText(m)}
	}
}

// merged answers for all servers what merge makes of the good parts, with a word in _meta on those that failed. When all failed it is an error.
func (x *exchange) merged(ctx context.Context, parts []part, merge func(good []part) ([]member, error)) (pipeline.Passed, error) {
	var good, bad []part
	for _, p := range parts {
		switch {
		case p.err == nil:
			good = append(good, p)
		case !errors.Is(p.err, errNone):
			bad = append(bad, p)
		}
	}
	if len(good) == 0 {
		return pipeline.Passed{}, noneGood(x.m.Method, bad)
	}
	members, err := merge(good)
	if err != nil {
		return pipeline.Passed{}, err
	}
	if len(bad) > 0 {
		members = withPartial(members, bad)
	}
	return x.own(ctx, object(members...)), nil
}

// noneGood is the error when no server had an answer.
func noneGood(method string, bad []part) error {
	switch len(bad) {
	case 0:
		return failure(mcp.CodeMethodNotFound, "no server supports %s", method)
	case 1:
		return bad[0].err
	}
	reasons := make([]string, len(bad))
	for i, p := range bad {
		reasons[i] = p.reason()
	}
	return failure(mcp.CodeInternal, "no server answered %s: %s", method, strings.Join(reasons, "; "))
}

// reason is why the part is missing, as the client may know it.
func (p *part) reason() string {
	var denied *pipeline.Denied
	if errors.As(p.err, &denied) {
		return "refused by policy"
	}
	return p.err.Error()
}

// withPartial notes the failed parts in the result's _meta.
func withPartial(members []member, bad []part) []member {
	var items [][]byte
	for _, p := range bad {
		items = append(items, object(member{"server", mcp.Quote(p.server)}, member{"reason", mcp.Quote(p.reason())}))
	}
	partial := member{"gatekit/partial", array(items)}
	for i, m := range members {
		if m.name == "_meta" && len(m.raw) > 2 {
			rest := object(partial)
			members[i].raw = append(append(bytes.TrimRight(m.raw[:len(m.raw)-1:len(m.raw)-1], " \t\r\n"), ','), rest[1:]...)
			return members
		}
	}
	return append(members, member{"_meta", object(partial)})
}

// mergeRest unites the members of several results that are not the list itself: what 2026-07-28 says of completeness and caching conservatively, the
// members of _meta and all others as the first server has them. skip are those that the caller makes.
func mergeRest(results []*mcp.Message, skip ...string) []member {
	var rest, meta []member
	var ttl, scope, complete *member
	full := true // every result says how long it may be kept
	for _, m := range results {
		m.Members("", func(name string, raw []byte) bool {
			one := member{name, raw}
			switch {
			case has(skip, name):
			case name == "resultType":
				complete = &member{name, []byte(`"complete"`)}
			case name == "ttlMs":
				if ttl == nil || less(raw, ttl.raw) {
					ttl = &one
				}
			case name == "cacheScope":
				if scope == nil || string(raw) != `"public"` {
					scope = &one
				}
			case name == "_meta":
				m.Members("/_meta", func(name string, raw []byte) bool {
					meta = addFirst(meta, member{name, raw})
					return true
				})
			default:
				rest = addFirst(rest, one)
			}
			return true
		})
		_, hasTTL := m.Get("/ttlMs")
		full = full && hasTTL
	}
	if ttl != nil && !full {
		ttl = &member{"ttlMs", []byte("0")}
	}
	for _, m := range []*member{complete, ttl, scope} {
		if m != nil {
			rest = append(rest, *m)
		}
	}
	if len(meta) > 0 {
		rest = append(rest, member{"_meta", object(meta...)})
	}
	return rest
}

func has(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// addFirst adds a member unless one of its name is there.
func addFirst(members []member, m member) []member {
	for _, had := range members {
		if had.name == m.name {
			return members
		}
	}
	return append(members, m)
}

// less compares two durations in milliseconds; what is no such number counts as 0.
func less(a, b []byte) bool {
	x, errX := strconv.ParseUint(string(a), 10, 63)
	y, errY := strconv.ParseUint(string(b), 10, 63)
	return errY == nil && (errX != nil || x < y)
}

// mergeHello makes one answer to initialize, or to server/discover, of all servers' (protocol.md 2.2).
func (x *exchange) mergeHello(good []part) ([]member, error) {
	results := make([]*mcp.Message, len(good))
	for i, p := range good {
		results[i] = p.answers[0].Message()
		if l := x.s.link(p.server); l != nil {
			l.show(results[i])
		}
	}
	version, _ := x.m.Get("/protocolVersion") // of initialize: downstream has seen to it that it is one we know
	members := []member{}
	if version != nil {
		members = append(members, member{"protocolVersion", version})
	}
	members = append(members, member{"capabilities", mergeCapabilities(results)})
	info := object(member{"name", mcp.Quote("gatekit")}, member{"version", mcp.Quote(x.c.Version)})
	if version != nil {
		members = append(members, member{"serverInfo", info})
	}
	if text := mergeInstructions(results); text != "" {
		members = append(members, member{"instructions", mcp.Quote(text)})
	}
	rest := mergeRest(results, "protocolVersion", "capabilities", "serverInfo", "instructions", "supportedVersions", "_meta")
	members = append(members, rest...)
	if version == nil {
		members = append(members, member{"_meta", object(member{mcp.MetaServerInfo, info})})
	}
	return members, nil
}

// mergeCapabilities unites what the servers declare. Lists may always change: the proxy itself can change them.
func mergeCapabilities(results []*mcp.Message) []byte {
	var merged []member
	subscribe := false
	for _, m := range results {
		if raw, ok := m.Get("/capabilities/resources/subscribe"); ok && string(raw) == "true" {
			subscribe = true
		}
	}
	for _, m := range results {
		m.Members("/capabilities", func(name string, raw []byte) bool {
			switch name {
			case "tools", "prompts":
				raw = []byte(`{"listChanged":true}`)
			case "resources":
				raw = []byte(`{"listChanged":true}`)
				if subscribe {
					raw = []byte(`{"subscribe":true,"listChanged":true}`)
				}
			case "experimental", "extensions":
				raw = mergeSettings(results, "/capabilities/"+name)
			}
			merged = addFirst(merged, member{name, raw})
			return true
		})
	}
	return object(merged...)
}

// mergeSettings unites the members of the objects at pointer; of those on which two servers disagree none is kept.
func mergeSettings(results []*mcp.Message, pointer string) []byte {
	var merged []member
	conflict := map[string]bool{}
	for _, m := range results {
		m.Members(pointer, func(name string, raw []byte) bool {
			for _, had := range merged {
				if had.name == name && !bytes.Equal(had.raw, raw) {
					conflict[name] = true
				}
			}
			merged = addFirst(merged, member{name, raw})
			return true
		})
	}
	var kept []member
	for _, m := range merged {
		if !conflict[m.name] {
			kept = append(kept, m)
		}
	}
	return object(kept...)
}

// mergeInstructions puts the servers' instructions one after another, each under its server's name, within bounds.
func mergeInstructions(results []*mcp.Message) string {
	var b strings.Builder
	for _, m := range results {
		text, ok := m.Text("/instructions")
		if !ok || text == "" {
			continue
		}
		if room := maxInstructions / len(results); len(text) > room {
			text = strings.ToValidUTF8(text[:room], "") + "…"
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "# %s\n\n%s", m.Server, text)
	}
	return b.String()
}
