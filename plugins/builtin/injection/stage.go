package injection

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
	"gatekit/plugins/sdk/scan"
)

// stage judges messages. What it remembers of lists is all its state.
type stage struct {
	settings
	scorer     textScorer
	classifier Classifier // nil: none
	memory     *listMemory
}

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	switch {
	case m.Direction == mcp.ToServer:
		return s.inspectOutgoing(ctx, m)
	case m.Kind == mcp.Response && listKinds[m.Method] != "":
		return s.inspectList(ctx, m)
	}
	return s.inspectContent(ctx, m, m.Method == "initialize" || m.Method == "server/discover")
}

// inspectOutgoing judges what a client sends: whether it may use what it names, and what it says.
func (s *stage) inspectOutgoing(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if m.Kind == mcp.Request {
		if reason := s.refusal(m); reason != "" {
			return sdk.Deny(reason), nil
		}
	}
	switch s.toServer {
	case "off":
		return sdk.Allow(), nil
	case "flag":
		quiet := *s // as it is, but that nothing is done
		quiet.classifier = nil
		for f := range quiet.actions {
			if quiet.actions[f] != actionOff {
				quiet.actions[f] = actionFlag
			}
		}
		return quiet.inspectContent(ctx, m, false)
	}
	return s.inspectContent(ctx, m, false)
}

