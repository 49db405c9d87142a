package injection

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"gatekit/plugins/sdk/scan/eight"
)

// token is a word of a text that is in the lexicon, or a mark that is read as a word.
type token struct {
	word     int32 // the number of the word in the lexicon
	position int32 // in words; the end of a sentence counts as sentenceGap words
	from, to int32 // in normalizedText.text
	isPart   bool  // the word is a part of an identifier, such as API in API_KEY
}

// newToken returns the token of a word at s[from:to].
func newToken(word int32, position, from, to int) token {
	return token{word: word, position: int32(position), from: int32(from), to: int32(to)}
}

// Classes of bytes in a normalized text.
const (
	letterByte byte = 1 << iota // of a word
	sentenceEnd
	markStart // may begin a mark: a tag, a bracket, a picture
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

// sentenceGap is the distance in words that the end of a sentence adds.
const sentenceGap = 6

// tokenize appends each word of a text that is in the lexicon to out. It calls mark for each byte
// that may begin a mark, with the position of the byte in words. isOrdered is false if the position
// of a token may be less than that of the token before it.
func (x *lexicon) tokenize(text normalizedText, out *[]token,
	mark func(i, position int)) (isOrdered bool) {
	s := text.text
	position := 0
	isOrdered = true
	for i := 0; i < len(s); {
		c := s[i]
		switch k := byteClasses[c]; {
		case k == 0:
			i++
			continue
		case k&letterByte == 0:
			isQuote := c == '"' || c == '`'
			if k&markStart != 0 && (!isQuote || i+1 < len(s) && s[i+1] == c) {
				mark(i, position) // a single quote begins no mark
			}
			if k&sentenceEnd != 0 {
				switch {
				case c == '.' && i+1 < len(s) && byteClasses[s[i+1]]&letterByte != 0:
					// A dot before or within a name, as in .env, ends no sentence.
				case c == '\n' && (i+1 == len(s) || s[i+1] != '\n'):
				default:
					position += sentenceGap
				}
			}
			i++
			continue
		}
		from := i
		word := readWord(s, i)
		i = word.end
		if word.hasNonASCII() {
			position = x.readNonASCII(s, from, i, position, out)
			continue
		}
		// A word with a dot before it, such as .ssh.
		if from > 0 && s[from-1] == '.' && (from == 1 || byteClasses[s[from-2]]&letterByte == 0) {
			if w := x.lookup(s[from-1 : i]); w >= 0 {
				*out = append(*out, newToken(w, position, from, i))
				position++
				continue
			}
		}
		// A word with a dot inside, such as mcp.json.
		if i+1 < len(s) && s[i] == '.' && x.dotted[lowerByte[c]] &&
			byteClasses[s[i+1]] == letterByte {
			end := i + 1
			for end < len(s) && byteClasses[s[end]] == letterByte && end-from < x.longest {
				end++
			}
			if w := x.lookup(s[from:end]); w >= 0 {
				*out = append(*out, newToken(w, position, from, end))
				position++
				i = end
				continue
			}
		}
		if i-from == 1 && c != '\'' && i+1 < len(s) {
			if to, ok := x.readSpaced(s, from, position, out); ok {
				position += 5 // for the words that readSpaced has found, without counting them
				if n := len(*out); n > 0 && int((*out)[n-1].position) > position {
					isOrdered = false
				}
				i = to
				continue
			}
		}
		w := int32(-1)
		if x.mayHave(word.hash) {
			w = x.slots[x.slot(word.hash, s[from:i])].next - 1
		}
		if w < 0 && i-from >= minStem && x.hasHead(word.first) {
			w = x.lookupStem(s[from:i])
		}
		switch {
		case w >= 0:
			*out = append(*out, newToken(w, position, from, i))
		case word.hasOther() && i-from >= 3 && i-from <= maxDisguised:
			x.readDisguised(s, from, i, position, out)
		}
		position++
	}
	return isOrdered
}

// wordInText is a run of letters, digits, "_" and "'".
type wordInText struct {
	end   int
	first uint64 // the first eight bytes, as a number in which lowerBits are set
	hash  uint64 // see hashOf
	// the highest bits are set for digits, "_" and "'", the lowest ones for bytes beyond ASCII
	others uint64
}

// hasNonASCII reports whether the word has bytes beyond ASCII.
func (w wordInText) hasNonASCII() bool { return w.others&lowBits != 0 }

// hasOther reports whether the word has digits, "_" or "'".
func (w wordInText) hasOther() bool { return w.others&highBits != 0 }

// readWord reads the word that begins at s[i], eight bytes at a time.
func readWord(s string, i int) (word wordInText) {
	from := i
	for {
		var x uint64
		if i+8 <= len(s) {
			x = eight.Load(s, i)
		} else {
			x = upToEight(s, i)
		}
		y := x &^ highBits
		lower := y | lowerBits
		letters := (lower + lowBits*(0x80-'a')) &^ (lower + lowBits*(0x80-'z'-1)) & highBits
		other := ((y+lowBits*(0x80-'0'))&^(y+lowBits*(0x80-'9'-1)) |
			^((y ^ lowBits*'_') + lowBits*0x7f) | ^((y ^ lowBits*'\'') + lowBits*0x7f)) & highBits
		end := ^(letters | other | x) & highBits // flags of the bytes that are in no word
		n := eight.First(end)
		inWord := end&-end>>7 - 1 // a mask for the bytes before the first flag
		word.others |= (other | x&highBits>>7) & inWord
		x = (x | lowerBits) & inWord
		if i == from {
			word.first = x
		}
		if n > 0 {
			word.hash = mixHash(word.hash, x)
		}
		if i += n; n < 8 {
			word.end = i
			return word
		}
	}
}

// lowBits and highBits have the lowest and the highest bit of each of eight bytes.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// readDisguised looks up a word that is not in the lexicon in its plain form. It looks up the parts
// of a word with apostrophes or underscores, or replaces the digits of a word by letters.
func (x *lexicon) readDisguised(s string, from, to, position int, out *[]token) {
	word := s[from:to]
	hasDigit, hasLetter := false, false
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\'' || c == '_':
			x.readParts(word, newToken(-1, position, from, to), out)
			return
		case c >= '0' && c <= '9':
			hasDigit = true
		default:
			hasLetter = true
		}
	}
	if !hasDigit || !hasLetter {
		return
	}
	for _, one := range []byte{'i', 'l'} {
		var letters [maxDisguised]byte
		for i := range len(word) {
			c := word[i]
			if c >= '0' && c <= '9' {
				c = leetspeak[c-'0']
			}
			if c == '1' {
				c = one
			}
			letters[i] = c
		}
		if w := x.lookup(string(letters[:len(word)])); w >= 0 {
			*out = append(*out, newToken(w, position, from, to))
			return
		}
		if strings.IndexByte(word, '1') < 0 {
			return
		}
	}
}

