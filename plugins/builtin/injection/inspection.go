package injection

import (
	"context"
	"strings"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/scan"
)

// maxFindings limits the findings of one message.
const maxFindings = 100

// maxRedactions limits the spans that actionStrip removes from one message, because each of them
// takes memory. If there are more, the item is hidden or the message is denied.
const maxRedactions = 100_000

// Texts and names of members below these lengths, in bytes, are not scored. Most short names are
// the protocol's own.
const (
	minScoredText = 4
	minScoredName = 12
)

// inspection is the search of one message, or of one item of a list.
type inspection struct {
	stage        *stage
	isDefinition bool            // the texts are definitions or instructions, not content
	base         string          // the pointer of the item in the message; "" for a message
	namePointers map[string]bool // the pointers of names, which cannot be stripped
	// hidesSentences is true if the texts are content for a client. Then actionHide removes a
	// sentence, since there is no item to hide.
	hidesSentences bool
	result         *mcp.Message // the message, if it is content for a client; else nil
	scratch        *scratch
	bestHits       map[int]hit // by rule, the hit with the highest score; nil for a message

	action     action            // the strictest action so far
	families   [numFamilies]bool // the families that asked for an action
	pointers   []string          // the places for which actionHide or actionDeny was asked
	redactions []scan.Redaction  // for actionStrip
	findings   []pipeline.Finding
}

// addFinding records a finding, unless it equals the last one.
func (in *inspection) addFinding(f family, name, pointer string) {
	finding := pipeline.Finding{Type: f.String() + "/" + name, Pointer: in.base + pointer}
	if len(in.findings) < maxFindings && (len(in.findings) == 0 ||
		in.findings[len(in.findings)-1] != finding) {
		in.findings = append(in.findings, finding)
	}
}

// addFindings adds the findings of another inspection.
func (in *inspection) addFindings(findings []pipeline.Finding) {
	in.findings = append(in.findings, findings[:min(len(findings),
		maxFindings-len(in.findings))]...)
}

// escalate makes the action of the inspection at least as strict as a, because of the family f at
// the pointer.
func (in *inspection) escalate(a action, f family, pointer string) {
	in.action = stricter(in.action, a)
	in.families[f] = true
	// A text may have millions of spans, all with one pointer.
	if last := len(in.pointers) - 1; a <= actionHide && (last < 0 || in.pointers[last] != pointer) {
		in.pointers = append(in.pointers, pointer)
	}
}

// isOnlyAt reports whether everything to be hidden or denied is at the pointer.
func (in *inspection) isOnlyAt(pointer string) bool {
	for _, p := range in.pointers {
		if p != pointer {
			return false
		}
	}
	return len(in.pointers) > 0
}

// reason returns the reason of the verdict. It names families and never holds content.
func (in *inspection) reason() string {
	var names []string
	for f, involved := range in.families {
		if involved {
			names = append(names, family(f).String())
		}
	}
	return "prompt injection: " + strings.Join(names, ", ")
}

// The scores that are added if an encoded or hidden text is worth a finding, because people do not
// write such texts to each other.
const (
	bonusEncoded = 3
	bonusHidden  = 5
)

// inspectText inspects one text as it stands, the text in its hidden characters, and the texts that
// are encoded in it.
func (in *inspection) inspectText(t scan.Text) {
	if t.Kind == mcp.NumberLeaf {
		return
	}
	hiddenText := in.inspectHidden(t)
	if t.Kind == mcp.NameLeaf {
		if in.bestHits != nil {
			in.inspectParameter(t)
		}
		if len(t.Value) < minScoredName {
			return
		}
	}
	if len(t.Value) < minScoredText {
		return
	}
	scored := in.stage.scorer.score(t.Value, in.isDefinition, in.scratch)
	in.evaluate(t, scored, nil, 0)
	in.inspectWording(t, scored)
	if in.result != nil && t.Kind == mcp.StringLeaf {
		in.inspectSteering(in.result, t, scored)
		in.scratch.edges.add(scored.tokens)
	}
	if len(hiddenText) >= minScoredText {
		in.evaluate(t, in.stage.scorer.score(hiddenText, true, in.scratch),
			&scan.Span{From: 0, To: len(t.Value)}, bonusHidden)
	}
	if !mayBeEncoded(t.Value) {
		return
	}
	eachDecoded(t, func(plain string, at scan.Span, whole bool) bool {
		bonus := bonusEncoded
		if whole {
			bonus = 0
		}
		in.evaluate(t, in.stage.scorer.score(plain, in.isDefinition, in.scratch), &at, bonus)
		return true
	})
}

