package injection

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// The table is UTS 39's, Unicode 17.0, in the lines that confusable_test.go writes (go test -run
// TestTable -update): a prototype, a colon, and what looks like it, in hexadecimal.
//
//go:embed confusables.txt
var confusablesText string

// confusables maps a character to what it looks like.
var confusables = sync.OnceValue(func() map[rune]string {
	table := make(map[rune]string, 7000)
	for line := range strings.Lines(confusablesText) {
		to, from, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || line[0] == '#' {
			continue
		}
		var prototype strings.Builder
		for c := range strings.FieldsSeq(to) {
			prototype.WriteRune(hexRune(c))
		}
		for c := range strings.FieldsSeq(from) {
			table[hexRune(c)] = prototype.String()
		}
	}
	return table
})

func hexRune(s string) rune {
	n, err := strconv.ParseUint(s, 16, 21)
	if err != nil {
		panic("injection: confusables.txt: " + err.Error()) // embedded: a fault of the build
	}
	return rune(n)
}

// skeleton is what s looks like (UTS 39, section 4), whatever its case and with nothing in it that
// is not seen: two names with one skeleton cannot be told apart by eye.
func skeleton(s string) string {
	return norm.NFD.String(replaceConfusables(foldCase(replaceConfusables(foldCase(s)))))
}

// foldCase is s decomposed (NFKD, so that full width letters are letters) and in lower case,
// without what is not seen.
func foldCase(s string) string {
	return strings.Map(func(r rune) rune {
		if isInvisible(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKD.String(s))
}

func replaceConfusables(s string) string {
	table := confusables()
	var b strings.Builder
	for _, r := range s {
		if to, ok := table[r]; ok {
			b.WriteString(to)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// lookalike is the ASCII letter, or letters, that r looks like; "" when it looks like none.
func lookalike(r rune) string {
	to, ok := confusables()[r]
	if !ok || r < 0x80 {
		return ""
	}
	for i := range len(to) {
		if to[i] >= 0x80 {
			return ""
		}
	}
	return strings.ToLower(to)
}

// isDeceptive says whether a name pretends to be written in ASCII, or mixes letters of scripts that
// look alike: Latin with Cyrillic or Greek, Armenian, Cherokee, and so on.
func isDeceptive(name string) bool {
	latin, other, plain := false, false, true
	letters := 0
	for _, r := range name {
		switch {
		case r < 0x80:
			latin = latin || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
			continue
		case unicode.In(r, unicode.Latin, unicode.Mn) && lookalike(r) == "":
			plain = false
			continue
		}
		letters++
		if lookalike(r) == "" {
			plain = false
		}
		other = other || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian,
			unicode.Cherokee, unicode.Coptic, unicode.Lisu, unicode.Deseret) ||
			isCompatibilityLetter(r)
	}
	return letters > 0 && (latin && other || plain)
}

// isCompatibilityLetter says whether r is a letter that exists for its looks only: full width,
// mathematical, enclosed.
func isCompatibilityLetter(r rune) bool {
	return r >= 0xff01 && r <= 0xff5e || r >= 0x1d400 && r <= 0x1d7ff ||
		r >= 0x24b6 && r <= 0x24e9 || r >= 0x1f130 && r <= 0x1f189
}

// disguiseScore says how much a name has to hide: of two that look alike, the greater one is the
// impostor.
func disguiseScore(name string) (n int) {
	for _, r := range name {
		switch {
		case r >= 0x80:
			n += 1000
		case r >= '0' && r <= '9', r == '|', r >= 'A' && r <= 'Z':
			n += 10
		}
	}
	return n + strings.Count(name, "rn")
}
