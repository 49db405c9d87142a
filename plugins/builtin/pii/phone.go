package pii

import (
	"slices"

	"github.com/nyaruka/phonenumbers"
)

// prefixed looks for a phone number with its country's code: behind "+", or behind "00" where a
// word says that it is a phone number.
func (t *search) prefixed(n *number) (int, bool) {
	if !t.on[phone] || n.groups[n.n-1].sum < 7 {
		return 0, false
	}
	s, from, skip := t.s, n.groups[0].from, 0
	switch at := t.plus(from); {
	case at >= 0:
		from = at
	case n.digits[0] == 0 && n.digits[1] == 0 && n.digits[2] != 0 && free(s, from):
		if t.says(from, n.groups[n.n-1].to, wPhone, wOther) != inFavour {
			return 0, false
		}
		skip = 2
	default:
		return 0, false
	}
	tries := 0
	for w := n.n; w > 0 && tries < maxTries; w-- {
		sum, to := n.groups[w-1].sum-skip, n.groups[w-1].to
		// +1.2345678 is a fraction
		if sum < 7 || sum > 15 || !ends(s, to) || w == 2 && n.groups[1].sep == '.' &&
			n.groups[0].len() < 4 {
			continue
		}
		if t.slow(); t.err != nil {
			return len(s), true
		}
		tries++
		if t.valid("+"+write(n.digits[skip:sum+skip]), "") {
			return t.found(phone, "phone", from, to), true
		}
	}
	return 0, false
}

// maxTries bounds how many parts of one number are asked about.
const maxTries = 3

// plus answers where the "+" is before the digit at i, with nothing but a parenthesis or a blank
// between; -1 when there is none.
func (t *search) plus(i int) int {
	k := i
	for k > 0 && i-k < 2 && (t.s[k-1] == '(' || t.s[k-1] == ' ') {
		k--
	}
	if k == 0 || t.s[k-1] != '+' || k > 1 && (alnum(t.s[k-2]) || t.s[k-2] == '+') && !escaped(t.s,
		k-2) {
		return -1
	}
	return k - 1
}

// somewhere are the countries that are tried when no locale is set and a word says that it is a
// phone number.
var somewhere = []string{"US", "GB", "DE", "FR", "ES", "IT"}

// local looks for a phone number as it is written within its country.
func (t *search) local(v view) (int, bool) {
	if !v.alone() || !free(t.s, v.from) || !ends(t.s, v.to) || t.plus(v.from) >= 0 ||
		t.fraction(v.from) || v.dated() || len(v.digits) < 7 || len(v.groups) > 7 {
		return 0, false
	}
	from, paren := v.from, false
	if from > 0 && t.s[from-1] == '(' && len(v.groups) > 1 && v.groups[1].sep == '(' {
		from, paren = from-1, true
	}
	points, short := 0, 0
	for i, g := range v.groups {
		if g.len() < 2 && i > 0 {
			short++
		}
		if g.sep == '.' {
			points++
		}
		if g.len() > 8 && len(v.groups) > 1 || g.sep == '/' && i > 1 || g.sep == '(' && i > 1 {
			return 0, false
		}
	}
	if short > 1 || points > 0 && (points < len(v.groups)-1 || len(v.groups) < 3) {
		return 0, false
	}
	says := t.says(v.from, v.to, wPhone, wOther|wIDs)
	if says == against {
		return 0, false
	}
	nanp := v.is("3 3 4", " -.(") || v.is("1 3 3 4", " -.(")
	trunk := v.digits[0] == 0 && len(v.groups) > 1 && v.groups[0].len() > 1 && short == 0
	likely := says == inFavour || len(t.locales) > 0 && (paren || nanp || trunk)
	if !likely || inUUID(t.s, v.from) {
		return 0, false
	}
	if t.slow(); t.err != nil {
		return len(t.s), true
	}
	regions := t.locales
	if len(regions) == 0 {
		regions = somewhere
		switch {
		case nanp:
			regions = somewhere[:1]
		case v.digits[0] == 0:
			regions = somewhere[1:]
		}
	}
	written := write(v.digits)
	if slices.ContainsFunc(regions, func(r string) bool { return t.valid(written, r) }) {
		return t.found(phone, "phone", from, v.to), true
	}
	return 0, false
}

// dated says whether the number begins with a date.
func (v view) dated() bool {
	if len(v.groups) < 3 {
		return false
	}
	a, b, c := v.groups[0].len(), v.groups[1].len(), v.groups[2].len()
	if sep := v.groups[1].sep; sep != v.groups[2].sep || sep == '(' {
		return false
	}
	return b <= 2 && (a == 4 && c <= 2 || a <= 2 && c == 4 && v.digits[0] <= 3)
}

// write is the digits as a text.
func write(digits []byte) string {
	b := make([]byte, len(digits))
	for i, d := range digits {
		b[i] = d + '0'
	}
	return string(b)
}

// maxAsked bounds the numbers of one message that the library is asked about: it takes some 20 µs
// for each. What looks like a phone number beyond counts as one, unasked: a directory of many
// thousands is not let through for being long.
const maxAsked = 10_000

// valid says whether there can be such a phone number, in the region if one is given.
func (t *search) valid(number, region string) bool {
	if t.asked++; t.asked > maxAsked {
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
