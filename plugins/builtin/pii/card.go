package pii

import (
	"strconv"
	"strings"
)

// issuer is a range of card numbers. lengths and rareLengths list how many digits a number may
// have.
type issuer struct {
	from, to    int // the range of the first digits
	lengths     string
	rareLengths string // accepted only if a word nearby is about cards
}

// issuers are the ranges of ISO/IEC 7812 that are in use for payment.
var issuers = []issuer{
	{4, 4, "16", "13 19"}, // Visa
	// Mastercard
	{51, 55, "16", ""},
	{2221, 2720, "16", ""},
	// American Express
	{34, 34, "15", ""},
	{37, 37, "15", ""},
	// Discover; 65 is RuPay, too
	{6011, 6011, "16", "17 18 19"},
	{644, 649, "16", "17 18 19"},
	{65, 65, "16", "17 18 19"},
	// Diners Club
	{300, 305, "14", "15 16 17 18 19"},
	{3095, 3095, "14", "15 16 17 18 19"},
	{36, 36, "14", "15 16 17 18 19"},
	{38, 39, "14", "15 16 17 18 19"},
	{3528, 3589, "16", "17 18 19"}, // JCB
	// UnionPay
	{62, 62, "16 17 18 19", ""},
	{8100, 8171, "16 17 18 19", ""},
	{2200, 2204, "16", "17 18 19"}, // Mir
	// Maestro
	{5018, 5018, "16 19", "12 13 14 15 17 18"},
	{5020, 5020, "16 19", "12 13 14 15 17 18"},
	{5038, 5038, "16 19", "12 13 14 15 17 18"},
	{5893, 5893, "16 19", "12 13 14 15 17 18"},
	{6304, 6304, "16 19", "12 13 14 15 17 18"},
	{6759, 6759, "16 18 19", "12 13 14 15 17"},
	{6761, 6763, "16 18 19", "12 13 14 15 17"},
	{5060, 5061, "16 19", ""}, // Verve
	{5085, 5089, "16", ""},    // RuPay
	{6062, 6062, "16", ""},    // Hipercard
	{6069, 6086, "16", ""},    // RuPay
	{9792, 9792, "16", ""},    // Troy
}

// issuersByPrefix are the issuers by the first two digits of their numbers. The index rejects most
// numbers at once, because they belong to no issuer.
var issuersByPrefix = func() (b [100][]issuer) {
	for _, is := range issuers {
		from, to := is.from, is.to
		for ; to >= 100; from, to = from/10, to/10 {
		}
		if to < 10 {
			from, to = from*10, to*10+9
		}
		for i := from; i <= to; i++ {
			b[i] = append(b[i], is)
		}
	}
	return b
}()

// matchIssuer reports whether an issuer has numbers that begin with these digits and have this
// length. rare reports whether the length is in the issuer's rareLengths.
func matchIssuer(digits []byte) (ok, rare bool) {
	for _, is := range issuersByPrefix[digits[0]*10+digits[1]] {
		n := digitsValue(digits[:len(strconv.Itoa(is.to))])
		if n < is.from || n > is.to {
			continue
		}
		length := strconv.Itoa(len(digits))
		if strings.Contains(is.lengths, length) {
			return true, false
		}
		if strings.Contains(is.rareLengths, length) {
			ok, rare = true, true
		}
	}
	return ok, rare
}

// findCard reports the candidate as a detection if it is the number of a payment card.
func (t *search) findCard(v candidate) (to int, ok bool) {
	hasIssuer, rare := matchIssuer(v.digits)
	if !hasIssuer || !luhn(v.digits) || !t.isGroupedLikeCard(v) || allEqual(v.digits) {
		return 0, false
	}
	if v.before == '.' || v.after == '.' && len(v.groups) == 1 || v.before == '(' ||
		!isWordStart(t.text, v.from) || !isWordEnd(t.text, v.to) || isInUUID(t.text, v.from) ||
		t.isFraction(v.from) {
		return 0, false
	}
	evidence := t.contextEvidence(v.from, v.to, topicCard, topicOther)
	if rare && evidence != supports || len(v.groups) == 1 && evidence == contradicts {
		return 0, false
	}
	return t.report(kindCard, "card", v.from, v.to), true
}

// isGroupedLikeCard reports whether the candidate is written as card numbers are: in one run, in
// groups of four digits or more, or in groups of equal length. A candidate must not be part of a
// longer list of numbers.
func (t *search) isGroupedLikeCard(v candidate) bool {
	first, last := v.groups[0].len(), len(v.groups)-1
	regular := true
	for i, g := range v.groups {
		if g.separator == '(' {
			return false
		}
		regular = regular && (g.len() == first || i == last && g.len() < first)
		if i > 0 && i < last && g.len() < 3 && !regular {
			return false
		}
	}
	if last == 0 {
		return true
	}
	if !regular && (first < 4 || v.groups[last].len() < 3) {
		return false
	}
	neighbours := t.similarNeighbours(v.from, first, -1) + t.similarNeighbours(v.to, first, 1)
	if first < 3 {
		return neighbours == 0 && v.before == 0 && v.after == 0
	}
	return neighbours < 2 || t.contextEvidence(v.from, v.to, topicCard, topicOther) == supports
}

// similarNeighbours returns how many groups with the given length are next to i: 0, 1 or 2. It
// looks before i (step -1) or after i (step 1). Spacers separate the groups.
func (t *search) similarNeighbours(i, length, step int) (n int) {
	for ; n < 2; n++ {
		from, to, spacer := i+1, i+1+length, i
		if step < 0 {
			from, to, spacer = i-1-length, i-1, i-1
		}
		if from < 0 || to > len(t.text) || byteClasses[t.text[spacer]]&spacerByte == 0 ||
			step < 0 && !isWordStart(t.text, from) || step > 0 && !isWordEnd(t.text, to) {
			return n
		}
		for k := from; k < to; k++ {
			if !isDigit(t.text[k]) {
				return n
			}
		}
		if i = to; step < 0 {
			i = from
		}
	}
	return n
}

// allEqual reports whether all digits are the same.
func allEqual(digits []byte) bool {
	for _, d := range digits {
		if d != digits[0] {
			return false
		}
	}
	return true
}

// isFraction reports whether the digits at i stand behind a decimal point or comma.
func (t *search) isFraction(i int) bool {
	return i > 1 && (t.text[i-1] == '.' || t.text[i-1] == ',') && isDigit(t.text[i-2])
}

// isInUUID reports whether i is within a UUID, which has the form 8-4-4-4-12.
func isInUUID(s string, i int) bool {
	from := i
	for from > 0 && i-from < 36 && (byteClasses[s[from-1]]&hexByte != 0 || s[from-1] == '-') {
		from--
	}
	if len(s)-from < 36 {
		return false
	}
	for k := range 36 {
		if k == 8 || k == 13 || k == 18 || k == 23 {
			if s[from+k] != '-' {
				return false
			}
		} else if byteClasses[s[from+k]]&hexByte == 0 {
			return false
		}
	}
	return from+36 == len(s) || !isAlnum(s[from+36])
}

// integerForm returns a JSON number without exponent and fraction if its value is an integer. It
// returns other numbers unchanged.
func integerForm(s string) string {
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e < 0 || e > maxDigits {
			return s
		}
		mantissa, exponent = s[:i], e
	}
	units, fraction, _ := strings.Cut(mantissa, ".")
	fraction = strings.TrimRight(fraction, "0")
	if len(fraction) > exponent || len(units)+exponent > maxDigits+1 {
		return s
	}
	return units + fraction + strings.Repeat("0", exponent-len(fraction))
}
