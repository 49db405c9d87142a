package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// errUnsupported reports that a server does not support the request. This does not count as a
// failure of the server.
var errUnsupported = errors.New("the server does not support the request")

// serverPart is one server's part of an answer that is merged.
type serverPart struct {
	server  string
	answers []pipeline.Passed // the server's result; for a list, one result for each page
	pages   []*clientPage     // for a list: the answers as clients see them
	refused pipeline.Passed   // the server's answer, if the answer is an error
	err     error             // why the answer, or a page of it, is missing
	isLate  bool              // err is set, but the answer or more pages may come later
}

// add adds an answer of the server, which may be an error message. add returns an error if the
// answer cannot be merged.
func (p *serverPart) add(answer pipeline.Passed) error {
	m := answer.Message()
	meth, _ := mcp.LookupMethod(m.Method)
	switch {
	case m.Kind != mcp.Response:
		if m.ErrorCode() == mcp.CodeMethodNotFound {
			return errUnsupported
		}
		p.refused = answer
		return &UnavailableError{Server: p.server, Reason: "it answered " + errorText(m)}
	case !bytes.HasPrefix(m.Body(), []byte("{")):
		return &UnavailableError{Server: p.server, Reason: "its result is no object"}
	case meth.Name == "initialize" || meth.Name == "server/discover":
		if raw, _ := m.Get("/capabilities"); countCapabilities(raw,
			maxCapabilityDepth) > maxCapabilities {
			return &UnavailableError{Server: p.server,
				Reason: fmt.Sprintf("its capabilities have more than %d members", maxCapabilities)}
		}
	case meth.ItemsPointer != "":
		// some servers send null for an empty list
		if raw, _ := m.Get(meth.ItemsPointer); !bytes.HasPrefix(raw, []byte("[")) &&
			string(raw) != "null" {
			return &UnavailableError{Server: p.server, Reason: "its result has no list of " +
				meth.ItemsPointer[1:]}
		}
	}
	p.answers = append(p.answers, answer)
	return nil
}

// Bounds of one server's capabilities, so that no server can make the merged answer large.
const (
	// members of one server's capabilities; most servers declare about a dozen
	maxCapabilities = 1000
	// levels that are merged; tasks.requests.tools.call has the most levels, four
	maxCapabilityDepth = 4
)

// countCapabilities returns the number of members of an object and of its nested objects. It counts
// only the upper levels; depth is the number of these levels. It stops counting soon after
// maxCapabilities.
func countCapabilities(raw []byte, depth int) int {
	if depth == 0 || !bytes.HasPrefix(raw, []byte("{")) {
		return 0
	}
	n := 0
	mcp.NewResponse("", raw).Members("", func(_ string, raw []byte) bool {
		n += 1 + countCapabilities(raw, depth-1)
		return n <= maxCapabilities
	})
	return n
}

// mergeParts calls merge with the parts that have an answer, and returns an answer with the merged
// members. The _meta of the answer lists the servers that failed. If no part has an answer,
// mergeParts returns what allFailed returns.
func (call *Call) mergeParts(ctx context.Context, parts []serverPart,
	merge func(good []*serverPart) ([]member,
		error)) (pipeline.Passed, error) {
	var good []*serverPart
	for i := range parts {
		if len(parts[i].answers) > 0 {
			good = append(good, &parts[i])
		}
	}
	if len(good) == 0 && !call.isForLogin {
		return call.allFailed(ctx, parts)
	}
	members, err := merge(good)
	if err != nil {
		return pipeline.Passed{}, err
	}
	return call.ownResult(ctx, object(withPartial(members, parts)...)), nil
}

// failedParts returns the parts that are missing or incomplete.
func failedParts(parts []serverPart) []serverPart {
	return slices.DeleteFunc(slices.Clone(parts), func(p serverPart) bool {
		return p.err == nil || errors.Is(p.err, errUnsupported)
	})
}

// allFailed returns the answer for the client, or the error, when no server gave an answer.
func (call *Call) allFailed(ctx context.Context, parts []serverPart) (pipeline.Passed, error) {
	bad := failedParts(parts)
	if meth, _ := mcp.LookupMethod(call.request.Method); meth.ItemsPointer != "" &&
		call.isListEmpty(parts, bad) {
		members := append([]member{listField(meth.ItemsPointer[1:], nil)},
			call.uncachedMembers()...)
		return call.ownResult(ctx, object(withPartial(members, parts)...)), nil
	}
	if len(bad) == 0 {
		return pipeline.Passed{}, requestErrorf(mcp.CodeMethodNotFound, "no server supports %s",
			call.request.Method)
	}
	denied := true
	reasons := make([]string, len(bad))
	for i, p := range bad {
		if p.refused.Message() != nil { // a server's own error has the most details
			return call.session.addPrefixes(call.settings, p.refused)
		}
		reasons[i] = p.reason()
		denied = denied && errors.As(p.err, new(*pipeline.DeniedError))
	}
	if denied || len(bad) == 1 {
		return pipeline.Passed{}, bad[0].err
	}
	return pipeline.Passed{}, requestErrorf(mcp.CodeInternalError, "no server answered %s: %s",
		call.request.Method, strings.Join(reasons, "; "))
}

