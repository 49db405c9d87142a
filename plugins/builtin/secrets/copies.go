package secrets

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk/scan"
)

// This file finds the other copies of the secrets that were found in a message. The rules find a
// secret by its form or its name, and may not find the same characters elsewhere in the message.

// Limits of the search for copies.
const (
	maxCopyLength = 4096      // of a secret whose copies are searched; the rules find longer ones
	maxCopyBytes  = 512 << 10 // of all secrets of a message
	// shortCopy is the length below which a copy must not stand within a longer word.
	shortCopy = 16
	maxViews  = 3 // how often a text is unescaped
)

// foundText is a text with secrets.
type foundText struct {
	number  int // of the text in the message
	text    scan.Text
	pointer string
	secrets []candidate // in order, without overlaps
}

// addCopies searches the texts of the message for copies of the secrets in in.found, and adds them.
func (in *inspection) addCopies(ctx context.Context) {
	search := newCopySearch(in.found)
	if search == nil {
		return
	}
	in.tooManySecrets = search.isFull
	if !in.methodHasSecret && in.isMethodSearched() {
		search.find(in.message.Method, func(_ span, of candidate) {
			in.methodHasSecret = true
			in.methodRules = append(in.methodRules, of.rule)
		})
	}
	var all []foundText
	number := 0
	scan.Texts(in.message, func(t scan.Text) bool {
		number++
		f := foundText{number: number, text: t}
		if len(in.found) > 0 && in.found[0].number == number {
			f, in.found = in.found[0], in.found[1:]
		}
		if copies := search.inText(t); len(copies) > 0 && !isCursor(t) {
			if f.pointer == "" {
				f.pointer = t.Pointer()
			}
			copies = slices.DeleteFunc(copies, func(c candidate) bool {
				return in.isAllowed(c, f.pointer) || c.weak && isCursorInText(t.Value, c.span.from)
			})
			f.secrets = mergeOverlapping(append(f.secrets, copies...))
		}
		if len(f.secrets) > 0 {
			all = append(all, f)
		}
		return ctx.Err() == nil
	})
	in.found = all
}

// isCursor reports whether the value is a place in a list or a stream, or belongs to the protocol.
func isCursor(t scan.Text) bool {
	if t.Kind == mcp.NameLeaf {
		return false
	}
	name := t.MemberName()
	return protocolMembers[name] && isProtocolPointer(t.Pointer()) ||
		classifyName(name) == cursorName
}

// copySearch finds many secrets in a text in one pass. It is an Aho-Corasick automaton whose
// transitions are in a map, so its size is linear in the length of the secrets.
type copySearch struct {
	next   map[uint64]int32 // the next state, by state<<8 | byte
	fail   []int32          // by state
	ends   []int32          // by state: 1 + the index of the longest value that ends there
	first  [256]bool        // the first bytes of the values
	values []copyValue
	isFull bool // some secrets are not searched because there are too many
}

// copyValue is a text that is searched, and the secret that it stands for.
type copyValue struct {
	text   string
	secret candidate
}

// newCopySearch returns a search for the secrets in all, or nil if no copies can be searched.
func newCopySearch(all []foundText) *copySearch {
	k := &copySearch{next: make(map[uint64]int32), fail: []int32{0}, ends: []int32{0}}
	seen := make(map[string]bool)
	total := 0
	for _, f := range all {
		for _, c := range f.secrets {
			if seen[c.value] || len(c.value) > maxCopyLength || !pipeline.IsDistinctive(c.value) {
				continue
			}
			seen[c.value] = true
			if total += len(c.value); total > maxCopyBytes {
				k.isFull = true
				continue
			}
			k.add(copyValue{c.value, c})
			if plain := unescapeAll(c.value); plain != c.value && pipeline.IsDistinctive(plain) {
				k.add(copyValue{plain, c})
			}
			if len(c.value) < shortCopy { // package scan does not decode such short runs
				for _, plain := range []string{c.value, c.value + "\n"} {
					k.add(copyValue{base64.RawStdEncoding.EncodeToString([]byte(plain)), c})
				}
			}
		}
	}
	if len(k.values) == 0 {
		return nil
	}
	k.link()
	return k
}

// add adds a value to the states of the search.
func (k *copySearch) add(v copyValue) {
	state := int32(0)
	for i := range len(v.text) {
		key := uint64(state)<<8 | uint64(v.text[i])
		next, ok := k.next[key]
		if !ok {
			next = int32(len(k.fail))
			k.fail, k.ends = append(k.fail, 0), append(k.ends, 0)
			k.next[key] = next
		}
		state = next
	}
	k.first[v.text[0]] = true
	if k.ends[state] == 0 {
		k.values = append(k.values, v)
		k.ends[state] = int32(len(k.values))
	}
}

// link sets the fail states, in the order of their distance from the first state.
func (k *copySearch) link() {
	type edge struct {
		from, to int32
		char     byte
	}
	edges := make([]edge, 0, len(k.next))
	for key, to := range k.next {
		edges = append(edges, edge{int32(key >> 8), to, byte(key)})
	}
	// A state has a greater number than the state before it, so this is the order of a walk in
	// which a state comes after the states that it can fail to, if sorted by depth.
	depth := make([]int32, len(k.fail))
	slices.SortFunc(edges, func(a, b edge) int { return int(a.to - b.to) })
	for _, e := range edges {
		depth[e.to] = depth[e.from] + 1
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(depth[a.to] - depth[b.to]) })
	for _, e := range edges {
		if e.from == 0 {
			continue
		}
		fail := k.fail[e.from]
		for {
			if to, ok := k.next[uint64(fail)<<8|uint64(e.char)]; ok {
				k.fail[e.to] = to
				break
			}
			if fail == 0 {
				break
			}
			fail = k.fail[fail]
		}
	}
}

