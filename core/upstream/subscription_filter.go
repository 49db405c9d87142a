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
	values []string // as JSON, as the client or the server wrote them
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

// covers reports whether f asks for everything that g asks for.
func (f subscriptionFilter) covers(other subscriptionFilter) bool {
	for name, member := range other {
		if len(member.intersect(f[name]).values) < len(member.values) {
			return false
		}
	}
	return true
}

// intersect returns m without the values that other does not have.
func (m filterMember) intersect(other filterMember) filterMember {
	both := filterMember{isList: m.isList}
	for _, v := range m.values {
		if slices.Contains(other.values, v) {
			both.values = append(both.values, v)
		}
	}
	return both
}

// add adds everything that g asks for.
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

func (m filterMember) encode() []byte {
	if !m.isList {
		return []byte(m.values[0])
	}
	return []byte("[" + strings.Join(m.values, ",") + "]")
}

func (f subscriptionFilter) encode() []byte {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		members = append(members, string(mcp.Quote(name))+":"+string(f[name].encode()))
	}
	return []byte("{" + strings.Join(members, ",") + "}")
}

// neededEntry returns the member of a filter, and the value in it, that a notification falls under.
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

// hasEntryFor reports whether the filter has exactly what a notification is about.
func (f subscriptionFilter) hasEntryFor(m *mcp.Message) bool {
	name, value := neededEntry(m)
	return slices.Contains(f[name].values, value)
}

// wants reports whether a notification is for the owner of the filter. isNamed is true when some
// filter names exactly what the notification is about. Otherwise the notification may be about a
// part of a resource that a filter names.
func (f subscriptionFilter) wants(m *mcp.Message, isNamed bool) bool {
	name, _ := neededEntry(m)
	return name == "" || f.hasEntryFor(m) || !isNamed && len(f[name].values) > 0
}
