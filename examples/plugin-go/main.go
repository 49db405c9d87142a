// Codenames is a plugin for Gatekit that protects the names of unannounced projects. A tool call
// that mentions a code name is denied. In a tool's result, "[codename]" replaces the name.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
	"gatekit/plugins/sdk/scan"
)

func main() { sdk.Serve(plugin()) }

func plugin() sdk.Plugin {
	return sdk.Plugin{
		Name:    "codenames",
		Version: "1.0.0",
		Doc:     "protects code names",
		Wants: pipeline.Wants{Methods: []string{"tools/call"}, Kinds: []mcp.Kind{mcp.Request,
			mcp.Response, mcp.Error}},
		Needs: sdk.Needs{Body: true},
		Schema: []byte(`{
			"type": "object",
			"additionalProperties": false,
			"required": ["words"],
			"properties": {
				"words": {
					"description": "code names to protect; case is ignored",
					"type": "array",
					"minItems": 1,
					"items": {"type": "string", "minLength": 3}
				}
			}
		}`),
		New: func(config []byte) (sdk.Stage, error) {
			words, err := parseConfig(config)
			if err != nil {
				return nil, err
			}
			return stage{compile(words)}, nil
		},
		SelfTest: func(config []byte) *sdk.SelfTest {
			words, err := parseConfig(config)
			if err != nil {
				return nil
			}
			m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"canary","arguments":{"text":`+
				string(mcp.Quote(words[0]))+`}}`))
			m.Direction, m.Server, m.Name = mcp.ToServer, "canary", "canary"
			return &sdk.SelfTest{Description: "a code name in a tool's arguments", Message: m,
				Action: pipeline.Deny}
		},
	}
}

// parseConfig returns the words of a configuration. The SDK has already checked the configuration
// against the schema.
func parseConfig(config []byte) ([]string, error) {
	var c struct {
		Words []string `json:"words"`
	}
	err := json.Unmarshal(config, &c)
	return c.Words, err
}

// compile returns a pattern that matches each of the words. The longest words come first. So "Blue
// Heron" is replaced as a whole even if "Blue" is a word, too.
func compile(words []string) *regexp.Regexp {
	var patterns []string
	for _, w := range words {
		patterns = append(patterns, regexp.QuoteMeta(w))
	}
	slices.SortFunc(patterns, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return regexp.MustCompile("(?i)" + strings.Join(patterns, "|"))
}

// stage is the plugin with a configuration. Inspect is called from many goroutines at once.
type stage struct{ words *regexp.Regexp }

// Inspect implements sdk.Stage. Reasons and findings do not hold the code name, because they are
// recorded.
func (s stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	var redactions []scan.Redaction
	var findings []pipeline.Finding
	denyReason := ""
	scan.Texts(m, func(t scan.Text) bool {
		pointer := t.Pointer()
		switch spans := s.words.FindAllStringIndex(t.Value, -1); {
		case len(spans) == 0 || t.Kind == mcp.NumberLeaf:
		case t.Kind == mcp.NameLeaf:
			// The name is not replaced, since the client reads the member by its name. The finding
			// points to the object around the member, since the member's pointer has the code name.
			denyReason, pointer = "the name of a member holds a code name",
				pointer[:strings.LastIndexByte(pointer, '/')]
			findings = append(findings, pipeline.Finding{Type: "codename", Pointer: pointer})
		case m.Kind == mcp.Request:
			denyReason = "the arguments hold a code name"
			findings = append(findings, pipeline.Finding{Type: "codename", Pointer: pointer})
		default:
			findings = append(findings, pipeline.Finding{Type: "codename", Pointer: pointer})
			for _, span := range spans {
				redactions = append(redactions, scan.Redaction{Text: t,
					Span: scan.Span{From: span[0], To: span[1]}, Replacement: "[codename]"})
			}
		}
		return denyReason == "" && ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err // after an error, the message is denied
	}
	if denyReason != "" {
		return sdk.Deny(denyReason, findings...), nil
	}
	edits, err := scan.Redact(m, redactions)
	if err != nil {
		return sdk.Verdict{}, err
	}
	reason := ""
	if len(edits) > 0 {
		reason = "code names were cut out"
	}
	return sdk.Modify(reason, edits, findings...), nil
}