// isListEmpty reports whether the client gets an empty list, and no error, when no server gave an
// answer. bad are the failed parts. The client gets an empty list in three cases: some servers do
// not have the feature, and all parts in bad are late; all parts in bad need a login, for which the
// list of tools has a tool; or no server has the feature, but Gatekit declared the feature to the
// client before all servers had answered initialize.
func (call *Call) isListEmpty(parts, bad []serverPart) bool {
	if len(bad) == 0 {
		return call.session.hasDeclaredAhead()
	}
	if !slices.ContainsFunc(bad, func(p serverPart) bool { return !call.needsLogin(p) }) {
		return true
	}
	return len(bad) < len(parts) && !slices.ContainsFunc(bad, func(p serverPart) bool {
		return !p.isLate
	})
}

// reason returns why the part is missing, as far as the client may know.
func (p *serverPart) reason() string {
	if errors.As(p.err, new(*pipeline.DeniedError)) {
		return "refused by policy"
	}
	return p.err.Error()
}

// partialKey is the member of _meta that lists the servers that failed.
const partialKey = "gatekit/partial"

// withPartial notes the failed parts in the result's _meta.
func withPartial(members []member, parts []serverPart) []member {
	var items [][]byte
	for _, p := range failedParts(parts) {
		items = append(items, object(textField("server", p.server), textField("reason",
			p.reason())))
	}
	if items == nil {
		return members
	}
	note := object(listField(partialKey, items))
	for i, m := range members {
		if m.name == "_meta" { // it is not {}: see mergeOtherMembers and mergeServerInfo
			members[i].raw = slices.Concat(m.raw[:len(m.raw)-1], []byte(","), note[1:])
			return members
		}
	}
	return append(members, field("_meta", note))
}

// mergeOtherMembers merges the members of several results. It leaves out the members in skip, which
// the caller merges. It takes the strictest of the caching hints (2026-07-28). For any other
// member, and for each member of _meta, it takes the value of the first result that has the member.
func (call *Call) mergeOtherMembers(results []*mcp.Message, skip ...string) []member {
	var rest, meta memberSet
	var ttl, scope []byte
	hasResultType := false // at least one result has a resultType
	allHaveTTL := true     // every result has a ttlMs
	for _, m := range results {
		m.Members("", func(name string, raw []byte) bool {
			switch {
			case slices.Contains(skip, name):
			case name == "resultType":
				hasResultType = true
			case name == "ttlMs":
				if ttl == nil || isShorter(raw, ttl) {
					ttl = raw
				}
			case name == "cacheScope":
				if scope == nil || string(raw) != `"public"` {
					scope = raw
				}
			case name == "_meta":
				m.Members("/_meta", func(name string, raw []byte) bool {
					switch name {
					case partialKey: // only Gatekit sets it
					case mcp.MetaServerInfo: // Gatekit is the server of the merged result
						meta.add(name, call.identity())
					default:
						meta.add(name, raw)
					}
					return true
				})
			default:
				rest.add(name, raw)
			}
			return true
		})
		_, hasTTL := m.Get("/ttlMs")
		allHaveTTL = allHaveTTL && hasTTL
	}
	if ttl != nil && !allHaveTTL {
		ttl = []byte("0")
	}
	if hasResultType {
		rest.add("resultType", []byte(`"complete"`))
	}
	if ttl != nil {
		rest.add("ttlMs", ttl)
	}
	if scope != nil {
		rest.add("cacheScope", scope)
	}
	if len(meta.members) > 0 {
		rest.add("_meta", object(meta.members...))
	}
	return rest.members
}

// memberSet holds members of several objects: for each name, the member that was added first.
type memberSet struct {
	members []member
	names   map[string]bool // for speed: a hostile server may send a million members
}

// add adds a member, unless the set already has a member with this name.
func (u *memberSet) add(name string, raw []byte) {
	if u.names[name] {
		return
	}
	if u.names == nil {
		u.names = map[string]bool{}
	}
	u.names[name] = true
	u.members = append(u.members, field(name, raw))
}

// isShorter reports whether the duration a is shorter than the duration b. Both are JSON numbers of
// milliseconds; any other value counts as 0.
func isShorter(a, b []byte) bool {
	x, errX := strconv.ParseUint(string(a), 10, 63)
	y, errY := strconv.ParseUint(string(b), 10, 63)
	return errY == nil && (errX != nil || x < y)
}

