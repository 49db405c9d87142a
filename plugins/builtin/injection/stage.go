package injection

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/uris"
	"gatekit/plugins/sdk"
	"gatekit/plugins/sdk/scan"
)

// stage is the plugin with one configuration. Its only mutable state is the memory of lists, which
// has a lock of its own, and a pool, so that many goroutines may use a stage.
type stage struct {
	settings
	scorer     textScorer
	classifier Classifier // nil for none
	memory     *listMemory
	scratches  *sync.Pool // of *scratch
}

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	switch {
	case m.Direction == mcp.ToServer:
		return s.inspectOutgoing(ctx, m)
	case m.Kind == mcp.Response && listKinds[m.Method] != "":
		return s.inspectList(ctx, m)
	}
	isDefinition := m.Method == "initialize" || m.Method == "server/discover" ||
		m.Method == "skills/get"
	return s.inspectContent(ctx, m, isDefinition)
}

// inspectOutgoing inspects a message of a client. First it checks whether the client may use the
// item that the message names. Then it inspects the texts of the message.
func (s *stage) inspectOutgoing(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	v, err := s.inspectOutgoingTexts(ctx, m)
	if err != nil || v.Action == pipeline.Deny || m.Kind != mcp.Request {
		return v, err
	}
	reason, isHidden := s.refusal(m)
	switch {
	case reason == "":
		return v, nil
	case isHidden && v.Action == pipeline.Allow:
		// An operator may allow the item. So its use is inspected, too.
		v.Findings = append(v.Findings, pipeline.Finding{Type: pipeline.FindingHidden})
	}
	return sdk.Deny(reason, v.Findings...), nil
}

// inspectOutgoingTexts inspects the texts of a message of a client.
func (s *stage) inspectOutgoingTexts(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	switch s.toServer {
	case "off":
		return sdk.Allow(), nil
	case "flag":
		return s.flagging().inspectContent(ctx, m, false)
	}
	return s.inspectContent(ctx, m, false)
}

// flagging returns a copy of the stage that only records findings, without the classifier.
func (s *stage) flagging() *stage {
	flagging := *s
	flagging.classifier = nil
	for f := range flagging.actions {
		if flagging.actions[f] != actionOff {
			flagging.actions[f] = actionFlag
		}
	}
	return &flagging
}

// inspectContent inspects a message as a whole. isDefinition is true if its texts are a server's
// description of itself.
func (s *stage) inspectContent(ctx context.Context, m *mcp.Message,
	isDefinition bool) (sdk.Verdict, error) {
	words, release := s.newScratch()
	defer release()
	in := inspection{stage: s, isDefinition: isDefinition, action: actionOff,
		hidesSentences: !isDefinition && m.Direction == mcp.ToClient, scratch: words}
	if in.hidesSentences && m.Kind != mcp.Request {
		in.result = m
	}
	var texts []scan.Text // for the classifier
	blocks, pages := newBlockReader(m), appPages(m)
	scan.Texts(m, func(t scan.Text) bool {
		if pages != nil && pages[t.Pointer()] {
			page := inspection{stage: s.flagging(), scratch: in.scratch}
			page.inspectText(t)
			in.addFindings(page.findings)
			return ctx.Err() == nil
		}
		in.inspectText(t)
		if blocks != nil {
			blocks.add(t)
		}
		if s.classifier != nil && t.Kind == mcp.StringLeaf {
			texts = append(texts, t)
		}
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err
	}
	in.inspectBlocks(blocks)
	in.inspectSplit(m, &words.edges)
	in.classify(ctx, texts)

	switch {
	case in.action == actionHide && isDefinition && in.isOnlyAt("/instructions"):
		return in.removeInstructions(m)
	case in.action <= actionHide:
		return sdk.Deny(in.reason(), in.findings...), nil
	case len(in.redactions) > 0:
		edits, err := scan.Redact(m, in.redactions)
		if err != nil {
			return sdk.Verdict{}, err
		}
		return sdk.Modify(in.reason(), edits, in.findings...), nil
	}
	return sdk.Verdict{Action: pipeline.Allow, Findings: in.findings}, nil
}

// removeInstructions returns the verdict that removes a server's instructions and makes the other
// redactions.
func (in *inspection) removeInstructions(m *mcp.Message) (sdk.Verdict, error) {
	others := in.redactions[:0]
	for _, r := range in.redactions {
		if r.Text.Pointer() != "/instructions" {
			others = append(others, r)
		}
	}
	edits, err := scan.Redact(m, others)
	// A single edit without a pointer renames members: it replaces the whole body, with the
	// instructions.
	if err != nil || len(edits) == 1 && edits[0].Pointer == "" {
		return sdk.Deny(in.reason(), in.findings...), err
	}
	edits = append([]mcp.Edit{mcp.Remove("/instructions")}, edits...)
	return sdk.Modify(in.reason(), edits, in.findings...), nil
}

// refusal returns the reason to deny the use of an item by a request, or "" if there is none.
// isHidden is true if the reason is that the item is hidden from its list.
func (s *stage) refusal(m *mcp.Message) (reason string, isHidden bool) {
	kind, name := usedItem(m)
	if kind == "" || name == "" {
		return "", false
	}
	if f, bad := s.deceptiveName(kind, name); bad && s.actions[f] <= actionStrip {
		return fmt.Sprintf("the name of the %s is deceptive (%s)", kind, f), true
	}
	record, listed := s.memory.lookup(m.Principal.ID(), m.Server, newItemID(kind, name))
	switch {
	case listed && (record.hidden || record.shadowing):
		return "the " + kind + " is hidden because of its definition: see the findings of its list",
			true
	case listed:
		return "", false
	case kind == kindResource && s.memory.isInHiddenSkill(m.Principal.ID(), m.Server,
		uris.Canonical(name)):
		return "the skill of this file is hidden because of its definition: see the findings of " +
			"its list", true
	case kind == kindResource:
		return s.templateRefusal(m, name), true
	case !s.allowUnlisted && (kind == kindTool || kind == kindPrompt):
		return "the " + kind + " has not been listed, and the option unlisted is \"deny\"",
			false
	}
	return "", false
}

// templateRefusal returns the reason to deny the use of a resource that was not listed, if only
// hidden templates match its URI. Otherwise it returns "".
func (s *stage) templateRefusal(m *mcp.Message, uri string) string {
	hidden, shown := s.memory.templates(m.Principal.ID(), m.Server)
	if len(hidden) == 0 {
		return ""
	}
	if len(uri) > maxMatchedURI {
		return "the URI is too long to compare it with the resource templates that are hidden"
	}
	canonical := uris.Canonical(uri)
	matches := func(template string) bool {
		return len(template) <= maxMatchedURI && matchesTemplate(template, canonical)
	}
	mayMatch := func(template string) bool {
		return len(template) > maxMatchedURI || matches(template)
	}
	if slices.ContainsFunc(hidden, mayMatch) && !slices.ContainsFunc(shown, matches) {
		return "the resource matches only a resource template that is hidden"
	}
	return ""
}
