package canary

import (
	"bytes"
	"strconv"
)

// maxLayers is the number of encodings inside each other that are removed.
const maxLayers = 3

// findDecoded is find for a text and for what it stands for: without line breaks, which wrap
// base64, and without percent-encoding and backslash escapes. Only the parts of the text that have
// such characters are decoded.
func (s *scanner) findDecoded(text []byte, found func(canary int)) {
	if len(text) < s.window {
		return
	}
	s.find(text, found)
	specials := nextBytes{of: [3]byte{'\n', '%', '\\'}}
	for i := 0; i < len(text); {
		at := specials.from(text, i)
		if at < 0 {
			return
		}
		from, to := partAround(text, i, at)
		if to-from > s.window {
			s.findInPart(text[from:to], found)
		}
		i = to
	}
}

// findInPart searches what a part of a text stands for.
func (s *scanner) findInPart(text []byte, found func(canary int)) {
	for layer := 0; len(text) >= s.window; layer++ {
		if layer > 0 {
			s.find(text, found)
		}
		if bytes.IndexByte(text, '\n') >= 0 {
			s.find(withoutBreaks(text), found)
		}
		if layer == maxLayers {
			return
		}
		decoded := decode(text)
		if len(decoded) == len(text) {
			return // nothing was encoded
		}
		text = decoded
	}
}

// nextBytes finds the next of three bytes in a text. Each byte of the text is read at most three
// times.
type nextBytes struct {
	of   [3]byte
	next [3]int // index of each in the text, if it is at least the index that was asked for
	done [3]bool
}

// from returns the index of the first of the bytes in text[i:], or -1. The parameter i must not
// become less from call to call.
func (n *nextBytes) from(text []byte, i int) int {
	first := -1
	for k, c := range n.of {
		if !n.done[k] && (n.next[k] < i || n.next[k] == 0) {
			at := bytes.IndexByte(text[i:], c)
			n.next[k], n.done[k] = i+at, at < 0
		}
		if !n.done[k] && (first < 0 || n.next[k] < first) {
			first = n.next[k]
		}
	}
	return first
}

// partAround returns the bounds of the part of the text around index at. A part ends at a blank,
// because no value has one. It does not end at the indentation of a line, which may continue
// wrapped base64. The part begins at index least or later.
func partAround(text []byte, least, at int) (from, to int) {
	for from = at; from > least; {
		before := from
		for before > least && isBlank(text[before-1]) {
			before--
		}
		if before < from && !endsLine(text[least:before]) {
			break
		}
		if from = before; from > least {
			from--
		}
	}
	for to = at; to < len(text); to++ {
		if !isBlank(text[to]) {
			continue
		}
		if !endsLine(text[from:to]) {
			break
		}
		for to+1 < len(text) && isBlank(text[to+1]) {
			to++
		}
	}
	return from, to
}

// endsLine reports whether the text ends with a line break, which may be encoded.
func endsLine(text []byte) bool {
	if len(text) > 0 && isBreak(text[len(text)-1]) {
		return true
	}
	if len(text) < 2 {
		return false
	}
	switch string(text[len(text)-2:]) {
	case `\n`, `\r`, "0a", "0A", "0d", "0D": // \u000a, %0A, %250A
		return true
	}
	return false
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
func isBreak(c byte) bool { return c == '\n' || c == '\r' }

// withoutBreaks returns the text without line breaks, and without the indentation of lines.
func withoutBreaks(text []byte) []byte {
	joined := make([]byte, 0, len(text))
	atStart := false
	for _, c := range text {
		switch {
		case isBreak(c):
			atStart = true
		case atStart && isBlank(c):
		default:
			atStart = false
			joined = append(joined, c)
		}
	}
	return joined
}

// decode removes one layer of percent-encoding and of backslash escapes. An escape of a character
// beyond ASCII becomes "?", because no value has such characters.
func decode(text []byte) []byte {
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '%':
			if n, ok := hexNumber(text, i+1, 2); ok {
				c = byte(n)
				i += 2
			}
		case c == '\\' && i+1 < len(text):
			i++
			switch c = text[i]; c {
			case 'n', 'r':
				c = '\n'
			case 't':
				c = '\t'
			case 'u', 'x':
				digits := map[byte]int{'u': 4, 'x': 2}[c]
				if n, ok := hexNumber(text, i+1, digits); ok {
					i += digits
					if c = '?'; n < 0x80 {
						c = byte(n)
					}
				}
			}
		}
		plain = append(plain, c)
	}
	return plain
}

// hexNumber returns the number that the given count of hexadecimal digits at text[i] stands for.
func hexNumber(text []byte, i, digits int) (n uint64, ok bool) {
	if i+digits > len(text) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[i:i+digits]), 16, 32)
	return n, err == nil
}
