package pii

// maxDigits is how many digits the longest number has that is looked for.
const maxDigits = 19

// group is a run of digits in a number.
type group struct {
	from, to  int
	total     int  // digits up to its end
	separator byte // what is before it: a spacer, 'x' for several; 0 before the first
}

func (g group) len() int { return g.to - g.from }

// digitGroups is a number that is written in groups.
type digitGroups struct {
	digits    [maxDigits]byte // 0 to 9
	groups    [maxDigits]group
	count     int  // groups
	truncated bool // another group follows that is not here any more
}

// parse reads the groups at i. What separates two is up to three spacers.
func (n *digitGroups) parse(s string, i int) {
	var sep byte
	for {
		end := i
		for end < len(s) && isDigit(s[end]) {
			end++
		}
		sum := end - i
		if n.count > 0 {
			sum += n.groups[n.count-1].total
		}
		if sum > maxDigits {
			n.truncated = true
			return
		}
		for k := i; k < end; k++ {
			n.digits[sum-(end-k)] = s[k] - '0'
		}
		n.groups[n.count] = group{i, end, sum, sep}
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

// findInDigits looks at the number at i and answers where to go on: behind what it found, or behind
// its first group.
func (t *search) findInDigits(i int) int {
	n := &t.current
	n.count, n.truncated = 0, false
	n.parse(t.text, i)
	if n.count == 0 { // more digits than any number has
		for i < len(t.text) && isDigit(t.text[i]) {
			i++
		}
		return i
	}
	if to, ok := t.findCorsicanNIR(n); ok {
		return to
	}
	if to, ok := t.findInternationalPhone(n); ok {
		return to
	}
	for w := n.count; w > 0 && n.groups[w-1].total >= 7; w-- {
		if to, ok := t.findInGroups(n, w); ok {
			return to
		}
	}
	return n.groups[0].to
}

// findInGroups looks at the first w groups.
func (t *search) findInGroups(n *digitGroups, w int) (int, bool) {
	v := candidate{all: n, groups: n.groups[:w], digits: n.digits[:n.groups[w-1].total],
		from: n.groups[0].from, to: n.groups[w-1].to}
	if v.from > 1 && byteClasses[t.text[v.from-1]]&spacerByte != 0 && isDigit(t.text[v.from-2]) {
		v.before = t.text[v.from-1]
	}
	switch {
	case w < n.count:
		v.after = n.groups[w].separator
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
		return t.findLocalPhone(v)
	}
	return 0, false
}

// candidate is a part of a number: its first groups.
type candidate struct {
	all      *digitGroups
	groups   []group
	digits   []byte
	from, to int
	before   byte // the spacer between it and a digit before it; 0 when there is none
	after    byte // the same for what follows
}

// shape is the lengths of the groups: "3 2 4".
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

func containsByte(set string, c byte) bool {
	for i := range len(set) {
		if set[i] == c {
			return true
		}
	}
	return false
}

// isAlone says that the number is not a part of a longer one that is written with points, hyphens
// or slashes.
func (v candidate) isAlone() bool { return isLooseSeparator(v.before) && isLooseSeparator(v.after) }

func isLooseSeparator(sep byte) bool { return sep == 0 || sep == ' ' || sep == '(' }