// inspectHidden records the hidden characters and the control characters of a text, and asks for
// the actions of their families. It returns the text that the hidden characters encode.
func (in *inspection) inspectHidden(t scan.Text) (hiddenText string) {
	if plainPrefix(t.Value) == len(t.Value) {
		return ""
	}
	pointer, found := "", 0
	return eachHidden(t.Value, func(h hiddenSpan) {
		found++
		a := in.stage.actions[h.family]
		if a == actionOff {
			return
		}
		if pointer == "" {
			pointer = t.Pointer()
		}
		if found <= maxFindings {
			in.addFinding(h.family, h.rule, pointer)
		}
		if a == actionStrip && h.rule == "zero-width" && !in.namePointers[pointer] &&
			isBetweenWords(t.Value, h.Span) {
			a = actionFlag
		}
		if a == actionStrip && (in.namePointers[pointer] || len(in.redactions) >= maxRedactions) {
			a = actionHide
		}
		if a != actionFlag {
			in.escalate(a, h.family, pointer)
		}
		if a == actionStrip {
			in.redactions = append(in.redactions, scan.Redaction{Text: t, Span: h.Span,
				Replacement: h.replacement})
		}
	})
}

// maxBetweenWords is the length in bytes of the longest run of zero-width characters that may stand
// between words. Text editors leave one or two behind. They cannot carry a text.
const maxBetweenWords = 6

// isBetweenWords reports whether a short run of zero-width characters has a space, or the end of
// the text, beside it.
func isBetweenWords(s string, at scan.Span) bool {
	isGap := func(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
	return at.To-at.From <= maxBetweenWords && (at.From == 0 || at.To == len(s) ||
		isGap(s[at.From-1]) || isGap(s[at.To]))
}

// evaluate records the findings of a scored text, and asks for the actions of their families. If
// encoded is nil, the scored text is t itself. Otherwise it is encoded in t at that span. bonus is
// added to a score that is worth a finding.
func (in *inspection) evaluate(t scan.Text, scored scoredText, encoded *scan.Span, bonus int) {
	if len(scored.hits) == 0 {
		return
	}
	if in.bestHits != nil {
		for _, h := range scored.hits {
			if best, ok := in.bestHits[h.id]; !ok || best.score < h.score {
				in.bestHits[h.id] = h
			}
		}
	}
	if scored.score < findingThreshold {
		return
	}
	pointer := t.Pointer()
	for _, h := range scored.hits {
		in.addFinding(h.family, h.name, pointer)
	}
	if scored.score+bonus < in.stage.threshold {
		return
	}
	a := actionOff
	for _, h := range scored.hits {
		a = stricter(a, in.stage.actions[h.family])
	}
	if a >= actionFlag {
		return
	}
	if a == actionHide && in.hidesSentences {
		a = actionStrip
	}
	if a == actionStrip && (in.namePointers[pointer] || len(in.redactions) >= maxRedactions) {
		a = actionHide
	}
	for _, h := range scored.hits {
		in.escalate(a, h.family, pointer)
	}
	if a != actionStrip {
		return
	}
	if encoded != nil {
		in.redactions = append(in.redactions, scan.Redaction{Text: t, Span: *encoded,
			Replacement: redactionText})
		return
	}
	for _, h := range scored.allHits {
		if h.score > 0 {
			sentence := sentenceAround(t.Value, scored.text.originalOffset(h.from),
				scored.text.originalOffset(h.to))
			in.redactions = append(in.redactions, scan.Redaction{Text: t, Span: sentence,
				Replacement: redactionText})
		}
	}
}

// redactionText replaces a sentence that is stripped.
const redactionText = "[PROMPT INJECTION REDACTED by Gatekit]"

// maxSentence limits how far, in bytes, the ends of a sentence are searched for on either side.
const maxSentence = 1000

// sentenceAround returns the span of the sentence that s[from:to] is in.
func sentenceAround(s string, from, to int) scan.Span {
	start, end := max(0, from-maxSentence), min(len(s), to+maxSentence)
	for start < from && !utf8.RuneStart(s[start]) {
		start++
	}
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	for i := from - 1; i >= start; i-- {
		if n := sentenceEndAt(s, i); n > 0 {
			start = min(i+n, from)
			break
		}
	}
	for start < from && s[start] == ' ' {
		start++
	}
	for i := to; i < end; i++ {
		if sentenceEndAt(s, i) > 0 {
			end = i
			break
		}
	}
	return scan.Span{From: start, To: end}
}

// sentenceEndAt returns the length of the mark at s[i] that ends a sentence, or 0 if there is none.
// A dot within a name, as in example.com, ends no sentence.
func sentenceEndAt(s string, i int) int {
	switch s[i] {
	case '\n':
		return 1
	case '.', '!', '?':
		if i+1 == len(s) || strings.IndexByte(" \t\r\n\"'<)*", s[i+1]) >= 0 {
			return 1
		}
	case 0xe3, 0xef, 0xe0, 0xd8:
		for _, mark := range []string{"。", "！", "？", "।", "؟"} {
			if strings.HasPrefix(s[i:], mark) {
				return len(mark)
			}
		}
	}
	return 0
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
	attacks, err := s.findAttacks(ctx, plain)
	if err != nil {
		in.addFinding(familyClassifier, "failed", "")
		if !s.scoring.skipOnError {
			in.escalate(actionDeny, familyClassifier, "")
		}
		return
	}
	for i, isAttack := range attacks {
		if !isAttack {
			continue
		}
		pointer := texts[i].Pointer()
		in.addFinding(familyClassifier, "attack", pointer)
		if a := s.actions[familyClassifier]; a < actionFlag {
			in.escalate(a, familyClassifier, pointer)
		}
	}
}
