package injection

import (
	"bufio"
	"os"
	"path/filepath"
	"testing"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// corpusLines calls yield for each parsed line of a file of the corpus of test/corpus. The folder
// of the corpus is in the environment variable CORPUS. Without it, the test is skipped.
func corpusLines[T any](t *testing.T, name string, yield func(T)) {
	t.Helper()
	dir := os.Getenv("CORPUS")
	if dir == "" {
		t.Skip("CORPUS does not name the folder of a corpus")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var row T
		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		yield(row)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestFalsePositivesOnCorpus measures how many definitions of published servers are acted on or
// flagged, and how many READMEs are changed, denied or flagged if they are results. With SHOW set,
// it logs the findings.
func TestFalsePositivesOnCorpus(t *testing.T) {
	show := os.Getenv("SHOW") != ""
	s := newTestStage(t, `{}`)
	var count struct {
		servers, affected, flaggedServers, tools, acted, flagged, other, otherActed int
	}
	corpusLines(t, "servers.jsonl", func(x struct {
		Package           string           `json:"package"`
		Instructions      string           `json:"instructions"`
		Tools             []jsontext.Value `json:"tools"`
		Prompts           []jsontext.Value `json:"prompts"`
		Resources         []jsontext.Value `json:"resources"`
		ResourceTemplates []jsontext.Value `json:"resourceTemplates"`
	}) {
		count.servers++
		affected, flagged := false, count.flagged
		list := func(method, member string, items []jsontext.Value) {
			for _, item := range items {
				raw := `{"` + member + `":[` + string(item) + `]}`
				m := from(x.Package, response(method, raw))
				m.Principal = identity.FromID(x.Package)
				v := inspect(t, s, m)
				acted := isActedOn(v)
				affected = affected || acted
				switch {
				case member == "tools":
					count.tools++
					if acted {
						count.acted++
					} else if len(v.Findings) > 0 {
						count.flagged++
					}
				default:
					count.other++
					if acted {
						count.otherActed++
					}
				}
				if show && len(v.Findings) > 0 {
					name, _ := mcp.NewNotification("", item).Text("/name")
					t.Logf("SHOW %s %s %s acted=%v %v", x.Package, member, name, acted, v.Reason)
					for _, f := range v.Findings {
						text, _ := mcp.NewNotification("", []byte(raw)).Get(f.Pointer)
						t.Logf("    %s %s %.600s", f.Type, f.Pointer, text)
					}
				}
			}
		}
		list("tools/list", "tools", x.Tools)
		list("prompts/list", "prompts", x.Prompts)
		list("resources/list", "resources", x.Resources)
		list("resources/templates/list", "resourceTemplates", x.ResourceTemplates)
		if x.Instructions != "" {
			count.other++
			v := inspect(t, s, labelled{Where: "instructions", Text: x.Instructions}.message())
			if isActedOn(v) {
				count.otherActed++
				affected = true
			}
			if show && len(v.Findings) > 0 {
				t.Logf("SHOW %s instructions acted=%v %v %s", x.Package, isActedOn(v), v.Findings,
					x.Instructions)
			}
		}
		if affected {
			count.affected++
		}
		if count.flagged > flagged {
			count.flaggedServers++
		}
	})
	t.Logf("definitions: %+v", count)
	var readmes struct{ texts, changed, denied, flagged int }
	corpusLines(t, "readmes.jsonl", func(x struct {
		Package string `json:"package"`
		Path    string `json:"path"`
		Text    string `json:"text"`
	}) {
		readmes.texts++
		v := inspect(t, s, result(x.Text))
		switch {
		case v.Action == pipeline.Deny:
			readmes.denied++
		case isActedOn(v):
			readmes.changed++
		case len(v.Findings) > 0:
			readmes.flagged++
		}
		if show && len(v.Findings) > 0 {
			t.Logf("SHOW %s %s acted=%v %s", x.Package, x.Path, isActedOn(v), v.Reason)
			scored := s.(*stage).scorer.score(x.Text, false, &scratch{})
			for _, h := range scored.hits {
				from, to := scored.text.originalOffset(h.from), scored.text.originalOffset(h.to)
				t.Logf("    %s/%s %d %q", h.family, h.name, h.score,
					x.Text[max(0, from-60):min(len(x.Text), to+60)])
			}
		}
	})
	t.Logf("READMEs as results: %+v", readmes)
}
