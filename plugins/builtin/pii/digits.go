package pii

import (
	"context"
	"strings"
)

// maxDigits is the number of digits of the longest personal number.
const maxDigits = 19

// group is a run of digits in a number.
type group struct {
	from, to int
	total    int // number of digits up to the end of this group
	// the spacer before the group: 'x' for several spacers, '(' if one of them is a parenthesis,
	// 0 for no spacer
	separator byte
}

func (g group) len() int { return g.to - g.from }

// digitGroups is a number that is written in groups.
type digitGroups struct {
	digits    [maxDigits]byte // values from 0 to 9
	groups    [maxDigits]group
	count     int  // number of groups
	truncated bool // the number goes on with a group beyond maxDigits
}

// parse reads the groups of the number that begins at s[i]. Up to three spacers separate two
// groups.
func (n *digitGroups) parse(s string, i int) {
	var sep byte
	for {
		end := i
		for end < len(s) && isDigit(s[end]) {
			end++
		}
		total := end - i
		if n.count > 0 {
			total += n.groups[n.count-1].total
		}
		if total > maxDigits {
			n.truncated = true
			return
		}
		for k := i; k < end; k++ {
			n.digits[total-(end-k)] = s[k] - '0'
		}
		n.groups[n.count] = group{i, end, total, sep}
		n.count++
		for i = end; i < len(s) && i < end+3 && byteClasses[s[i]]&spacerByte != 0; i++ {
		}
		if i == end || i >= len(s) || !isDigit(s[i]) {
			return
		}
		sep = s[end]
		for _, c := range []byte(s[end:i]) {
			switch {
			case c == '(' || c == ')':
				sep = '('
			case i > end+1 && sep != '(':
				sep = 'x'
			}
		}
	}
}

// findInDigits examines the number at i. It returns where the search goes on: after the detection,
// or after the first group of the number.
func (t *search) findInDigits(ctx context.Context, i int) int {
	n := &t.current
	n.count, n.truncated = 0, false
	n.parse(t.text, i)
	if n.count == 0 { // more digits in one run than any personal number has
		for i < len(t.text) && isDigit(t.text[i]) {
			i++
		}
		return i
	}
	if to, ok := t.findCorsicanNIR(n); ok {
		return to
	}
	if to, ok := t.findInternationalPhone(ctx, n); ok {
		return to
	}
	for count := n.count; count > 0 && n.groups[count-1].total >= 7; count-- {
		if to, ok := t.findInGroups(ctx, n, count); ok {
			return to
		}
	}
	return n.groups[0].to
}

// findInGroups examines the first count groups of a number.
func (t *search) findInGroups(ctx context.Context, n *digitGroups, count int) (to int, ok bool) {
	v := candidate{groups: n.groups[:count], digits: n.digits[:n.groups[count-1].total],
		from: n.groups[0].from, to: n.groups[count-1].to}
	if v.from > 1 && byteClasses[t.text[v.from-1]]&spacerByte != 0 && isDigit(t.text[v.from-2]) {
		v.before = t.text[v.from-1]
	}
	switch {
	case count < n.count:
		v.after = n.groups[count].separator
	case n.truncated:
		v.after = 'x'
		if v.to < len(t.text) && byteClasses[t.text[v.to]]&spacerByte != 0 {
			v.after = t.text[v.to]
		}
	}
	if t.enabled[kindCard] && len(v.digits) >= 12 {
		if to, ok := t.findCard(v); ok {
			return to, true
		}
	}
	if t.enabled[kindNationalID] && len(v.digits) >= 8 {
		if to, ok := t.findNationalID(v); ok {
			return to, true
		}
	}
	if t.enabled[kindPhone] && len(v.digits) <= 15 {
		return t.findLocalPhone(ctx, v)
	}
	return 0, false
}

// candidate holds the first groups of a number. These groups alone may be a personal number.
type candidate struct {
	groups   []group
	digits   []byte
	from, to int
	before   byte // the spacer between the candidate and a digit before it; 0 for none
	after    byte // the spacer between the candidate and a digit after it; 0 for none
}

// hasShape reports whether the groups have the lengths in shape, such as "3 2 4", and separators
// from seps only.
func (v candidate) hasShape(shape string, seps string) bool {
	k := 0
	for i, g := range v.groups {
		if i > 0 {
			if k >= len(shape) || shape[k] != ' ' || !containsByte(seps, g.separator) {
				return false
			}
			k++
		}
		if k >= len(shape) || int(shape[k]-'0') != g.len() {
			return false
		}
		k++
	}
	return k == len(shape)
}

func containsByte(set string, c byte) bool { return strings.IndexByte(set, c) >= 0 }

// isAlone reports whether the candidate is not part of a longer number with points, hyphens or
// slashes.
func (v candidate) isAlone() bool { return isLooseSeparator(v.before) && isLooseSeparator(v.after) }

// isLooseSeparator reports whether a separator may stand between two numbers that are independent.
func isLooseSeparator(sep byte) bool { return sep == 0 || sep == ' ' || sep == '(' }
