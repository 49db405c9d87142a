package pii

import (
	"slices"

	"github.com/nyaruka/phonenumbers"
)

// findInternationalPhone looks for a phone number with its country's code: behind "+", or behind
// "00" where a word says that it is a phone number.
func (t *search) findInternationalPhone(n *digitGroups) (int, bool) {
	if !t.enabled[kindPhone] || n.groups[n.count-1].total < 7 {
		return 0, false
	}
	s, from, skip := t.text, n.groups[0].from, 0
	switch at := t.plusBefore(from); {
	case at >= 0:
		from = at
	case n.digits[0] == 0 && n.digits[1] == 0 && n.digits[2] != 0 && isWordStart(s, from):
		if t.contextEvidence(from, n.groups[n.count-1].to, topicPhone, topicOther) != supports {
			return 0, false
		}
		skip = 2
	default:
		return 0, false
	}
	tries := 0
	for w := n.count; w > 0 && tries < maxPhoneLengths; w-- {
		sum, to := n.groups[w-1].total-skip, n.groups[w-1].to
		// +1.2345678 is a fraction
		if sum < 7 || sum > 15 || !isWordEnd(s, to) || w == 2 && n.groups[1].separator == '.' &&
			n.groups[0].len() < 4 {
			continue
		}
		if t.checkContext(); t.err != nil {
			return len(s), true
		}
		tries++
		if t.isValidPhone("+"+digitString(n.digits[skip:sum+skip]), "") {
			return t.report(kindPhone, "phone", from, to), true
		}
	}
	return 0, false
}

// maxPhoneLengths bounds how many parts of one number are asked about.
const maxPhoneLengths = 3

// plusBefore answers where the "+" is before the digit at i, with nothing but a parenthesis or a
// blank between; -1 when there is none.
func (t *search) plusBefore(i int) int {
	k := i
	for k > 0 && i-k < 2 && (t.text[k-1] == '(' || t.text[k-1] == ' ') {
		k--
	}
	if k == 0 || t.text[k-1] != '+' || k > 1 && (isAlnum(t.text[k-2]) || t.text[k-2] == '+') &&
		!isEscapeLetter(t.text,
			k-2) {
		return -1
	}
	return k - 1
}

// defaultRegions are the countries that are tried when no locale is set and a word says that it is
// a phone number.
var defaultRegions = []string{"US", "GB", "DE", "FR", "ES", "IT"}

// findLocalPhone looks for a phone number as it is written within its country.
func (t *search) findLocalPhone(v candidate) (int, bool) {
	if !v.isAlone() || !isWordStart(t.text, v.from) || !isWordEnd(t.text, v.to) ||
		t.plusBefore(v.from) >= 0 ||
		t.isFraction(v.from) || v.startsWithDate() || len(v.digits) < 7 || len(v.groups) > 7 {
		return 0, false
	}
	from, paren := v.from, false
	if from > 0 && t.text[from-1] == '(' && len(v.groups) > 1 && v.groups[1].separator == '(' {
		from, paren = from-1, true
	}
	points, short := 0, 0
	for i, g := range v.groups {
		if g.len() < 2 && i > 0 {
			short++
		}
		if g.separator == '.' {
			points++
		}
		if g.len() > 8 && len(v.groups) > 1 || g.separator == '/' && i > 1 || g.separator == '(' &&
			i > 1 {
			return 0, false
		}
	}
	if short > 1 || points > 0 && (points < len(v.groups)-1 || len(v.groups) < 3) {
		return 0, false
	}
	says := t.contextEvidence(v.from, v.to, topicPhone, topicOther|topicAnyID)
	if says == contradicts {
		return 0, false
	}
	nanp := v.hasShape("3 3 4", " -.(") || v.hasShape("1 3 3 4", " -.(")
	trunk := v.digits[0] == 0 && len(v.groups) > 1 && v.groups[0].len() > 1 && short == 0
	likely := says == supports || len(t.locales) > 0 && (paren || nanp || trunk)
	if !likely || isInUUID(t.text, v.from) {
		return 0, false
	}
	if t.checkContext(); t.err != nil {
		return len(t.text), true
	}
	regions := t.locales
	if len(regions) == 0 {
		regions = defaultRegions
		switch {
		case nanp:
			regions = defaultRegions[:1]
		case v.digits[0] == 0:
			regions = defaultRegions[1:]
		}
	}
	written := digitString(v.digits)
	if slices.ContainsFunc(regions, func(r string) bool { return t.isValidPhone(written, r) }) {
		return t.report(kindPhone, "phone", from, v.to), true
	}
	return 0, false
}

// startsWithDate says whether the number begins with a date.
func (v candidate) startsWithDate() bool {
	if len(v.groups) < 3 {
		return false
	}
	a, b, c := v.groups[0].len(), v.groups[1].len(), v.groups[2].len()
	if sep := v.groups[1].separator; sep != v.groups[2].separator || sep == '(' {
		return false
	}
	return b <= 2 && (a == 4 && c <= 2 || a <= 2 && c == 4 && v.digits[0] <= 3)
}

// digitString is the digits as a text.
func digitString(digits []byte) string {
	b := make([]byte, len(digits))
	for i, d := range digits {
		b[i] = d + '0'
	}
	return string(b)
}

// maxPhoneLookups bounds the numbers of one message that the library is asked about: it takes some
// 20 µs for each. What looks like a phone number beyond counts as one, unasked: a directory of many
// thousands is not let through for being long.
const maxPhoneLookups = 10_000

// isValidPhone says whether there can be such a phone number, in the region if one is given.
func (t *search) isValidPhone(number, region string) bool {
	if t.phoneLookups++; t.phoneLookups > maxPhoneLookups {
		return true
	}
	p, err := phonenumbers.Parse(number, region)
	if err != nil {
		return false
	}
	if region == "" {
		return phonenumbers.IsValidNumber(p)
	}
	return phonenumbers.IsValidNumberForRegion(p, region)
}
