package everymessage

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatekit/test/mcptest"
)

// exceptions is the table of exceptions in docs/protocol.md.
type exceptions struct {
	rows []exception

	mu   sync.Mutex
	used map[[2]int]bool // the row, and the index of the difference in the row
}

// exception is a row of the table. It explains faults in the counts of some messages.
type exception struct {
	line        string // of the document
	applies     func(scenario) bool
	kinds       []string // the first words of the keys, such as "to_client request "
	methods     []string // with "*" for any end; "" stands for methods that MCP does not define
	differences []difference
}

// difference is an entry of the column "Difference", such as "no record". It explains the faults of
// one kind with more messages than expected, or those with fewer.
type difference struct {
	word string
	kind string // of the fault
	more bool   // whether the faults have more messages than expected
}

var differences = []difference{
	{"extra record", "recorded", true},
	{"extra inspection", "inspected", true},
	{"no record", "recorded", false},
	{"no inspection", "inspected", false},
	{"not delivered", "forwarded", true},
}

// conditions are the texts of the column "When".
var conditions = map[string]func(scenario) bool{
	"always":              func(scenario) bool { return true },
	"names have prefixes": func(s scenario) bool { return s.prefix == "always" },
	"several servers":     func(s scenario) bool { return s.servers > 1 },
	"modern client":       func(s scenario) bool { return s.client >= mcptest.Modern },
	"modern server":       func(s scenario) bool { return s.server >= mcptest.Modern },
	"legacy client, modern server": func(s scenario) bool {
		return s.client < mcptest.Modern && s.server >= mcptest.Modern
	},
	"modern client, legacy server": func(s scenario) bool {
		return s.client >= mcptest.Modern && s.server < mcptest.Modern
	},
	"client and server of different eras": scenario.isBridged,
}

// messageKinds are the first words of the column "Message".
var messageKinds = map[string][]string{
	"request of a client":      {"to_server request "},
	"request of a server":      {"to_client request "},
	"answer of a client":       {"to_server response ", "to_server error "},
	"answer of a server":       {"to_client response ", "to_client error "},
	"notification of a client": {"to_server notification "},
	"notification of a server": {"to_client notification "},
}

// readExceptions reads the table below the heading "Every message, and the exceptions".
func readExceptions(t *testing.T) *exceptions {
	t.Helper()
	b, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(b), "\n## Every message, and the exceptions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, hasTable := strings.Cut(section,
		"\n| When | Message | Difference | Why |\n|---|---|---|---|\n")
	if !found || !hasTable {
		t.Fatal("docs/protocol.md has no table of exceptions")
	}
	e := &exceptions{used: map[[2]int]bool{}}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("the row %q of docs/protocol.md has %d cells, want 4", line, len(cells))
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		kind, methods, _ := strings.Cut(cells[1], ":")
		row := exception{line: strings.TrimSpace(line), applies: conditions[cells[0]],
			kinds: messageKinds[kind]}
		if row.applies == nil || row.kinds == nil {
			t.Fatalf("the row %q of docs/protocol.md has an unknown condition or kind", line)
		}
		for method := range strings.SplitSeq(methods, ",") {
			if method = strings.TrimSpace(method); method != "unknown methods" {
				row.methods = append(row.methods, strings.Trim(method, "`"))
			} else {
				row.methods = append(row.methods, "")
			}
		}
		for word := range strings.SplitSeq(cells[2], ",") {
			at := slices.IndexFunc(differences, func(d difference) bool {
				return d.word == strings.TrimSpace(word)
			})
			if at < 0 {
				t.Fatalf("the row %q of docs/protocol.md has the unknown difference %q", line, word)
			}
			row.differences = append(row.differences, differences[at])
		}
		e.rows = append(e.rows, row)
	}
	return e
}

// explain returns the faults that no row explains. If there are none, it notes the rows that
// explained a fault.
func (e *exceptions) explain(s scenario, faults []fault) (unexplained []fault) {
	used := map[[2]int]bool{}
	for _, f := range faults {
		explained := false
		for i, row := range e.rows {
			for j, d := range row.differences {
				if row.applies(s) && row.includes(f.key) && d.kind == f.kind &&
					d.more == (f.got > f.want) {
					explained, used[[2]int{i, j}] = true, true
				}
			}
		}
		if !explained {
			unexplained = append(unexplained, f)
		}
	}
	if len(unexplained) == 0 {
		e.mu.Lock()
		defer e.mu.Unlock()
		for k := range used {
			e.used[k] = true
		}
	}
	return unexplained
}

// includes reports whether the row is about messages with this key.
func (x exception) includes(key string) bool {
	return slices.ContainsFunc(x.kinds, func(kind string) bool {
		method, ok := strings.CutPrefix(key, kind)
		return ok && slices.ContainsFunc(x.methods, func(m string) bool {
			start, isPattern := strings.CutSuffix(m, "*")
			return m == method || isPattern && method != "" && strings.HasPrefix(method, start)
		})
	})
}

// reportUnused fails the test if an exception did not happen.
func (e *exceptions) reportUnused(t *testing.T) {
	for i, row := range e.rows {
		for j, d := range row.differences {
			if !e.used[[2]int{i, j}] {
				t.Errorf("the exception %q did not happen: docs/protocol.md, row %s", d.word,
					row.line)
			}
		}
	}
}
