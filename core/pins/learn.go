package pins

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Learn returns the item with holes for the parts of its texts that vary. A part varies if it is a
// recent date or a path below one of the server's folders, or if it differs in again, which is the
// same item of a second start. again may be nil. ok is false if again differs in a way that holes
// cannot express: then the server declares something else at each start, and no pin can hold.
func (i *Item) Learn(again *Item, here Surroundings) (learned *Item, ok bool) {
	l := learner{here: here, ok: true, kind: i.kind}
	v := i.definition.clone()
	var second *value
	if again != nil {
		second = again.definition
	}
	l.learn(v, second, "")
	slices.Sort(l.varies)
	learned, err := newItem(i.kind, v, l.varies)
	if err != nil { // not reached: the learner makes valid holes only
		return i, false
	}
	return learned, l.ok && (again == nil || len(learned.Compare(again)) == 0)
}

type learner struct {
	here   Surroundings
	kind   Kind
	varies []string
	ok     bool
}

// learn replaces the parts of v that vary by placeholders. again is the same place at the second
// start, or nil.
func (l *learner) learn(v, again *value, pointer string) {
	if again != nil && again.kind != v.kind {
		again = nil // Compare reports the difference
	}
	switch v.kind {
	case '"':
		if l.kind != Instructions && pointer == "/"+l.kind.nameMember() {
			return
		}
		second := v.text
		if again != nil {
			second = again.text
		}
		if text := l.withHoles(v.text, second); text != v.text {
			v.text = text
			l.varies = append(l.varies, pointer)
		}
	case '{':
		for _, m := range v.members {
			l.learn(m.value, again.get(m.name), string(jsontext.Pointer(pointer).
				AppendToken(m.name)))
		}
	case '[':
		for i, item := range v.items {
			var second *value
			if again != nil && len(again.items) == len(v.items) {
				second = again.items[i]
			}
			l.learn(item, second, string(jsontext.Pointer(pointer).AppendToken(strconv.Itoa(i))))
		}
	}
}

// withHoles returns text with placeholders. The parameter again is the text of the second start.
func (l *learner) withHoles(text, again string) string {
	if hasHole(text) { // the text itself contains what looks like a placeholder
		return text
	}
	first, second := candidate.FindAllStringSubmatchIndex(text, -1),
		candidate.FindAllStringSubmatchIndex(again, -1)
	aligned := len(first) == len(second)
	var b strings.Builder
	end, date := 0, false // whether the last hole is a date
	for i, m := range first {
		class, found := classOf(m), text[m[0]:m[1]]
		differs := aligned && class == classOf(second[i]) &&
			found != again[second[i][0]:second[i][1]]
		// A time that belongs to a date that moves is the time of the start.
		ofDate := class == "time" && date && strings.Trim(text[end:m[0]], " ") == ""
		if !differs && !ofDate && !l.here.knows(class, strings.TrimRight(found, ".")) {
			continue
		}
		date = class == "date"
		b.WriteString(text[end:m[0]] + "${" + class + "}")
		end = m[1]
		if strings.HasSuffix(found, ".") { // the end of a sentence is no part of a path
			b.WriteString(".")
		}
	}
	if result := b.String() + text[end:]; fits(result, text) {
		return result
	}
	return text
}

// classOf returns the class of a match of candidate.
func classOf(match []int) string {
	for i, c := range holeClasses {
		if match[2*i+2] >= 0 {
			return c.name
		}
	}
	return ""
}
