package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"gatekit/core/display"
	"gatekit/core/pins"
)

const (
	maxPinnedText = 256 << 10 // bytes of a text that are printed: a reviewer must see all of it
	maxWordPairs  = 4_000_000 // pairs of words that a word diff compares
)

// changePrinter prints the changes of servers, in lines of text.
type changePrinter struct {
	out   io.Writer
	color palette
}

// print prints the changes of one server. If hidesPackage is true, another package is held back.
func (c changePrinter) print(server string, changes []reviewedChange, hidesPackage bool) {
	held := heldBack(changes, hidesPackage)
	summary := "unchanged"
	if len(changes) > 0 {
		summary = fmt.Sprintf("%s, %d held back", plural(len(changes), "change"), held)
	}
	fmt.Fprintf(c.out, "server %q: %s\n", server, summary)
	for _, change := range changes {
		class := fmt.Sprintf("%-10s", change.Class)
		if isHeldBack(change.Change, hidesPackage) {
			class = c.color.bad(class)
		}
		fmt.Fprintf(c.out, "  %s  %s\n", class, describeChange(change.Change))
		switch {
		case change.Class == pins.New && change.After != "":
			fmt.Fprintf(c.out, "              %s\n", display.EscapeLine(change.After,
				maxPinnedText))
		case change.Class == pins.New || change.Class == pins.Gone:
		default:
			fmt.Fprintf(c.out, "              %s\n", c.words(change.Before, change.After))
		}
		if len(change.findings) > 0 {
			fmt.Fprintf(c.out, "              %s %s\n", c.color.bad("injection:"),
				strings.Join(change.findings, ", "))
		}
	}
}

// describeChange returns the item and the place of a change.
func describeChange(c pins.Change) string {
	var parts []string
	if c.Kind != "" {
		parts = append(parts, string(c.Kind))
	}
	if c.Name != "" {
		parts = append(parts, display.EscapeLine(c.Name, maxHiddenNameBytes))
	}
	if c.Pointer != "" {
		parts = append(parts, display.EscapeLine(c.Pointer, maxHiddenNameBytes))
	}
	return strings.Join(parts, " ")
}

// isHeldBack reports whether a change is held back. A package that the lock does not have is never
// held back.
func isHeldBack(c pins.Change, hidesPackage bool) bool {
	return c.Class.IsHeldBack() || hidesPackage && c.Class == pins.Package && c.Before != ""
}

func heldBack(changes []reviewedChange, hidesPackage bool) (n int) {
	for _, c := range changes {
		if isHeldBack(c.Change, hidesPackage) {
			n++
		}
	}
	return n
}

// words returns the difference between two texts on one line: removed words as [-…-] and added
// words as {+…+}.
func (c changePrinter) words(before, after string) string {
	var out strings.Builder
	edit := func(open, text, end string, paint func(string) string) {
		if text = display.EscapeLine(text, maxPinnedText); text != "" {
			out.WriteString(paint(open + text + end))
		}
	}
	for _, e := range diffWords(splitWords(before), splitWords(after)) {
		edit("[-", e.removed, "-]", c.color.bad)
		edit("{+", e.added, "+}", c.color.good)
		equal := display.EscapeLine(e.equal, 1<<20)
		if words := strings.Fields(equal); len(words) > 24 { // the middle of an unchanged part
			head, tail := strings.Join(words[:10], " "), strings.Join(words[len(words)-10:], " ")
			if equal[0] == ' ' {
				head = " " + head
			}
			if equal[len(equal)-1] == ' ' {
				tail += " "
			}
			equal = head + " … " + tail
		}
		out.WriteString(equal)
	}
	return out.String()
}

// splitWords splits a text into words and the text between words.
func splitWords(text string) (words []string) {
	isWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || r == '_' }
	start, inWord := 0, false
	for i, r := range text {
		if word := isWord(r); i > 0 && (!word || !inWord) {
			words = append(words, text[start:i])
			start = i
		}
		inWord = isWord(r)
	}
	if start < len(text) {
		words = append(words, text[start:])
	}
	return words
}

// wordEdit is a removed and an added text, and the equal text after them.
type wordEdit struct{ removed, added, equal string }

// diffWords returns the edits from a to b, with a longest common subsequence. If the texts differ
// in very many words, everything between their common start and end is one edit.
func diffWords(a, b []string) []wordEdit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	edits := []wordEdit{{equal: strings.Join(a[:head], "")}}
	a, b = a[head:], b[head:]
	tail := 0
	for tail < len(a) && tail < len(b) && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	end := strings.Join(a[len(a)-tail:], "")
	a, b = a[:len(a)-tail], b[:len(b)-tail]
	if len(a)*len(b) > maxWordPairs {
		return append(edits, wordEdit{strings.Join(a, ""), strings.Join(b, ""), end})
	}
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width) // lengths of the subsequences of the suffixes
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	e := wordEdit{}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if i < len(a) && j < len(b) && a[i] == b[j] {
			e.equal += a[i]
			i, j = i+1, j+1
			continue
		}
		if e.equal != "" {
			edits, e = append(edits, e), wordEdit{}
		}
		if j == len(b) || i < len(a) && common[(i+1)*width+j] >= common[i*width+j+1] {
			e.removed += a[i]
			i++
		} else {
			e.added += b[j]
			j++
		}
	}
	e.equal += end
	return mergeShort(append(edits, e))
}

// mergeShort merges neighbouring edits when the text between them has no letter: single spaces that
// happen to be equal would cut a changed sentence into words.
func mergeShort(edits []wordEdit) []wordEdit {
	var out []wordEdit
	for _, e := range edits {
		last := len(out) - 1
		if last > 0 && !strings.ContainsFunc(out[last].equal, unicode.IsLetter) &&
			e != (wordEdit{}) {
			between := out[last].equal
			out[last] = wordEdit{out[last].removed + between + e.removed,
				out[last].added + between + e.added, e.equal}
			continue
		}
		out = append(out, e)
	}
	return slices.DeleteFunc(out, func(e wordEdit) bool { return e == wordEdit{} })
}