// find calls yield for each copy of a secret in s.
func (k *copySearch) find(s string, yield func(at span, of candidate)) {
	state := int32(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		if state == 0 && !k.first[c] {
			continue
		}
		for {
			if next, ok := k.next[uint64(state)<<8|uint64(c)]; ok {
				state = next
				break
			}
			if state == 0 {
				break
			}
			state = k.fail[state]
		}
		// A value may end with another one, which counts if the longer one is within a word. Only
		// a few are tried, so that the time stays linear.
		for at, tries := state, 0; at != 0 && tries < 4; at, tries = k.fail[at], tries+1 {
			n := k.ends[at]
			if n == 0 {
				continue
			}
			v := &k.values[n-1]
			if from := i + 1 - len(v.text); len(v.text) >= shortCopy || isWordAlone(s, from, i+1) {
				yield(span{from, i + 1}, v.secret)
				break
			}
		}
	}
}

// isWordAlone reports whether no letter or digit is directly before or behind s[from:to].
func isWordAlone(s string, from, to int) bool {
	return (from == 0 || !isAlnum(s[from-1])) && (to == len(s) || !isAlnum(s[to]))
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || lower(c) >= 'a' && lower(c) <= 'z'
}

// inText returns the copies of secrets in a text: in the text itself, in its escapes of JSON and
// HTML, and in its runs of base64 and percent-encoding.
func (k *copySearch) inText(t scan.Text) (copies []candidate) {
	add := func(at span, of candidate) {
		of.span = at
		copies = append(copies, of)
	}
	k.find(t.Value, add)
	if t.Kind == mcp.NumberLeaf {
		return copies
	}
	for _, v := range []view{jsonView, htmlView} {
		text, offsets := t.Value, []int32(nil)
		for range maxViews {
			if !strings.Contains(text, v.mark) {
				break
			}
			if text, offsets = v.decode(text, offsets); offsets == nil {
				break
			}
			k.find(text, func(at span, of candidate) {
				add(span{int(offsets[at.from]), int(offsets[at.to])}, of)
			})
		}
	}
	t.Decoded(func(plain string, at scan.Span) bool {
		run := span{at.From, at.To}
		var offsets []int
		decoded := false
		k.find(plain, func(at span, of candidate) {
			if !decoded {
				offsets, decoded = percentOffsets(t.Value, run, plain), true
			}
			if offsets == nil {
				add(run, of)
			} else {
				add(span{offsets[at.from], offsets[at.to]}, of)
			}
		})
		return true
	})
	return copies
}

// view is a way of escaping characters in a text.
type view struct {
	mark string // the first character of an escape
	// unescape returns the text of the escape at the beginning of s, and the length of the escape;
	// 0 if there is none.
	unescape func(s string) (text string, n int)
}

var (
	jsonView = view{`\`, unescapeJSON}
	htmlView = view{`&`, unescapeHTML}
)

// decode returns the text without escapes, and the place of each of its bytes, and of its end, in
// the original text. before has the places of the bytes of s; nil if s is the original text. The
// result has no places if there is no escape.
func (v view) decode(s string, before []int32) (plain string, offsets []int32) {
	place := func(i int) int32 {
		if before == nil {
			return int32(i)
		}
		return before[i]
	}
	var b strings.Builder
	changed := false
	for i := 0; i < len(s); {
		if s[i] == v.mark[0] {
			if text, n := v.unescape(s[i:]); n > 0 {
				changed = true
				b.WriteString(text)
				for range len(text) {
					offsets = append(offsets, place(i))
				}
				i += n
				continue
			}
		}
		b.WriteByte(s[i])
		offsets = append(offsets, place(i))
		i++
	}
	if !changed {
		return s, nil
	}
	return b.String(), append(offsets, place(len(s)))
}

// unescapeAll returns the text without the escapes of JSON.
func unescapeAll(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	plain, _ := jsonView.decode(s, nil)
	return plain
}

// unescapeJSON implements view.unescape for the escapes of JSON strings.
func unescapeJSON(s string) (text string, n int) {
	if len(s) < 2 {
		return "", 0
	}
	if i := strings.IndexByte(`"\/bfnrt'`, s[1]); i >= 0 {
		return "\"\\/\b\f\n\r\t'"[i : i+1], 2
	}
	if s[1] != 'u' || len(s) < 6 {
		return "", 0
	}
	r := rune(0)
	for i := 2; i < 6; i++ {
		d := hexDigit(s, i, len(s))
		if d < 0 {
			return "", 0
		}
		r = r<<4 | rune(d)
	}
	if !utf8.ValidRune(r) {
		return "", 0
	}
	return string(r), 6
}

// unescapeHTML implements view.unescape for the character references of HTML and XML that stand for
// ASCII.
func unescapeHTML(s string) (text string, n int) {
	end := strings.IndexByte(s[:min(len(s), 8)], ';')
	if end < 2 {
		return "", 0
	}
	switch name := s[1:end]; name {
	case "amp":
		return "&", end + 1
	case "lt":
		return "<", end + 1
	case "gt":
		return ">", end + 1
	case "quot":
		return `"`, end + 1
	case "apos":
		return "'", end + 1
	default:
		if name[0] != '#' {
			return "", 0
		}
		code, base, digits := 0, 10, name[1:]
		if digits != "" && lower(digits[0]) == 'x' {
			base, digits = 16, digits[1:]
		}
		for i := range len(digits) {
			d := hexDigit(digits, i, len(digits))
			if d < 0 || d >= base {
				return "", 0
			}
			code = code*base + d
		}
		if code == 0 || code >= utf8.RuneSelf {
			return "", 0
		}
		return string(rune(code)), end + 1
	}
}
