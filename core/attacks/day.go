package attacks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// dayRounds is how often an honest day calls each tool.
const dayRounds = 15

// Day returns an honest day of the scripted server, as cases to be played in their order: a policy
// can be learned from its records. The day calls all tools that cases call, those of attacks too,
// so that a learned policy cannot stop an attack only because nobody used its tool. The values of
// the arguments are not those of cases. The server asks for a form and for the model, and has
// skills.
func Day(all []Case) ([]Case, error) {
	tools, err := calledTools(all)
	if err != nil {
		return nil, err
	}
	listed := make([]jsontext.Value, 0, len(tools))
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		listed = append(listed, tools[name].definition)
	}
	list, err := json.Marshal(map[string]any{"tools": listed})
	if err != nil {
		return nil, err
	}
	server := map[string]string{"tools/list": string(list), "resources/list": `{"resources":[]}`,
		"tools/call": `{"content":[{"type":"text","text":"Done."}]}`}
	var day []Case
	for round := range dayRounds {
		work := Case{Name: fmt.Sprintf("work-%d", round+1), Server: server,
			Requests: []Request{{"tools/list", "{}"}}}
		for _, name := range slices.Sorted(maps.Keys(tools)) {
			arguments, err := json.Marshal(tools[name].values(round), json.Deterministic(true))
			if err != nil {
				return nil, err
			}
			work.Requests = append(work.Requests, Request{"tools/call",
				fmt.Sprintf(`{"name":%s,"arguments":%s}`, quote(name), arguments)})
		}
		day = append(day, work)
	}
	for _, ask := range []struct{ tool, method, params string }{
		{"form_address", "elicitation/create", `{"mode":"form","message":"Which branch?",` +
			`"requestedSchema":{"type":"object","properties":{"branch":{"type":"string"}}}}`},
		{"think_summary", "sampling/createMessage", `{"messages":[{"role":"user","content":` +
			`{"type":"text","text":"Name the three largest files of this list."}}],` +
			`"maxTokens":100}`},
	} {
		day = append(day, Case{Name: "ask-" + ask.tool, Server: server,
			Requests: []Request{{"tools/list", "{}"}, {"tools/call",
				fmt.Sprintf(`{"name":%s,"arguments":{"n":"3"}}`, quote(ask.tool))}},
			Ask: &Request{ask.method, ask.params}})
	}
	for _, uri := range []string{"skill://review/SKILL.md", "skill://tidy/SKILL.md"} {
		read := maps.Clone(server)
		read["resources/read"] = fmt.Sprintf(`{"contents":[{"uri":%s,"mimeType":"text/markdown",`+
			`"text":"# Work\n\nRead the change, then its tests."}]}`, quote(uri))
		day = append(day, Case{Name: "skill", Server: read, Requests: []Request{{"resources/read",
			fmt.Sprintf(`{"uri":%s}`, quote(uri))}}})
	}
	return day, nil
}

// calledTool is a tool that a case calls.
type calledTool struct {
	definition jsontext.Value
	properties map[string]property // of the arguments
}

// property has the values that the definition of a tool offers for an argument.
type property struct {
	Enum  []string  `json:"enum"`
	Items *property `json:"items"`
}

// calledTools returns the tools that the cases call, by their names. Honest cases may use arguments
// that the definition of the tool does not name.
func calledTools(all []Case) (map[string]*calledTool, error) {
	tools := map[string]*calledTool{}
	for _, c := range all {
		var list struct {
			Tools []jsontext.Value `json:"tools"`
		}
		if text := c.Server["tools/list"]; text != "" {
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				return nil, fmt.Errorf("%s: tools/list: %w", c.Name, err)
			}
		}
		for _, r := range c.Requests {
			if r.Method != "tools/call" {
				continue
			}
			var params struct {
				Name      string                    `json:"name"`
				Arguments map[string]jsontext.Value `json:"arguments"`
			}
			if err := json.Unmarshal([]byte(r.Params), &params); err != nil {
				return nil, fmt.Errorf("%s: tools/call: %w", c.Name, err)
			}
			for _, raw := range list.Tools {
				var definition struct {
					Name        string `json:"name"`
					InputSchema struct {
						Properties map[string]property `json:"properties"`
					} `json:"inputSchema"`
				}
				if err := json.Unmarshal(raw, &definition); err != nil {
					return nil, fmt.Errorf("%s: tools/list: %w", c.Name, err)
				}
				if definition.Name != params.Name {
					continue
				}
				t := &calledTool{definition: raw,
					properties: definition.InputSchema.Properties}
				if t.properties == nil {
					t.properties = map[string]property{}
				}
				for name := range params.Arguments {
					if _, known := t.properties[name]; !known && c.Honest {
						t.properties[name] = property{}
					}
				}
				tools[params.Name] = t
			}
		}
	}
	return tools, nil
}

// The values of a day that no definition names.
var (
	dayWords = []string{"harbor", "ledger", "Lena", "ticket", "forecast", "archive", "Omar",
		"invoice", "canvas", "budget", "market", "bridge", "river"}
	daySentences = []string{
		"The report is in notes/2026/summary.md, see page 3.",
		"Sam's list: three items (two are new), one 'old' file.",
		"Please move it to the archive, then tell the others.",
		"We use a link to ../img/logo.png there. It works!",
	}
	dayPaths = []string{"reports/2026/summary %d.txt", "reports/v2.%d/50%% of it.txt",
		"reports/q3..q4/notes-%d.txt", "reports/drafts/plan %d.txt"}
	dayURLs = []string{"https://example.com/news?page=%d", "https://docs.example.com/guide/%d",
		"https://example.com/list?sort=name&page=%d"}
)

// values returns the arguments of a call in a round.
func (t *calledTool) values(round int) map[string]any {
	values := map[string]any{}
	for name, p := range t.properties {
		switch {
		case len(p.Enum) > 0:
			values[name] = p.Enum[round%len(p.Enum)]
		case p.Items != nil && len(p.Items.Enum) > 0:
			values[name] = []string{p.Items.Enum[round%len(p.Items.Enum)]}
		case name == "path":
			values[name] = fmt.Sprintf(dayPaths[round%len(dayPaths)], round+1)
		case name == "url":
			values[name] = fmt.Sprintf(dayURLs[round%len(dayURLs)], round+1)
		case name == "text":
			values[name] = daySentences[round%len(daySentences)]
		case name == "n", name == "a":
			values[name] = fmt.Sprint(round * 3)
		default:
			values[name] = dayWords[round%len(dayWords)]
		}
	}
	return values
}