// maxDisguised is the length of the longest word that readDisguised reads, in bytes.
const maxDisguised = 24

// leetspeak has the letter that each digit stands for, or the digit if it stands for none. The
// digit 1 stands for i or l.
const leetspeak = "o12eas6t89"

// readParts looks up the parts of a word with apostrophes or underscores. t is the token of the
// whole word.
func (x *lexicon) readParts(word string, t token, out *[]token) {
	t.isPart = strings.IndexByte(word, '_') >= 0
	for from := 0; from < len(word); {
		to := from
		for to < len(word) && word[to] != '\'' && word[to] != '_' {
			to++
		}
		if t.word = x.lookup(word[from:to]); t.word >= 0 {
			*out = append(*out, t)
		}
		from = to + 1
	}
}

// readSpaced reads five letters or more with spaces, hyphens, dots or stars between them as the
// words that they form. to is the index after the last letter.
func (x *lexicon) readSpaced(s string, from, position int, out *[]token) (to int, ok bool) {
	letters, last := 1, from
	for letters <= maxSpaced {
		next := nextSpaced(s, last)
		if next < 0 {
			break
		}
		last = next
		letters++
	}
	if letters < 5 {
		return last + 1, false
	}
	run := make([]byte, 0, letters)
	for i := from; i >= from && i <= last; i = nextSpaced(s, i) {
		run = append(run, lowerByte[s[i]])
	}
	x.readRun(string(run), from, last+1, position, out)
	return last + 1, true
}

// maxSpaced is how many letters with spaces between them are read together.
const maxSpaced = 200

