package injection

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizedText is a text as its words are read: in lower case, compatibility forms and accents
// resolved, without what is not seen.
type normalizedText struct {
	text    string
	offsets []offsetEntry // in order; nil when everything is in its place
}

// offsetEntry says that from byte at of plain.s on, the text stands at byte from.
type offsetEntry struct{ at, from int }

// originalOffset is where byte i of p.s stands in the text.
func (p normalizedText) originalOffset(i int) int {
	n, found := slices.BinarySearchFunc(p.offsets, i, func(m offsetEntry, i int) int {
		return cmp.Compare(m.at, i)
	})
	if !found {
		n--
	}
	if n < 0 {
		return i
	}
	return p.offsets[n].from + i - p.offsets[n].at
}

// normalize reads a text. ASCII stays as it is: the reader of words ignores case.
func normalize(s string) normalizedText {
	i := asciiPrefix(s)
	if i == len(s) {
		return normalizedText{text: s}
	}
	b := append(make([]byte, 0, len(s)+16), s[:i]...)
	var moved []offsetEntry
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		before := len(b)
		switch {
		case isInvisible(r) || unicode.Is(unicode.Mn, r):
		case r == '’' || r == 'ʼ' || r == '‘':
			b = append(b, '\'')
		case isIdeographic(r) || r >= 0xac00 && r <= 0xd7a3:
			b = append(b, s[i:i+n]...)
		default:
			b = appendNormalized(b, r)
		}
		i += n
		if len(b)-before != n {
			moved = append(moved, offsetEntry{len(b), i})
		}
		more := asciiPrefix(s[i:])
		b = append(b, s[i:i+more]...)
		i += more
	}
	return normalizedText{string(b), moved}
}

// asciiPrefix is how many bytes s begins with that are ASCII.
func asciiPrefix(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return i
		}
	}
	return len(s)
}

// appendNormalized appends r decomposed and in lower case, without marks.
func appendNormalized(b []byte, r rune) []byte {
	// letters in squares and circles, which decompose in part only
	if r >= 0x1f130 && r <= 0x1f189 {
		return append(b, byte('a'+(r-0x1f130)%32%26))
	}
	if d := norm.NFKD.PropertiesString(string(r)).Decomposition(); d != nil {
		for _, r := range string(d) {
			if !unicode.Is(unicode.Mn, r) {
				b = utf8.AppendRune(b, unicode.ToLower(r))
			}
		}
		return b
	}
	return utf8.AppendRune(b, unicode.ToLower(r))
}

// isIdeographic says whether words are not told apart by spaces where r stands.
func isIdeographic(r rune) bool {
	return r >= 0x3041 && r <= 0x30ff || r >= 0x3400 && r <= 0x9fff || r >= 0xf900 && r <= 0xfaff ||
		r >= 0x20000 && r <= 0x323af
}

// token is a word that the lexicon knows, or a mark.
type token struct {
	word     int32 // of the lexicon
	position int32 // in words from the beginning, with a distance at the end of a sentence
	from, to int32 // in plain.s
}

// Bytes by what they are to the reader of words.
const (
	letterByte  byte = 1 << iota
	sentenceEnd      // ends a sentence
	markStart        // may begin a mark: a tag, a bracket, a picture
)

var byteClasses = func() (t [256]byte) {
	for c := range 256 {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '\'',
			c >= 0x80:
			t[c] = letterByte
		case c == '.' || c == '!' || c == '?' || c == ';' || c == '\n':
			t[c] = sentenceEnd
		case c == '<' || c == '[' || c == '`' || c == '"' || c == ':' || c == '@':
			t[c] = markStart
		}
	}
	t['!'] |= markStart
	return t
}()

var lowerByte = func() (t [256]byte) {
	for c := range 256 {
		t[c] = byte(c)
		if c >= 'A' && c <= 'Z' {
			t[c] += 'a' - 'A'
		}
	}
	return t
}()

// sentenceGap is how far the end of a sentence sets two words apart.
const sentenceGap = 4

// hash is that of the words' table; a word is compared, too.
const (
	hashSeed  uint32 = 2166136261
	hashPrime uint32 = 16777619
)

// tokenize calls known for each word of p that the lexicon has, and other for each byte that may
// begin a mark, with the place in words.
func (x *lexicon) tokenize(p normalizedText, known func(token), other func(i, place int)) {
	s := p.text
	place := 0
	for i := 0; i < len(s); {
		c := s[i]
		switch k := byteClasses[c]; {
		case k == 0:
			i++
			continue
		case k&letterByte == 0:
			if k&markStart != 0 {
				other(i, place)
			}
			if k&sentenceEnd != 0 {
				switch {
				case c == '.' && i+1 < len(s) && byteClasses[s[i+1]]&letterByte != 0:
					// .env, and the dots within names
				case c == '\n' && (i+1 == len(s) || s[i+1] != '\n'):
				default:
					place += sentenceGap
				}
			}
			i++
			continue
		}
		from := i
		h := hashSeed
		high := c
		for i < len(s) && byteClasses[s[i]]&letterByte != 0 {
			h = (h ^ uint32(lowerByte[s[i]])) * hashPrime
			high |= s[i]
			i++
		}
		if high >= 0x80 {
			place = x.readNonASCII(s, from, i, place, known)
			continue
		}
		// .ssh
		if from > 0 && s[from-1] == '.' && (from == 1 || byteClasses[s[from-2]]&letterByte == 0) {
			if w := x.lookup(s[from-1 : i]); w >= 0 {
				known(token{w, int32(place), int32(from), int32(i)})
				place++
				continue
			}
		}
		// mcp.json
		if i+1 < len(s) && s[i] == '.' && x.dotted[lowerByte[c]] &&
			byteClasses[s[i+1]] == letterByte {
			end := i + 1
			for end < len(s) && byteClasses[s[end]] == letterByte && end-from < x.longest {
				end++
			}
			if w := x.lookup(s[from:end]); w >= 0 {
				known(token{w, int32(place), int32(from), int32(end)})
				place++
				i = end
				continue
			}
		}
		if i-from == 1 && c != '\'' && i+1 < len(s) {
			if to, ok := x.readSpaced(s, from, place, known); ok {
				place += 5
				i = to
				continue
			}
		}
		switch w := x.findHashed(h, s[from:i]); {
		case w >= 0:
			known(token{w, int32(place), int32(from), int32(i)})
		case i-from >= 3 && i-from <= 24:
			x.readDisguised(s, from, i, place, known)
		}
		place++
	}
}

