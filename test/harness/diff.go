package harness

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/test/mcptest"
)

// token is one token of a JSON text. The field at is its JSON pointer, and raw is its text. The
// names of members are tokens, too.
type token struct{ at, raw string }

func tokens(text []byte) (all []token, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for {
		var raw []byte
		switch d.PeekKind() {
		case '{', '}', '[', ']':
			t, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			raw = []byte(t.String())
		default:
			v, err := d.ReadValue()
			if err == io.EOF {
				return all, nil
			} else if err != nil {
				return nil, err
			}
			raw = bytes.Clone(v)
		}
		all = append(all, token{string(d.StackPointer()), string(raw)})
	}
}

// change is a token that differs between a direct answer and the answer through Gatekit. The field
// at is its JSON pointer.
type change struct{ at, direct, via string }

// compare returns the tokens that differ between two JSON texts, or an error when their structure
// differs.
func compare(direct, via []byte) (changes []change, err error) {
	a, err := tokens(direct)
	if err != nil {
		return nil, fmt.Errorf("direct: %w", err)
	}
	b, err := tokens(via)
	if err != nil {
		return nil, fmt.Errorf("through gatekit: %w", err)
	}
	for i := range min(len(a), len(b)) {
		if a[i].at != b[i].at {
			return changes, fmt.Errorf("got a token at %s through gatekit, want it at %s",
				b[i].at, a[i].at)
		}
		if a[i].raw != b[i].raw {
			changes = append(changes, change{a[i].at, a[i].raw, b[i].raw})
		}
	}
	if len(a) != len(b) {
		return changes, fmt.Errorf("got %d tokens through gatekit, want %d as in the direct answer",
			len(b), len(a))
	}
	return changes, nil
}

// places lists the positions of names in a server's messages, and their kinds. It repeats the table
// of core/mcp, because the tests check that table.
var places = []struct{ at, kind string }{
	{"/result/tools/*/name", "name"},
	{"/result/prompts/*/name", "name"},
	{"/result/tools/*/_meta/ui/resourceUri", "uri"},
	{"/result/tools/*/_meta/ui~1resourceUri", "uri"},
	{"/result/resources/*/uri", "uri"},
	{"/result/resourceTemplates/*/uriTemplate", "uri"},
	{"/result/contents/*/uri", "uri"},
	{"/result/content/*/uri", "uri"},
	{"/result/content/*/resource/uri", "uri"},
	{"/result/messages/*/content/uri", "uri"},
	{"/result/messages/*/content/resource/uri", "uri"},
	{"/result/task/taskId", "task"},
	{"/result/taskId", "task"},
	{"/result/tasks/*/taskId", "task"},
	{"/result/_meta/io.modelcontextprotocol~1related-task/taskId", "task"},
	{"/result/requestState", "state"},
	{"/params/uri", "uri"},
	{"/params/taskId", "task"},
	{"/params/_meta/io.modelcontextprotocol~1related-task/taskId", "task"},
	{"/params/elicitationId", "task"},
	{"/params/logger", "logger"},
	// With more than one server, an elicitation's message names its server.
	{"/params/message", "message"},
	{"/error/data/uri", "uri"},
	{"/error/data/elicitations/*/elicitationId", "task"},
	{"/id", "id"}, // id of a reverse request
}

// kindAt returns the kind of the name at a JSON pointer, or "" if names do not stand there.
func kindAt(at string) string {
	segs := strings.Split(at, "/")
	for _, p := range places {
		want := strings.Split(p.at, "/")
		if len(want) == len(segs) {
			same := true
			for i := range want {
				same = same && (want[i] == "*" || want[i] == segs[i])
			}
			if same {
				return p.kind
			}
		}
	}
	return ""
}

// exposed reports whether via is the name under which clients see direct, the server's own name.
// Both are JSON strings.
func exposed(kind, server, direct, via string) bool {
	d, v := mcptest.Text([]byte(direct)), mcptest.Text([]byte(via))
	switch kind {
	case "name":
		return v == server+"__"+d
	case "uri":
		if rest, ok := strings.CutPrefix(d, "ui://"); ok {
			return v == "ui://"+server+"+"+rest
		}
		return v == server+"+"+d
	case "message":
		return strings.HasSuffix(v, d) && strings.Contains(v, server)
	case "logger":
		return strings.HasSuffix(v, d) && strings.HasPrefix(v, server)
	case "task", "state", "id":
		return v != ""
	}
	return false
}

// WantSameExceptNames fails the test unless via, a message received through gatekit, equals direct,
// the message of the server. Only the names in places may differ: in via, they are the names that
// clients see. The parameter what describes the message.
func WantSameExceptNames(t *testing.T, what, server string, direct, via []byte) {
	t.Helper()
	changes, err := compare(direct, via)
	if err != nil {
		t.Errorf("%s: %v\ndirect  %s\nthrough %s", what, err, Clip(direct), Clip(via))
		return
	}
	for _, c := range changes {
		if !exposed(kindAt(c.at), server, c.direct, c.via) {
			t.Errorf("%s: at %s: got %s through gatekit, want %s, or that name with its prefix",
				what, c.at, Clip([]byte(c.via)), Clip([]byte(c.direct)))
		}
	}
}
