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
	reader     reader
	classifier Classifier // nil: none
	memory     *memory
}

// Inspect implements sdk.Stage.
func (s *stage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	switch {
	case m.To == mcp.ToServer:
		return s.outgoing(ctx, m)
	case m.Kind == mcp.Response && kinds[m.Method] != "":
		return s.list(ctx, m)
	}
	return s.content(ctx, m, m.Method == "initialize" || m.Method == "server/discover")
}

// outgoing judges what a client sends: whether it may use what it names, and what it says.
func (s *stage) outgoing(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	if m.Kind == mcp.Request {
		if reason := s.refused(m); reason != "" {
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
			if quiet.actions[f] != off {
				quiet.actions[f] = flagged
			}
		}
		return quiet.content(ctx, m, false)
	}
	return s.content(ctx, m, false)
}

// content judges a message as a whole. meta says that its texts are a server's words about itself.
func (s *stage) content(ctx context.Context, m *mcp.Message, meta bool) (sdk.Verdict, error) {
	in := inspection{s: s, meta: meta, action: off}
	var texts []scan.Text
	scan.Texts(m, func(t scan.Text) bool {
		in.text(t)
		if s.classifier != nil && t.Kind == mcp.String {
			texts = append(texts, t)
		}
		return ctx.Err() == nil
	})
	if err := ctx.Err(); err != nil {
		return sdk.Verdict{}, err
	}
	if m.Kind == mcp.Response && in.action > hideIt {
		in.across(m)
	}
	in.classify(ctx, texts)

	switch {
	case in.action == hideIt && meta && in.below("/instructions"):
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
	case in.action <= hideIt:
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
	s     *stage
	meta  bool
	at    string          // pointer of the item in the message; "" for the message
	names map[string]bool // pointers of texts that are names: those cannot be stripped
	// of an item: the best hit of each rule, wherever it is; nil for a message
	pooled map[int]hit
	action action         // the strictest so far
	why    [families]bool // the families behind action
	places []string       // pointers of what is to be hidden or denied

	cuts     []scan.Redaction
	findings []pipeline.Finding
}

func (in *inspection) find(f family, name, pointer string) {
	x := pipeline.Finding{Type: f.String() + "/" + name, Pointer: in.at + pointer}
	if len(in.findings) < maxFindings && (len(in.findings) == 0 ||
		in.findings[len(in.findings)-1] != x) {
		in.findings = append(in.findings, x)
	}
}

// raise asks for an action because of a family.
func (in *inspection) raise(a action, f family, pointer string) {
	in.action = stricter(in.action, a)
	in.why[f] = true
	if a <= hideIt {
		in.places = append(in.places, pointer)
	}
}

// below says whether all that is to be hidden is at the pointer.
func (in *inspection) below(pointer string) bool {
	for _, p := range in.places {
		if p != pointer {
			return false
		}
	}
	return len(in.places) > 0
}

// reason is for the audit: families, never content.
func (in *inspection) reason() string {
	var names []string
	for f, is := range in.why {
		if is {
			names = append(names, family(f).String())
		}
	}
	return "prompt injection: " + strings.Join(names, ", ")
}

// Names of members are read from this length on: most are the protocol's own.
const shortestName = 12

// text judges one text.
func (in *inspection) text(t scan.Text) {
	if t.Kind == mcp.Number {
		return
	}
	secret := in.unseen(t)
	if t.Kind == mcp.Name {
		if in.pooled != nil {
			in.parameter(t)
		}
		if len(t.Value) < shortestName {
			return
		}
	}
	if len(t.Value) < 4 {
		return
	}
	in.judge(t, in.s.reader.read(t.Value, in.meta), nil, 0)
	if len(secret) >= 4 {
		in.judge(t, in.s.reader.read(secret, true), &scan.Span{From: 0, To: len(t.Value)}, 5)
	}
	decoded(t, func(plain string, at scan.Span, whole bool) bool {
		more := 3 // nobody writes to people like this
		if whole {
			more = 0
		}
		in.judge(t, in.s.reader.read(plain, in.meta), &at, more)
		return true
	})
}

// unseen sees to the characters that are not seen, and answers what is written in them.
func (in *inspection) unseen(t scan.Text) (secret string) {
	found, secret := findUnseen(t.Value)
	pointer := ""
	for i, u := range found {
		a := in.s.actions[u.family]
		if a == off {
			continue
		}
		if pointer == "" {
			pointer = t.Pointer()
		}
		if i < maxFindings {
			in.find(u.family, u.rule, pointer)
		}
		if a == strip && in.names[pointer] {
			a = hideIt
		}
		if a != flagged {
			in.raise(a, u.family, pointer)
		}
		if a == strip {
			in.cuts = append(in.cuts, scan.Redaction{Text: t, Span: u.Span, Replacement: u.with})
		}
	}
	return secret
}

// judge weighs what was read in t: in it as it stands, or, with a span, in what was written there
// in another writing. more is added to a score that is worth a finding.
func (in *inspection) judge(t scan.Text, r reading, at *scan.Span, more int) {
	if len(r.hits) == 0 {
		return
	}
	if in.pooled != nil {
		for _, h := range r.hits {
			if old, ok := in.pooled[h.id]; !ok || old.score < h.score {
				in.pooled[h.id] = h
			}
		}
	}
	if r.score >= noticed {
		r.score += more
	}
	if r.score < noticed {
		return
	}
	pointer := t.Pointer()
	for _, h := range r.hits {
		in.find(h.family, h.name, pointer)
	}
	if r.score < in.s.threshold {
		return
	}
	a := off
	for _, h := range r.hits {
		a = stricter(a, in.s.actions[h.family])
	}
	if a >= flagged {
		return
	}
	if a == strip && in.names[pointer] {
		a = hideIt
	}
	for _, h := range r.hits {
		in.raise(a, h.family, pointer)
	}
	if a != strip {
		return
	}
	if at != nil {
		in.cuts = append(in.cuts, scan.Redaction{Text: t, Span: *at, Replacement: removed})
		return
	}
	for _, h := range r.all {
		if h.score > 0 {
			in.cuts = append(in.cuts, scan.Redaction{Text: t, Span: sentenceOf(t.Value,
				r.plain.from(h.from),
				r.plain.from(h.to)), Replacement: removed})
		}
	}
}

// removed stands where a sentence was taken out.
const removed = "[PROMPT INJECTION REDACTED by Gatekit]"

// longestSentence is how far a sentence is looked for on either side.
const longestSentence = 1000

// sentenceOf is the sentence that from and to are in.
func sentenceOf(s string, from, to int) scan.Span {
	least, most := max(0, from-longestSentence), min(len(s), to+longestSentence)
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

// seam is how much of each end of a block is read together with its neighbours.
const seam = 400

// across reads blocks of content together: a sentence that is cut in two is still one to the model.
func (in *inspection) across(m *mcp.Message) {
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
		if len(text) > 2*seam {
			text = strings.ToValidUTF8(text[:seam],
				"") + "\n\n" + strings.ToValidUTF8(text[len(text)-seam:], "")
		}
		b.WriteString(text)
		b.WriteByte(' ')
		return blocks < 1000
	})
	if blocks < 2 {
		return
	}
	r := in.s.reader.read(b.String(), in.meta)
	if r.score < in.s.threshold {
		return
	}
	for _, h := range r.hits {
		in.find(h.family, h.name, "/content")
		if a := in.s.actions[h.family]; a < flagged {
			in.raise(min(a, hideIt), h.family, "/content") // there is no one place to strip
		}
	}
}