// readDisguised looks a word up that is not in the lexicon as it stands: with an apostrophe, in
// parts, or with digits for letters.
func (x *lexicon) readDisguised(s string, from, to, place int, known func(token)) {
	word := s[from:to]
	digits, letters := false, false
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\'' || c == '_':
			for part := range strings.FieldsFuncSeq(word, func(r rune) bool {
				return r == '\'' || r == '_'
			}) {
				if w := x.lookup(part); w >= 0 {
					known(token{w, int32(place), int32(from), int32(to)})
				}
			}
			return
		case c >= '0' && c <= '9':
			digits = true
		default:
			letters = true
		}
	}
	if !digits || !letters {
		return
	}
	for _, one := range []string{"i", "l"} {
		if w := x.lookup(leetspeak.Replace(strings.ReplaceAll(word, "1", one))); w >= 0 {
			known(token{w, int32(place), int32(from), int32(to)})
			return
		}
	}
}

var leetspeak = strings.NewReplacer("0", "o", "3", "e", "4", "a", "5", "s", "7", "t")

// readSpaced reads letters with spaces between them, at least five, as the words that they make. to
// is where they end.
func (x *lexicon) readSpaced(s string, from, place int, known func(token)) (to int, ok bool) {
	var b []byte
	for i := from; ; {
		b = append(b, s[i])
		to = i + 1
		next := to
		for next < len(s) && next < to+4 && (s[next] == ' ' || s[next] == '-' || s[next] == '.' ||
			s[next] == '*') {
			next++
		}
		if next == to || next >= len(s) || byteClasses[s[next]] != letterByte || s[next] >= 0x80 ||
			next+1 < len(s) && byteClasses[s[next+1]]&letterByte != 0 || len(b) > 200 {
			break
		}
		i = next
	}
	if len(b) < 5 {
		return to, false
	}
	x.readRun(strings.ToLower(string(b)), from, to, place, known)
	return to, true
}

// readRun finds the words of the lexicon in a run of letters, the longest first. All of them stand
// where the run does.
func (x *lexicon) readRun(run string, from, to, place int, known func(token)) {
	for i := 0; i < len(run); {
		n := 1
		for l := min(len(run)-i, x.longest); l >= 3; l-- {
			if w := x.lookup(run[i : i+l]); w >= 0 {
				known(token{w, int32(place), int32(from), int32(to)})
				place++
				n = l
				break
			}
		}
		i += n
	}
}

// readNonASCII reads a run of letters that are not all ASCII.
func (x *lexicon) readNonASCII(s string, from, to, place int, known func(token)) int {
	for i := from; i < to; {
		r, _ := utf8.DecodeRuneInString(s[i:to])
		if isIdeographic(r) || r >= 0xac00 && r <= 0xd7a3 {
			n, w := x.longestPrefix(s[i:to])
			if w >= 0 {
				known(token{w, int32(place), int32(i), int32(i + n)})
			}
			place++
			i += n
			continue
		}
		word := i
		for i < to {
			r, n := utf8.DecodeRuneInString(s[i:to])
			if isIdeographic(r) {
				break
			}
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '\'' {
				switch r {
				case '。', '！', '？', '…', '\u2028', '\u2029':
					place += sentenceGap
				}
				if word == i {
					word += n
					i += n
					continue
				}
				break
			}
			i += n
		}
		if word == i {
			continue
		}
		w := x.lookup(strings.ToLower(s[word:i]))
		if w < 0 {
			w = x.lookup(foldLookalikes(s[word:i]))
		}
		if w >= 0 {
			known(token{w, int32(place), int32(word), int32(i)})
		}
		place++
	}
	return place
}

// longestPrefix is the longest word of the lexicon that s begins with, by characters; or its first
// character, and none.
func (x *lexicon) longestPrefix(s string) (n int, word int32) {
	n, word = len(s), -1
	end := 0
	for chars := 1; chars <= 8 && end < len(s); chars++ {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
		if chars == 1 {
			n = end
		}
		if w := x.lookup(s[:end]); w >= 0 {
			n, word = end, w
		}
	}
	return n, word
}

// foldLookalikes is a word with the letters that it looks as if it were written in.
func foldLookalikes(word string) string {
	var b strings.Builder
	for _, r := range word {
		if to := lookalike(r); to != "" {
			b.WriteString(to)
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}
