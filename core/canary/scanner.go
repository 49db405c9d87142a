package canary

import (
	"encoding/base64"
	"encoding/hex"
)

// Sizes of the table of shifts. A block is three bytes, so that random text seldom has a block of a
// pattern.
const (
	blockBytes = 3
	tableBits  = 16
)

// fold maps the bytes that the scan treats as equal to one of them: letters of both cases, and the
// two alphabets of base64.
var fold = func() (table [256]byte) {
	for i := range table {
		c := byte(i)
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c == '-':
			c = '+'
		case c == '_':
			c = '/'
		}
		table[i] = c
	}
	return table
}()

// pattern is one form of a value, folded.
type pattern struct {
	text   string
	canary int // index of the canary
}

// scanner searches a text for all patterns at once, by the algorithm of Wu and Manber: it looks at
// the end of a window that is as long as the shortest pattern, and moves the window as far as no
// pattern can end. The window of a pattern is its end, because the beginnings of keys are alike.
type scanner struct {
	window int // length of the shortest pattern; 0 if there is no pattern
	// for each hash of a block: how far the window may move when the block is at its end
	shifts []uint8
	ends   map[uint32][]pattern // by the hash of the block at the end of the pattern
}

// forms returns the forms of a value that the scan searches for.
func forms(value string) []string {
	forms := []string{value, hex.EncodeToString([]byte(value))}
	for before := range 3 {
		// the value may begin at each of the three bytes that four characters of base64 stand for
		padded := append(make([]byte, before), value...)
		encoded := base64.RawStdEncoding.EncodeToString(padded)
		// the characters at both ends also depend on the bytes before and after the value
		forms = append(forms, encoded[(before*8+5)/6:len(padded)*8/6])
	}
	return forms
}

func newScanner(canaries []Canary) *scanner {
	var patterns []pattern
	s := &scanner{ends: map[uint32][]pattern{}}
	for i, c := range canaries {
		for _, v := range c.Values {
			for _, form := range forms(v) {
				folded := []byte(form)
				for n, b := range folded {
					folded[n] = fold[b]
				}
				patterns = append(patterns, pattern{string(folded), i})
				if s.window == 0 || len(folded) < s.window {
					s.window = len(folded)
				}
			}
		}
	}
	if len(patterns) == 0 {
		return s
	}
	s.window = min(s.window, 255)
	s.shifts = make([]uint8, 1<<tableBits)
	for i := range s.shifts {
		s.shifts[i] = uint8(s.window - blockBytes + 1)
	}
	for _, p := range patterns {
		end := p.text[len(p.text)-s.window:]
		for at := 0; at+blockBytes <= len(end); at++ {
			h := hash(end[at], end[at+1], end[at+2])
			shift := uint8(len(end) - blockBytes - at)
			s.shifts[h] = min(s.shifts[h], shift)
			if shift == 0 {
				s.ends[h] = append(s.ends[h], p)
			}
		}
	}
	return s
}

// hash returns the index of a block of folded bytes in the table.
func hash(a, b, c byte) uint32 {
	return (uint32(a)<<16 | uint32(b)<<8 | uint32(c)) * 2654435769 >> (32 - tableBits)
}

// find calls found with the index of each canary that the text contains, once or several times.
func (s *scanner) find(text []byte, found func(canary int)) {
	if s.window == 0 {
		return
	}
	for i := s.window; i <= len(text); {
		h := hash(fold[text[i-3]], fold[text[i-2]], fold[text[i-1]])
		if shift := int(s.shifts[h]); shift > 0 {
			i += shift
			continue
		}
		for _, p := range s.ends[h] {
			if endsWith(text[:i], p.text) {
				found(p.canary)
			}
		}
		i++
	}
}

// endsWith reports whether the folded text ends with the pattern.
func endsWith(text []byte, pattern string) bool {
	if len(text) < len(pattern) {
		return false
	}
	text = text[len(text)-len(pattern):]
	for i := range text {
		if fold[text[i]] != pattern[i] {
			return false
		}
	}
	return true
}
