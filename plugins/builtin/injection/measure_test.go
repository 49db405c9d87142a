package injection

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// labelled is a text with what it is. Where says in what it comes: a tool's result, its
// description, the description of a parameter, a server's instructions.
type labelled struct {
	Family string `json:"family"`
	Where  string `json:"where"`
	Text   string `json:"text"`
}

func lines[T any](t testing.TB, name string) (rows []T) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var row T
		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows = append(rows, row)
	}
	return rows
}

// message carries the text as it would come.
func (l labelled) message() *mcp.Message {
	text := string(mcp.Quote(l.Text))
	switch l.Where {
	case "tool":
		return answer("tools/list", `{"tools":[{"name":"tool","description":`+text+
			`,"inputSchema":{"type":"object"}}]}`)
	case "parameter":
		return answer("tools/list",
			`{"tools":[{"name":"tool","inputSchema":{"type":"object","properties":{"note":{"type":"string","description":`+text+`}}}}]}`)
	case "instructions":
		return answer("initialize",
			`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"},"instructions":`+text+`}`)
	}
	return answer("tools/call", `{"content":[{"type":"text","text":`+text+`}]}`)
}

func answer(method, result string) *mcp.Message {
	m := mcp.NewResponse("1", []byte(result))
	m.Direction, m.Method, m.Server = mcp.ToClient, method, "demo"
	return m
}

