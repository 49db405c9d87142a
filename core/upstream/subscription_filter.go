package upstream

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"gatekit/core/mcp"
)

// subscriptionFilter holds what a subscription asks for, or is granted: the members of the
// notifications object of subscriptions/listen and of its acknowledgement.
type subscriptionFilter map[string]filterMember

// filterMember is one member of a filter: true, or a list of resources or tasks.
type filterMember struct {
	isList bool
	values []string // as JSON, as the client or the server wrote them; "true" if it is no list
}

// parseFilter returns the filter in the params of m.
func parseFilter(m *mcp.Message) subscriptionFilter {
	f := subscriptionFilter{}
	m.Members("/notifications", func(name string, raw []byte) bool {
		pointer := "/notifications/" + mcp.EscapePointer(name)
		switch {
		case bytes.HasPrefix(raw, []byte("[")):
			member := filterMember{isList: true}
			m.Items(pointer, func(_ int, raw []byte) bool {
				member.values = append(member.values, string(raw))
				return true
			})
			f[name] = member
		case string(raw) != "false" && string(raw) != "null":
			f[name] = filterMember{values: []string{string(raw)}}
		}
		return true
	})
	return f
}

// covers reports whether f asks for everything that other asks for.
func (f subscriptionFilter) covers(other subscriptionFilter) bool {
	for name, member := range other {
		if len(member.intersect(f[name]).values) < len(member.values) {
			return false
		}
	}
	return true
}

// intersect returns a member with the values that both m and other have.
func (m filterMember) intersect(other filterMember) filterMember {
	both := filterMember{isList: m.isList}
	for _, v := range m.values {
		if slices.Contains(other.values, v) {
			both.values = append(both.values, v)
		}
	}
	return both
}

// add adds to f everything that other asks for.
func (f subscriptionFilter) add(other subscriptionFilter) {
	for name, member := range other {
		sum := filterMember{isList: member.isList, values: slices.Clone(f[name].values)}
		for _, v := range member.values {
			if !slices.Contains(sum.values, v) {
				sum.values = append(sum.values, v)
			}
		}
		f[name] = sum
	}
}

// encode returns the member as JSON.
func (m filterMember) encode() []byte {
	if !m.isList {
		return []byte(m.values[0])
	}
	return []byte("[" + strings.Join(m.values, ",") + "]")
}

// encode returns the filter as JSON, with its members sorted by name.
func (f subscriptionFilter) encode() []byte {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		members = append(members, string(mcp.Quote(name))+":"+string(f[name].encode()))
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// neededEntry returns the entry with which a filter asks for exactly the notification m: the name
// of a member of the filter, and a value in that member. Both are empty if no filter can ask for m.
func neededEntry(m *mcp.Message) (name, value string) {
	switch m.Method {
	case "notifications/resources/updated":
		raw, _ := m.Get("/uri")
		return "resourceSubscriptions", string(raw)
	case "notifications/tasks":
		raw, _ := m.Get("/taskId")
		return "taskIds", string(raw)
	}
	feature, ok := strings.CutSuffix(strings.TrimPrefix(m.Method, "notifications/"),
		"/list_changed")
	if !ok {
		return "", ""
	}
	return feature + "ListChanged", "true"
}

// hasEntryFor reports whether the filter asks for exactly the resource, task or list that the
// notification m is about.
func (f subscriptionFilter) hasEntryFor(m *mcp.Message) bool {
	name, value := neededEntry(m)
	return slices.Contains(f[name].values, value)
}

// wants reports whether the notification m is sent to the subscriber with the filter f. hasExact is
// true when the filter of the shared subscription asks for exactly the resource or task of m. If it
// does not, m may be about a part of a subscribed resource. Then every subscriber that asks for any
// resource gets m.
func (f subscriptionFilter) wants(m *mcp.Message, hasExact bool) bool {
	name, _ := neededEntry(m)
	return name == "" || f.hasEntryFor(m) || !hasExact && len(f[name].values) > 0
}
