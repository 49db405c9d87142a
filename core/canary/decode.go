package canary

import (
	"bytes"
	"strconv"
)

// maxLayers is the number of encodings inside each other that are removed.
const maxLayers = 3

// findDecoded is find for a text and for what it stands for: without line breaks, which wrap
// base64, and without percent-encoding and backslash escapes.
func (s *scanner) findDecoded(text []byte, found func(canary int)) {
	for layer := 0; len(text) >= s.window; layer++ {
		s.find(text, found)
		if bytes.IndexByte(text, '\n') >= 0 {
			s.find(withoutBreaks(text), found)
		}
		if layer == maxLayers || bytes.IndexByte(text, '%') < 0 && bytes.IndexByte(text, '\\') < 0 {
			return
		}
		text = decode(text)
	}
}

// withoutBreaks returns the text without line breaks, and without the indentation of lines.
func withoutBreaks(text []byte) []byte {
	joined := make([]byte, 0, len(text))
	atStart := false
	for _, c := range text {
		switch {
		case c == '\n', c == '\r':
			atStart = true
		case atStart && (c == ' ' || c == '\t'):
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
