package pii

// maxDigits is how many digits the longest number has that is looked for.
const maxDigits = 19

// group is a run of digits in a number.
type group struct {
	from, to int
	sum      int  // digits up to its end
	sep      byte // what is before it: a spacer, 'x' for several; 0 before the first
}

func (g group) len() int { return g.to - g.from }

// number is a number that is written in groups.
type number struct {
	digits [maxDigits]byte // 0 to 9
	groups [maxDigits]group
	n      int  // groups
	open   bool // another group follows that is not here any more
}

// gather reads the groups at i. What separates two is up to three spacers.
func (n *number) gather(s string, i int) {
	var sep byte
	for {
		end := i
		for end < len(s) && digit(s[end]) {
			end++
		}
		sum := end - i
		if n.n > 0 {
			sum += n.groups[n.n-1].sum
		}
		if sum > maxDigits {
			n.open = true
			return
		}
		for k := i; k < end; k++ {
			n.digits[sum-(end-k)] = s[k] - '0'
		}
		n.groups[n.n] = group{i, end, sum, sep}
		n.n++
		for i = end; i < len(s) && i < end+3 && class[s[i]]&isSpacer != 0; i++ {
		}
		if i == end || i >= len(s) || !digit(s[i]) {
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

// digits looks at the number at i and answers where to go on: behind what it found, or behind its
// first group.
func (t *search) digits(i int) int {
	n := &t.numbered
	n.n, n.open = 0, false
	n.gather(t.s, i)
	if n.n == 0 { // more digits than any number has
		for i < len(t.s) && digit(t.s[i]) {
			i++
		}
		return i
	}
	if to, ok := t.corsica(n); ok {
		return to
	}
	if to, ok := t.prefixed(n); ok {
		return to
	}
	for w := n.n; w > 0 && n.groups[w-1].sum >= 7; w-- {
		if to, ok := t.window(n, w); ok {
			return to
		}
	}
	return n.groups[0].to
}

// window looks at the first w groups.
func (t *search) window(n *number, w int) (int, bool) {
	v := view{n: n, groups: n.groups[:w], digits: n.digits[:n.groups[w-1].sum],
		from: n.groups[0].from, to: n.groups[w-1].to}
	if v.from > 1 && class[t.s[v.from-1]]&isSpacer != 0 && digit(t.s[v.from-2]) {
		v.before = t.s[v.from-1]
	}
	switch {
	case w < n.n:
		v.after = n.groups[w].sep
	case n.open:
		v.after = 'x'
		if v.to < len(t.s) && class[t.s[v.to]]&isSpacer != 0 {
			v.after = t.s[v.to]
		}
	}
	if t.on[card] && len(v.digits) >= 12 {
		if to, ok := t.card(v); ok {
			return to, true
		}
	}
	if t.on[nationalID] && len(v.digits) >= 8 {
		if to, ok := t.national(v); ok {
			return to, true
		}
	}
	if t.on[phone] && len(v.digits) <= 15 {
		return t.local(v)
	}
	return 0, false
}

// view is a part of a number: its first groups.
type view struct {
	n        *number
	groups   []group
	digits   []byte
	from, to int
	before   byte // the spacer between it and a digit before it; 0 when there is none
	after    byte // the same for what follows
}

// shape is the lengths of the groups: "3 2 4".
func (v view) is(shape string, seps string) bool {
	k := 0
	for i, g := range v.groups {
		if i > 0 {
			if k >= len(shape) || shape[k] != ' ' || !within(seps, g.sep) {
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

func within(set string, c byte) bool {
	for i := range len(set) {
		if set[i] == c {
			return true
		}
	}
	return false
}

// alone says that the number is not a part of a longer one that is written with points, hyphens or
// slashes.
func (v view) alone() bool { return joinless(v.before) && joinless(v.after) }

func joinless(sep byte) bool { return sep == 0 || sep == ' ' || sep == '(' }