// nextSpaced returns the index of the single letter that follows the letter s[i] after up to four
// spaces, hyphens, dots or stars, or -1 if there is none.
func nextSpaced(s string, i int) int {
	next := i + 1
	for next < len(s) && next < i+5 && (s[next] == ' ' || s[next] == '-' || s[next] == '.' ||
		s[next] == '*') {
		next++
	}
	if next == i+1 || next >= len(s) || byteClasses[s[next]] != letterByte || s[next] >= 0x80 ||
		next+1 < len(s) && byteClasses[s[next+1]]&letterByte != 0 {
		return -1
	}
	return next
}

// readRun appends the words of the lexicon in a run of letters without spaces. At each place, it
// takes the longest word. Each token gets the span of the whole run in the text, from the index
// from to the index to.
func (x *lexicon) readRun(run string, from, to, position int, out *[]token) {
	for i := 0; i < len(run); {
		n, word := 1, int32(-1)
		lengths := x.lengths[headOf(run[i:])]
		for l := min(len(run)-i, x.longest); lengths != 0 && l >= 3 && word < 0; l-- {
			if lengths&(1<<min(l, 31)) != 0 {
				if w := x.lookup(run[i : i+l]); w >= 0 {
					n, word = l, w
				}
			}
		}
		if word >= 0 {
			*out = append(*out, newToken(word, position, from, to))
			position++
		}
		i += n
	}
}

// readNonASCII reads a run of letters that are not all ASCII, and returns the position after the
// run.
func (x *lexicon) readNonASCII(s string, from, to, position int, out *[]token) int {
	for i := from; i < to; {
		r, _ := utf8.DecodeRuneInString(s[i:to])
		if isIdeographic(r) || r >= 0xac00 && r <= 0xd7a3 {
			n, w := x.longestPrefix(s[i:to])
			if w >= 0 {
				*out = append(*out, newToken(w, position, i, i+n))
			}
			position++
			i += n
			continue
		}
		word := i
		for i < to {
			r, n := utf8.DecodeRuneInString(s[i:to])
			if isIdeographic(r) {
				break
			}
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '_' &&
				r != '\'' {
				switch r {
				case '。', '！', '？', '…', '।', '؟', '؛', '\u2028', '\u2029':
					position += sentenceGap
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
			w = x.lookupStem(s[word:i])
		}
		if w < 0 {
			w = x.lookupArabic(s[word:i])
		}
		if w < 0 && hasLookalike(s[word:i]) {
			w = x.lookup(foldLookalikes(s[word:i]))
		}
		if w >= 0 {
			*out = append(*out, newToken(w, position, word, i))
		}
		position++
	}
	return position
}

// arabicPrefixes are written together with the word that follows them: and, so, with, for, like,
// and the article. Longer prefixes come first.
var arabicPrefixes = []string{"وال", "بال", "فال", "كال", "لل", "ال", "و", "ف", "ب", "ل", "ك"}

// lookupArabic looks up an Arabic word without its prefix.
func (x *lexicon) lookupArabic(word string) int32 {
	if r, _ := utf8.DecodeRuneInString(word); !unicode.Is(unicode.Arabic, r) {
		return -1
	}
	for _, prefix := range arabicPrefixes {
		if rest, ok := strings.CutPrefix(word, prefix); ok && len(rest) > 4 {
			if w := x.lookup(rest); w >= 0 {
				return w
			}
			if w := x.lookupStem(rest); w >= 0 {
				return w
			}
		}
	}
	return -1
}

// maxIdeographs is the length in characters of the longest word that is looked up in a script
// without spaces.
const maxIdeographs = 12

// longestPrefix returns the length and the number of the longest word of the lexicon that s begins
// with, up to maxIdeographs characters. If there is none, it returns the length of the first
// character and -1.
func (x *lexicon) longestPrefix(s string) (n int, word int32) {
	n, word = len(s), -1
	end := 0
	lengths := x.lengths[headOf(s)]
	for chars := 1; chars <= maxIdeographs && end < len(s); chars++ {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
		if chars == 1 {
			n = end
			if lengths == 0 {
				break
			}
		}
		if lengths&(1<<min(end, 31)) == 0 {
			continue
		}
		if w := x.lookup(s[:end]); w >= 0 {
			n, word = end, w
		}
	}
	return n, word
}

// hasLookalike reports whether the word has a character that looks like ASCII letters.
func hasLookalike(word string) bool {
	return strings.IndexFunc(word, func(r rune) bool { return lookalike(r) != "" }) >= 0
}

// foldLookalikes returns a word in lower case, with each character replaced by the ASCII letters
// that it looks like.
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