// classify asks the classifier about the texts.
func (in *inspection) classify(ctx context.Context, texts []scan.Text) {
	s := in.s
	if s.classifier == nil || len(texts) == 0 || in.action == deny {
		return
	}
	plain := make([]string, len(texts))
	for i, t := range texts {
		plain[i] = t.Value
	}
	found, err := s.attacks(ctx, plain)
	if err != nil {
		in.find(Model, "failed", "")
		if !s.texts.skip {
			in.raise(deny, Model, "")
		}
		return
	}
	for i, is := range found {
		if !is {
			continue
		}
		pointer := texts[i].Pointer()
		in.find(Model, "attack", pointer)
		if a := s.actions[Model]; a < flagged {
			in.raise(a, Model, pointer)
		}
	}
}

// refused says why a request may not be sent; "" when it may.
func (s *stage) refused(m *mcp.Message) string {
	kind, name := kindOf(m)
	if kind == "" || name == "" {
		return ""
	}
	if f, bad := s.badName(kind, name); bad && s.actions[f] <= strip {
		return fmt.Sprintf("the use of a %s whose name is hidden: %s", kind, f)
	}
	known, ok := s.memory.known(m.Principal, m.Server, item{kind, name})
	switch {
	case ok && (known.hidden || known.shadows):
		return "the use of a " + kind + " that is hidden"
	case ok:
		return ""
	case kind == kindResource:
		return s.refusedByTemplate(m, name)
	case !s.unlisted && (kind == kindTool || kind == kindPrompt):
		return "the use of a " + kind + " that was not listed (unlisted = \"deny\")"
	}
	return ""
}

// refusedByTemplate judges a resource that was not listed itself: it is hidden if only a hidden
// template names it.
func (s *stage) refusedByTemplate(m *mcp.Message, uri string) string {
	hidden, open := false, false
	s.memory.templates(m.Principal, m.Server, func(template string, is bool) {
		if expands(template, uri) {
			hidden, open = hidden || is, open || !is
		}
	})
	if hidden && !open {
		return "the use of a resource that only a hidden template names"
	}
	return ""
}
