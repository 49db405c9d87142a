// Codenames is a plugin for Gatekit that keeps the names of unannounced projects inside: a tool
// call that mentions one is refused, and where a tool's answer does, a placeholder takes its place.
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
		Doc:     "keeps code names inside",
		Wants: pipeline.Wants{Methods: []string{"tools/call"}, Kinds: []mcp.Kind{mcp.Request,
			mcp.Response, mcp.Error}},
		Needs: sdk.Needs{Body: true},
		Schema: []byte(`{
			"type": "object",
			"additionalProperties": false,
			"required": ["words"],
			"properties": {
				"words": {"description": "what nobody outside may read, in any case", "type": "array", "minItems": 1, "items": {"type": "string", "minLength": 3}}
			}
		}`),
		New: func(config []byte) (sdk.Stage, error) {
			words, err := read(config)
			if err != nil {
				return nil, err
			}
			return stage{matcher(words)}, nil
		},
		SelfTest: func(config []byte) *sdk.SelfTest {
			words, err := read(config)
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

// read takes a configuration apart, which was held against the schema before.
func read(config []byte) ([]string, error) {
	var c struct {
		Words []string `json:"words"`
	}
	err := json.Unmarshal(config, &c)
	return c.Words, err
}

// matcher finds all words. The longest come first, so that of "Blue Heron" and "Blue" nothing is
// left.
func matcher(words []string) *regexp.Regexp {
	var all []string
	for _, w := range words {
		all = append(all, regexp.QuoteMeta(w))
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return regexp.MustCompile("(?i)" + strings.Join(all, "|"))
}

// stage judges by one configuration. It is asked from many goroutines at once.
type stage struct{ words *regexp.Regexp }

// Inspect implements sdk.Stage. Neither reasons nor findings say which word it was: they are
// recorded.
func (s stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	var cuts []scan.Redaction
	var findings []pipeline.Finding
	refused := ""
	scan.Texts(m, func(t scan.Text) bool {
		at := t.Pointer()
		switch spans := s.words.FindAllStringIndex(t.Value, -1); {
		case len(spans) == 0 || t.Kind == mcp.NumberLeaf:
		case t.Kind == mcp.NameLeaf: // which others go by: it is not ours to change
			refused, at = "the name of a member holds a code name",
				at[:strings.LastIndexByte(at, '/')]
			findings = append(findings, pipeline.Finding{Type: "codename", Pointer: at})
		case m.Kind == mcp.Request:
			refused = "the arguments hold a code name"
			findings = append(findings, pipeline.Finding{Type: "codename", Pointer: at})
		default:
			findings = append(findings, pipeline.Finding{Type: "codename", Pointer: at})
			for _, span := range spans {
				cuts = append(cuts, scan.Redaction{Text: t, Span: scan.Span{From: span[0],
					To: span[1]},
					Replacement: "[codename]"})
			}
		}
		return refused == "" && ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err // which denies
	}
	if refused != "" {
		return sdk.Deny(refused, findings...), nil
	}
	edits, err := scan.Redact(m, cuts)
	if err != nil {
		return sdk.Verdict{}, err
	}
	reason := ""
	if len(edits) > 0 {
		reason = "code names were cut out"
	}
	return sdk.Modify(reason, edits, findings...), nil
}