// mergeServerInfo merges the servers' results of initialize or server/discover.
func (call *Call) mergeServerInfo(good []*serverPart) ([]member, error) {
	results := make([]*mcp.Message, len(good))
	for i, p := range good {
		results[i] = p.answers[0].Message()
		if srv := call.session.server(p.server); srv != nil {
			srv.noteShownToClient(results[i])
		}
	}
	// initialize has a protocolVersion; downstream has checked that Gatekit supports it
	version, legacy := call.request.Get("/protocolVersion")
	info := call.identity()
	var members []member
	if legacy {
		members = append(members, field("protocolVersion", version))
	}
	members = append(members, field("capabilities",
		mergeCapabilities(results, call.isPartialInitialize)))
	if legacy {
		members = append(members, field("serverInfo", info))
	}
	if text := mergeInstructions(results); text != "" {
		members = append(members, textField("instructions", text))
	}
	members = append(members, call.mergeOtherMembers(results, "protocolVersion", "capabilities",
		"serverInfo", "instructions", "supportedVersions", "_meta")...)
	if !legacy {
		members = append(members, field("_meta", object(field(mcp.MetaServerInfo, info))))
	}
	return members, nil
}

// identity returns Gatekit's serverInfo.
func (call *Call) identity() []byte {
	return object(textField("name", "gatekit"), textField("version", call.settings.Version))
}

// mergeCapabilities merges the capabilities of the servers. listChanged is always declared, because
// a reload can change every list.
//
// isPartial means that a server has not answered yet. Then all features with lists are declared: a
// client does not ask for lists of features that were not declared.
func mergeCapabilities(results []*mcp.Message, isPartial bool) []byte {
	var capabilities [][]byte
	subscribe := false
	for _, m := range results {
		if raw, ok := m.Get("/capabilities"); ok {
			capabilities = append(capabilities, raw)
		}
		raw, _ := m.Get("/capabilities/resources/subscribe")
		subscribe = subscribe || string(raw) == "true"
	}
	if isPartial {
		capabilities = append(capabilities, []byte(`{"tools":{},"prompts":{},"resources":{}}`))
	}
	var members []member
	for _, c := range groupByName(capabilities) {
		raw := c.values[0]
		switch c.name {
		case "tools", "prompts":
			raw = []byte(`{"listChanged":true}`)
		case "resources":
			raw = []byte(`{"listChanged":true}`)
			if subscribe {
				raw = []byte(`{"subscribe":true,"listChanged":true}`)
			}
		case "tasks":
			raw = uniteObjects(c.values, maxCapabilityDepth-1)
		case "experimental":
			raw = uniteAgreed(c.values)
		case "extensions":
			raw = mergeExtensions(c.values)
		}
		members = append(members, field(c.name, raw))
	}
	return object(members...)
}

// namedValues are the values that several objects have under one name.
type namedValues struct {
	name   string
	values [][]byte // at least one
}

// groupByName groups the members of several values by name, in order of appearance. Values that are
// not objects are ignored. To merge a deeper level, call groupByName again with the values of one
// name. This is faster than JSON pointers: each pointer would search the whole message again.
func groupByName(objects [][]byte) []namedValues {
	var members []namedValues
	at := map[string]int{}
	for _, o := range objects {
		mcp.NewResponse("", o).Members("", func(name string, raw []byte) bool {
			i, had := at[name]
			if !had {
				i = len(members)
				at[name] = i
				members = append(members, namedValues{name: name})
			}
			members[i].values = append(members[i].values, raw)
			return true
		})
	}
	return members
}

// uniteObjects returns an object with all members of the objects. If several objects have a member
// with the same name, uniteObjects takes the first value. If that value is an object, uniteObjects
// unites all values of that name in the same way. depth is the number of levels to unite.
func uniteObjects(objects [][]byte, depth int) []byte {
	var members []member
	for _, n := range groupByName(objects) {
		raw := n.values[0]
		if raw[0] == '{' && depth > 1 {
			raw = uniteObjects(n.values, depth-1)
		}
		members = append(members, field(n.name, raw))
	}
	return object(members...)
}

// uniteAgreed returns an object with all members of the objects, except names for which the objects
// have different values.
func uniteAgreed(objects [][]byte) []byte {
	var members []member
	for _, n := range groupByName(objects) {
		if !slices.ContainsFunc(n.values, func(v []byte) bool {
			return !bytes.Equal(v, n.values[0])
		}) {
			members = append(members, field(n.name, n.values[0]))
		}
	}
	return object(members...)
}

// mergeInstructions joins the servers' instructions, each under its server's name, within bounds.
func mergeInstructions(results []*mcp.Message) string {
	var b strings.Builder
	for _, m := range results {
		text, _ := m.Text("/instructions")
		if text == "" {
			continue
		}
		text = display.Clip(text, maxInstructions/len(results))
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "# %s\n\n%s", m.Server, text)
	}
	return b.String()
}
