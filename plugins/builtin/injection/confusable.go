package injection

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"gatekit/plugins/sdk/scan/eight"
)

// confusablesText is the table of UTS 39 for Unicode 17.0. Each line holds a prototype, a colon,
// and the characters that look like the prototype, in hexadecimal. confusable_test.go writes it: go
// test -run TestTable -update.
//
//go:embed confusables.txt
var confusablesText string

// confusables returns the prototype of each character that looks like another character.
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

// skeleton returns the skeleton of s as UTS 39, section 4, defines it, regardless of case and
// without invisible characters. Names with the same skeleton cannot be told apart by eye.
func skeleton(s string) string {
	return norm.NFD.String(replaceConfusables(foldCase(replaceConfusables(foldCase(s)))))
}

// skeletons returns two skeletons of a name: regardless of case, and as the name looks, with its
// capitals and digits. Names that share a skeleton look alike.
func skeletons(name string) [2]string {
	looks := strings.Map(func(r rune) rune {
		switch r {
		case 'I', '1', '|':
			return 'l'
		case '0':
			return 'o'
		case '5':
			return 's'
		case '8':
			return 'b'
		}
		return r
	}, name)
	looks = skeleton(looks)
	return [2]string{skeleton(name), strings.ReplaceAll(looks, "vv", "w")}
}

// foldCase returns s decomposed (NFKD, which turns full-width letters into ordinary letters), in
// lower case, and without invisible characters.
func foldCase(s string) string {
	return strings.Map(func(r rune) rune {
		if isInvisible(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKD.String(s))
}

// replaceConfusables returns s with each character replaced by its prototype.
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

// lookalikes returns the ASCII letters that each character beyond ASCII looks like, in lower case.
var lookalikes = sync.OnceValue(func() map[rune]string {
	table := make(map[rune]string, 4000)
	for r, to := range confusables() {
		if r >= utf8.RuneSelf && eight.ASCIIPrefix(to) == len(to) {
			table[r] = strings.ToLower(to)
		}
	}
	return table
})

// lookalikeBits has a bit for each character of the basic plane that lookalikes has. Most
// characters of most scripts look like no ASCII letter.
var lookalikeBits = sync.OnceValue(func() *[0x10000 / 64]uint64 {
	var set [0x10000 / 64]uint64
	for r := range lookalikes() {
		if r < 0x10000 {
			set[r/64] |= 1 << (r % 64)
		}
	}
	return &set
})

// lookalike returns the ASCII letter or letters that r looks like, or "" if there are none.
func lookalike(r rune) string {
	if r >= 0 && r < 0x10000 && lookalikeBits()[r/64]&(1<<(r%64)) == 0 {
		return ""
	}
	return lookalikes()[r]
}

// isDeceptive reports whether a name imitates ASCII, or mixes letters of scripts that look alike,
// such as Latin letters with Cyrillic, Greek, Armenian or Cherokee letters.
func isDeceptive(name string) bool {
	hasLatin, hasOther, isImitation := false, false, true
	letters := 0
	for _, r := range name {
		switch {
		case r < 0x80:
			hasLatin = hasLatin || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
			continue
		case unicode.In(r, unicode.Latin, unicode.Mn) && lookalike(r) == "":
			isImitation = false
			continue
		}
		letters++
		if lookalike(r) == "" {
			isImitation = false
		}
		hasOther = hasOther || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian,
			unicode.Cherokee, unicode.Coptic, unicode.Lisu, unicode.Deseret) ||
			isCompatibilityLetter(r)
	}
	return letters > 0 && (hasLatin && hasOther || isImitation)
}

// isCompatibilityLetter reports whether r is a full-width, mathematical or enclosed form of another
// letter.
func isCompatibilityLetter(r rune) bool {
	return r >= 0xff01 && r <= 0xff5e || r >= 0x1d400 && r <= 0x1d7ff ||
		r >= 0x24b6 && r <= 0x24e9 || r >= 0x1f130 && r <= 0x1f189
}

// nonASCIIScore is the number that each character beyond ASCII adds to a disguiseScore.
const nonASCIIScore = 1000

// disguiseScore returns a score for the characters of a name that can imitate others. Of two names
// that look alike, the one with the greater score is the impostor.
func disguiseScore(name string) (n int) {
	for _, r := range name {
		switch {
		case r >= 0x80:
			n += nonASCIIScore
		case r >= '0' && r <= '9', r == '|', r >= 'A' && r <= 'Z':
			n += 10
		}
	}
	return n + strings.Count(name, "rn") + strings.Count(name, "vv")
}