func stageOf(t testing.TB, config string) sdk.Stage {
	t.Helper()
	s, err := Plugin().New([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func inspect(t testing.TB, s sdk.Stage, m *mcp.Message) sdk.Verdict {
	t.Helper()
	v, err := s.Inspect(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func acted(v sdk.Verdict) bool { return v.Action != pipeline.Allow }

// rate counts, by family, how many texts something was done about.
func rate(t testing.TB, rows []labelled, sensitivity string, show bool,
	wrong bool) (hit, all map[string]int) {
	hit, all = map[string]int{}, map[string]int{}
	for _, l := range rows {
		s := stageOf(t, `{"sensitivity":"`+sensitivity+`"}`)
		v := inspect(t, s, l.message())
		all[l.Family]++
		if acted(v) {
			hit[l.Family]++
		}
		if show && acted(v) == wrong {
			t.Logf("%s %s: %q %v", sensitivity, l.Family, l.Text, v.Findings)
		}
	}
	return hit, all
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// floors are the recall that was measured, rounded down: what falls below has become worse.
var floors = map[string]map[string]float64{
	"attacks.jsonl": {"relaxed": 0.80, "standard": 0.93, "strict": 0.97},
	"heldout.jsonl": {"relaxed": 0.80, "standard": 0.88, "strict": 0.97},
}

func TestRecallOnLabelledAttacks(t *testing.T) {
	for _, name := range []string{"attacks.jsonl", "heldout.jsonl", "fresh.jsonl", "unseen.jsonl"} {
		rows := lines[labelled](t, name)
		for _, sensitivity := range []string{"relaxed", "standard", "strict"} {
			hit, all := rate(t, rows, sensitivity, testing.Verbose() && sensitivity == "standard" &&
				name == os.Getenv("SHOW"), false)
			var b strings.Builder
			for _, f := range slices.Sorted(maps.Keys(all)) {
				fmt.Fprintf(&b, " %s %d/%d", f, hit[f], all[f])
			}
			recall := float64(sum(hit)) / float64(sum(all))
			t.Logf("%s, %s: %d of %d (%.2f):%s", name, sensitivity, sum(hit), sum(all), recall,
				b.String())
			if recall < floors[name][sensitivity] {
				t.Errorf("%s, %s: recall is %.2f, was %.2f", name, sensitivity, recall,
					floors[name][sensitivity])
			}
		}
	}
}

func TestFalsePositivesOnLabelledTexts(t *testing.T) {
	for _, name := range []string{"benign.jsonl", "benign-heldout.jsonl"} {
		rows := lines[labelled](t, name)
		for _, sensitivity := range []string{"relaxed", "standard", "strict"} {
			hit, all := rate(t, rows, sensitivity, testing.Verbose() && sensitivity == "standard" &&
				name == os.Getenv("SHOW"), true)
			t.Logf("%s, %s: %d of %d: %v", name, sensitivity, sum(hit), sum(all), hit)
		}
	}
}

// server is what a published server says of itself.
type server struct {
	Server       string         `json:"server"`
	Version      string         `json:"version"`
	Licence      string         `json:"licence"`
	Instructions string         `json:"instructions"`
	Result       jsontext.Value `json:"result"`
}

func TestFalsePositivesOnPublishedServers(t *testing.T) {
	servers := lines[server](t, "servers.jsonl")
	for _, sensitivity := range []string{"relaxed", "standard", "strict"} {
		s := stageOf(t, `{"sensitivity":"`+sensitivity+`"}`)
		tools, hidden, instructions := 0, 0, 0
		for _, x := range servers {
			m := answer("tools/list", string(x.Result))
			m.Server = x.Server
			v := inspect(t, s, m)
			tools += m.Len("/tools")
			if v.Action == pipeline.Deny {
				hidden += m.Len("/tools")
				t.Logf("%s: %s: denied: %s", sensitivity, x.Server, v.Reason)
			} else {
				hidden += len(v.Hide)
			}
			if len(v.Hide) > 0 {
				t.Logf("%s: %s: %v %s", sensitivity, x.Server, v.Hide, v.Reason)
				if os.Getenv("SHOW") != "" {
					for _, f := range v.Findings {
						raw, _ := m.Get(f.Pointer)
						t.Logf("    %v %.900s", f, raw)
					}
				}
			}
			if x.Instructions != "" {
				v := inspect(t, s, labelled{Where: "instructions", Text: x.Instructions}.message())
				if acted(v) {
					instructions++
					t.Logf("%s: %s: its instructions: %s %v", sensitivity, x.Server, v.Reason,
						v.Findings)
				}
			}
		}
		t.Logf("%s: %d of %d tools of %d servers hidden (%.2f %%), %d instructions", sensitivity,
			hidden, tools, len(servers), 100*float64(hidden)/float64(tools), instructions)
		if sensitivity == "standard" && (float64(hidden) > 0.01*float64(tools) ||
			instructions > 0) {
			t.Errorf("%d of %d tools hidden, and %d instructions: more than one in a hundred",
				hidden, tools, instructions)
		}
	}
}

// documents are the texts of a folder, in results of at most size bytes.
func documents(dir string, size int, extensions ...string) (texts []labelled) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains(extensions, filepath.Ext(path)) {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for text := strings.ToValidUTF8(string(raw), ""); text != ""; {
			n := min(len(text), size)
			texts = append(texts, labelled{Family: path, Where: "result",
				Text: strings.ToValidUTF8(text[:n], "")})
			text = text[n:]
		}
		return nil
	})
	return texts
}

func TestFalsePositivesOnDocumentation(t *testing.T) {
	root := goroot(t)
	docs := []string{"../../../../shared/docs", filepath.Join(root, "doc"), filepath.Join(root,
		"api")}
	code := []string{filepath.Join(root, "src/net"), filepath.Join(root, "src/crypto"),
		filepath.Join(root, "src/cmd/go/internal")}
	for _, c := range []struct {
		name string
		dirs []string
		size int
		most float64 // of texts that are refused, in standard
	}{
		{"documentation, sections of 4 KiB", docs, 4 << 10, 0.01},
		// there are few: the two that list attacks are refused
		{"documentation, whole", docs, 1 << 20, 1},
		{"Go code, whole files", code, 1 << 20, 0.01},
	} {
		var texts []labelled
		for _, dir := range c.dirs {
			texts = append(texts, documents(dir, c.size, ".md", ".html", ".txt", ".go")...)
		}
		if len(texts) == 0 {
			t.Logf("no %s here", c.name)
			continue
		}
		for _, sensitivity := range []string{"relaxed", "standard", "strict"} {
			s := stageOf(t, `{"sensitivity":"`+sensitivity+`"}`)
			hit := 0
			for _, l := range texts {
				if v := inspect(t, s, l.message()); v.Action == pipeline.Deny {
					hit++
					if sensitivity == "standard" {
						t.Logf("%s: %s: %s %v", sensitivity, l.Family, v.Reason, v.Findings)
					}
				}
			}
			t.Logf("%s, %s: %d of %d refused (%.2f %%)", c.name, sensitivity, hit, len(texts),
				100*float64(hit)/float64(len(texts)))
			if sensitivity == "standard" && float64(hit) > c.most*float64(len(texts)) {
				t.Errorf("%s: %d of %d texts refused", c.name, hit, len(texts))
			}
		}
	}
}