// inspectContent judges a message as a whole. meta says that its texts are a server's words about
// itself.
func (s *stage) inspectContent(ctx context.Context, m *mcp.Message,
	meta bool) (sdk.Verdict, error) {
	in := inspection{stage: s, isDefinition: meta, action: actionOff}
	var texts []scan.Text
	scan.Texts(m, func(t scan.Text) bool {
		in.inspectText(t)
		if s.classifier != nil && t.Kind == mcp.StringLeaf {
			texts = append(texts, t)
		}
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err
	}
	if m.Kind == mcp.Response && in.action > actionHide {
		in.inspectAcrossBlocks(m)
	}
	in.classify(ctx, texts)

	switch {
	case in.action == actionHide && meta && in.isOnlyAt("/instructions"):
		edits := []mcp.Edit{mcp.Remove("/instructions")}
		cuts := in.cuts[:0]
		for _, c := range in.cuts {
			if c.Text.Pointer() != "/instructions" {
				cuts = append(cuts, c)
			}
		}
		more, err := scan.Redact(m, cuts)
		if err != nil || len(more) == 1 && more[0].Pointer == "" {
			return sdk.Deny(in.reason(), in.findings...), err
		}
		return sdk.Modify(in.reason(), append(edits, more...), in.findings...), nil
	case in.action <= actionHide:
		return sdk.Deny(in.reason(), in.findings...), nil
	case len(in.cuts) > 0:
		edits, err := scan.Redact(m, in.cuts)
		if err != nil {
			return sdk.Verdict{}, err
		}
		return sdk.Modify(in.reason(), edits, in.findings...), nil
	}
	return sdk.Verdict{Action: pipeline.Allow, Findings: in.findings}, nil
}

// maxFindings is how many findings one message has at most.
const maxFindings = 100

// inspection is the judging of one message, or of one item of a list.
type inspection struct {
	stage        *stage
	isDefinition bool
	base         string          // pointer of the item in the message; "" for the message
	namePointers map[string]bool // pointers of texts that are names: those cannot be stripped
	// of an item: the best hit of each rule, wherever it is; nil for a message
	bestHits map[int]hit
	action   action            // the strictest so far
	families [numFamilies]bool // the families behind action
	pointers []string          // pointers of what is to be hidden or denied

	cuts     []scan.Redaction
	findings []pipeline.Finding
}

func (in *inspection) addFinding(f family, name, pointer string) {
	x := pipeline.Finding{Type: f.String() + "/" + name, Pointer: in.base + pointer}
	if len(in.findings) < maxFindings && (len(in.findings) == 0 ||
		in.findings[len(in.findings)-1] != x) {
		in.findings = append(in.findings, x)
	}
}

// escalate asks for an action because of a family.
func (in *inspection) escalate(a action, f family, pointer string) {
	in.action = stricter(in.action, a)
	in.families[f] = true
	if a <= actionHide {
		in.pointers = append(in.pointers, pointer)
	}
}

// isOnlyAt says whether all that is to be hidden is at the pointer.
func (in *inspection) isOnlyAt(pointer string) bool {
	for _, p := range in.pointers {
		if p != pointer {
			return false
		}
	}
	return len(in.pointers) > 0
}

// reason is for the audit: families, never content.
func (in *inspection) reason() string {
	var names []string
	for f, is := range in.families {
		if is {
			names = append(names, family(f).String())
		}
	}
	return "prompt injection: " + strings.Join(names, ", ")
}

// Names of members are read from this length on: most are the protocol's own.
const minNameLength = 12

// inspectText judges one text.
func (in *inspection) inspectText(t scan.Text) {
	if t.Kind == mcp.NumberLeaf {
		return
	}
	secret := in.inspectHidden(t)
	if t.Kind == mcp.NameLeaf {
		if in.bestHits != nil {
			in.inspectParameter(t)
		}
		if len(t.Value) < minNameLength {
			return
		}
	}
	if len(t.Value) < 4 {
		return
	}
	in.evaluate(t, in.stage.scorer.score(t.Value, in.isDefinition), nil, 0)
	if len(secret) >= 4 {
		in.evaluate(t, in.stage.scorer.score(secret, true), &scan.Span{From: 0, To: len(t.Value)},
			5)
	}
	eachDecoded(t, func(plain string, at scan.Span, whole bool) bool {
		more := 3 // nobody writes to people like this
		if whole {
			more = 0
		}
		in.evaluate(t, in.stage.scorer.score(plain, in.isDefinition), &at, more)
		return true
	})
}

// inspectHidden sees to the characters that are not seen, and answers what is written in them.
func (in *inspection) inspectHidden(t scan.Text) (secret string) {
	found, secret := findHidden(t.Value)
	pointer := ""
	for i, u := range found {
		a := in.stage.actions[u.family]
		if a == actionOff {
			continue
		}
		if pointer == "" {
			pointer = t.Pointer()
		}
		if i < maxFindings {
			in.addFinding(u.family, u.rule, pointer)
		}
		if a == actionStrip && in.namePointers[pointer] {
			a = actionHide
		}
		if a != actionFlag {
			in.escalate(a, u.family, pointer)
		}
		if a == actionStrip {
			in.cuts = append(in.cuts, scan.Redaction{Text: t, Span: u.Span,
				Replacement: u.replacement})
		}
	}
	return secret
}

// evaluate weighs what was read in t: in it as it stands, or, with a span, in what was written
// there in another writing. more is added to a score that is worth a finding.
func (in *inspection) evaluate(t scan.Text, r scoredText, at *scan.Span, more int) {
	if len(r.hits) == 0 {
		return
	}
	if in.bestHits != nil {
		for _, h := range r.hits {
			if old, ok := in.bestHits[h.id]; !ok || old.score < h.score {
				in.bestHits[h.id] = h
			}
		}
	}
	if r.score >= findingThreshold {
		r.score += more
	}
	if r.score < findingThreshold {
		return
	}
	pointer := t.Pointer()
	for _, h := range r.hits {
		in.addFinding(h.family, h.name, pointer)
	}
	if r.score < in.stage.threshold {
		return
	}
	a := actionOff
	for _, h := range r.hits {
		a = stricter(a, in.stage.actions[h.family])
	}
	if a >= actionFlag {
		return
	}
	if a == actionStrip && in.namePointers[pointer] {
		a = actionHide
	}
	for _, h := range r.hits {
		in.escalate(a, h.family, pointer)
	}
	if a != actionStrip {
		return
	}
	if at != nil {
		in.cuts = append(in.cuts, scan.Redaction{Text: t, Span: *at, Replacement: redactionText})
		return
	}
	for _, h := range r.allHits {
		if h.score > 0 {
			in.cuts = append(in.cuts, scan.Redaction{Text: t, Span: sentenceAround(t.Value,
				r.text.originalOffset(h.from),
				r.text.originalOffset(h.to)), Replacement: redactionText})
		}
	}
}

// redactionText stands where a sentence was taken out.
const redactionText = "[PROMPT INJECTION REDACTED by Gatekit]"

// maxSentence is how far a sentence is looked for on either side.
const maxSentence = 1000

// sentenceAround is the sentence that from and to are in.
func sentenceAround(s string, from, to int) scan.Span {
	least, most := max(0, from-maxSentence), min(len(s), to+maxSentence)
	for least < from && !utf8.RuneStart(s[least]) {
		least++
	}
	for most < len(s) && !utf8.RuneStart(s[most]) {
		most--
	}
	if i := strings.LastIndexAny(s[least:from], ".!?\n"); i >= 0 {
		least += i + 1
	}
	for least < from && s[least] == ' ' {
		least++
	}
	if i := strings.IndexAny(s[to:most], ".!?\n"); i >= 0 {
		most = to + i
	}
	return scan.Span{From: least, To: most}
}

// blockEdge is how much of each end of a block is read together with its neighbours.
const blockEdge = 400

// inspectAcrossBlocks reads blocks of content together: a sentence that is cut in two is still one
// to the model.
func (in *inspection) inspectAcrossBlocks(m *mcp.Message) {
	if m.Len("/content") < 2 {
		return
	}
	var b strings.Builder
	blocks := 0
	m.Items("/content", func(_ int, raw []byte) bool {
		text, ok := mcp.NewNotification("", raw).Text("/text")
		if !ok {
			return true
		}
		blocks++
		if len(text) > 2*blockEdge {
			text = strings.ToValidUTF8(text[:blockEdge],
				"") + "\n\n" + strings.ToValidUTF8(text[len(text)-blockEdge:], "")
		}
		b.WriteString(text)
		b.WriteByte(' ')
		return blocks < 1000
	})
	if blocks < 2 {
		return
	}
	r := in.stage.scorer.score(b.String(), in.isDefinition)
	if r.score < in.stage.threshold {
		return
	}
	for _, h := range r.hits {
		in.addFinding(h.family, h.name, "/content")
		if a := in.stage.actions[h.family]; a < actionFlag {
			in.escalate(min(a, actionHide), h.family, "/content") // there is no one place to strip
		}
	}
}

// classify asks the classifier about the texts.
func (in *inspection) classify(ctx context.Context, texts []scan.Text) {
	s := in.stage
	if s.classifier == nil || len(texts) == 0 || in.action == actionDeny {
		return
	}
	plain := make([]string, len(texts))
	for i, t := range texts {
		plain[i] = t.Value
	}
	found, err := s.findAttacks(ctx, plain)
	if err != nil {
		in.addFinding(familyClassifier, "failed", "")
		if !s.scoring.skipOnError {
			in.escalate(actionDeny, familyClassifier, "")
		}
		return
	}
	for i, is := range found {
		if !is {
			continue
		}
		pointer := texts[i].Pointer()
		in.addFinding(familyClassifier, "attack", pointer)
		if a := s.actions[familyClassifier]; a < actionFlag {
			in.escalate(a, familyClassifier, pointer)
		}
	}
}

// refusal says why a request may not be sent; "" when it may.
func (s *stage) refusal(m *mcp.Message) string {
	kind, name := usedItem(m)
	if kind == "" || name == "" {
		return ""
	}
	if f, bad := s.deceptiveName(kind, name); bad && s.actions[f] <= actionStrip {
		return fmt.Sprintf("the use of a %s whose name is hidden: %s", kind, f)
	}
	known, ok := s.memory.lookup(m.Principal, m.Server, itemID{kind, name})
	switch {
	case ok && (known.hidden || known.shadowing):
		return "the use of a " + kind + " that is hidden"
	case ok:
		return ""
	case kind == kindResource:
		return s.templateRefusal(m, name)
	case !s.allowUnlisted && (kind == kindTool || kind == kindPrompt):
		return "the use of a " + kind + " that was not listed (unlisted = \"deny\")"
	}
	return ""
}

// templateRefusal judges a resource that was not listed itself: it is hidden if only a hidden
// template names it.
func (s *stage) templateRefusal(m *mcp.Message, uri string) string {
	hidden, open := false, false
	s.memory.eachTemplate(m.Principal, m.Server, func(template string, is bool) {
		if matchesTemplate(template, uri) {
			hidden, open = hidden || is, open || !is
		}
	})
	if hidden && !open {
		return "the use of a resource that only a hidden template names"
	}
	return ""
}
