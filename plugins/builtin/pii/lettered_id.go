package pii

// mixed looks for what has letters and digits in one word. The digits s[i:end] are behind a letter.
func (t *search) mixed(i, end int) int {
	s := t.s
	if t.on[iban] {
		if to, ok := t.account(i); ok {
			return to
		}
	}
	if !t.on[nationalID] {
		return end
	}
	if t.nationals[gbNINO] && i > 1 && letter(s[i-2]) && free(s, i-2) {
		if to, ok := t.nino(i-2, i); ok {
			return to
		}
	}
	if t.nationals[esNIE] && end-i >= 7 && free(s, i-1) {
		if to, ok := t.nie(i-1, i); ok {
			return to
		}
	}
	if t.nationals[itCodiceFiscale] && i > 5 && letter(s[i-6]) {
		if to, ok := t.codiceFiscale(i); ok {
			return to
		}
	}
	return end
}

// afterLetters looks for what has letters, a spacer, and the digits s[i:end].
func (t *search) afterLetters(i, end int) (int, bool) {
	s := t.s
	if !t.on[nationalID] || i < 2 || s[i-1] != ' ' && s[i-1] != '-' || !letter(s[i-2]) {
		return 0, false
	}
	switch {
	case t.nationals[gbNINO] && i > 2 && (end-i == 2 || end-i == 6) && letter(s[i-3]) && free(s,
		i-3):
		return t.nino(i-3, i)
	case t.nationals[esNIE] && end-i == 7 && free(s, i-2):
		return t.nie(i-2, i)
	case t.nationals[itCodiceFiscale] && end-i == 2 && i > 4 && letter(s[i-4]):
		return t.codiceFiscale(i)
	}
	return 0, false
}

// nino looks for a British National Insurance number: two letters at from, six digits from i on, a
// letter.
func (t *search) nino(from, i int) (int, bool) {
	s, k := t.s, i
	for n := range 6 {
		if n > 0 && n%2 == 0 && k < len(s) && (s[k] == ' ' || s[k] == '-') {
			k++
		}
		if k >= len(s) || !digit(s[k]) {
			return 0, false
		}
		k++
	}
	to := k
	if k+1 < len(s) && (s[k] == ' ' || s[k] == '-') {
		k++
	}
	suffix := k < len(s) && s[k]&^0x20 >= 'A' && s[k]&^0x20 <= 'D' && ends(s, k+1)
	if suffix {
		to = k + 1
	}
	a, b := s[from]&^0x20, s[from+1]&^0x20
	if within("DFIQUV", a) || within("DFIQUVO", b) || within("BGGBNKKNTNNTZZ", a) && ninoNever(a,
		b) || !ends(s, to) {
		return 0, false
	}
	more := nothing
	if !suffix || !capital(s[from]) || !capital(s[from+1]) || !capital(s[to-1]) {
		more = aWord
	}
	if !t.has(&nationals[gbNINO], more, from, to) {
		return 0, false
	}
	return t.found(nationalID, "gb-nino", from, to), true
}

// ninoNever says that the letters are kept for other things.
func ninoNever(a, b byte) bool {
	switch string([]byte{a, b}) {
	case "BG", "GB", "NK", "KN", "TN", "NT", "ZZ":
		return true
	}
	return false
}

// nie looks for the id of a foreigner in Spain: X, Y or Z at from, seven digits from i on, a
// letter.
func (t *search) nie(from, i int) (int, bool) {
	s := t.s
	first := s[from]&^0x20 - 'X'
	if first > 2 || i+8 > len(s) {
		return 0, false
	}
	n := int(first)
	for _, c := range []byte(s[i : i+7]) {
		if !digit(c) {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	to := i + 7
	if to+1 < len(s) && s[to] == '-' {
		to++
	}
	if !letter(s[to]) || !ends(s, to+1) || s[to]&^0x20 != spanish[n%23] {
		return 0, false
	}
	more := nothing
	if !capital(s[from]) || !capital(s[to]) {
		more = aWord
	}
	if !t.has(&nationals[esNIE], more, from, to+1) {
		return 0, false
	}
	return t.found(nationalID, "es-nie", from, to+1), true
}

// codiceFiscale looks for the Italian tax code whose digits of the year are at i: six letters,
// year, month, day, municipality, a check letter. Where two persons would have the same, digits are
// written as letters, from the right; the years' come last, and are asked for here.
func (t *search) codiceFiscale(i int) (int, bool) {
	s, from := t.s, i
	for n := 0; n < 6; n++ {
		if from--; from > 0 && s[from] == ' ' && (n == 0 || n == 3) {
			from--
		}
		if from < 0 || !letter(s[from]) {
			return 0, false
		}
	}
	var c [16]byte
	k := from
	for n := range c {
		if k < len(s) && s[k] == ' ' && (n == 3 || n == 6 || n == 11) {
			k++
		}
		if k >= len(s) || !alnum(s[k]) {
			return 0, false
		}
		if c[n] = s[k]; letter(s[k]) {
			c[n] &^= 0x20
		}
		k++
	}
	if !free(s, from) || !ends(s, k) || !fiscal(c) {
		return 0, false
	}
	return t.found(nationalID, "it-codice-fiscale", from, k), true
}

// fiscal says whether c is a codice fiscale.
func fiscal(c [16]byte) bool {
	const form = "aaaaaannmnnannna"
	for i := range c {
		switch form[i] {
		case 'a':
			if digit(c[i]) {
				return false
			}
		case 'm':
			if !within("ABCDEHLMPRST", c[i]) {
				return false
			}
		case 'n':
			if !digit(c[i]) && !within("LMNPQRSTUV", c[i]) {
				return false
			}
		}
	}
	sum := 0
	for i, x := range c[:15] {
		n := int(x - 'A')
		if digit(x) {
			n = int(x - '0')
		}
		if i%2 == 0 {
			n = fiscalOdd[n]
		}
		sum += n
	}
	return c[15] == byte('A'+sum%26)
}

// fiscalOdd are the values of characters in odd places.
var fiscalOdd = [26]int{1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16,
	10, 22, 25, 24, 23}

// corsican says whether the digits s[i:end] may be the part of a French number before the letter of
// a department of Corsica.
func corsican(s string, i, end int) bool {
	return end-i >= 1 && end-i <= 6 && s[end-1] == '2' && end+1 < len(s) && (s[end] == 'A' ||
		s[end] == 'B') && (digit(s[end+1]) || class[s[end+1]]&isSpacer != 0)
}

// corsica looks for a French number of someone born in Corsica: 2A or 2B is the department. n is
// the part before the letter.
func (t *search) corsica(n *number) (int, bool) {
	last := n.groups[n.n-1]
	s, from, k := t.s, n.groups[0].from, last.to
	if !t.on[nationalID] || !t.nationals[frNIR] || last.sum != 6 || n.digits[5] != 2 ||
		k >= len(s) || s[k] != 'A' && s[k] != 'B' || !free(s, from) {
		return 0, false
	}
	var d [15]byte
	copy(d[:], n.digits[:6])
	less := 1_000_000 // 2A counts as 20 less one million
	if s[k] == 'B' {
		less = 2_000_000
	}
	d[6] = 0
	k++
	for i := 7; i < len(d); i++ {
		if k < len(s) && class[s[k]]&isSpacer != 0 {
			k++
		}
		if k >= len(s) || !digit(s[k]) {
			return 0, false
		}
		d[i] = s[k] - '0'
		k++
	}
	if !ends(s, k) || !nirBorn(d[:]) || 97-(value(d[:13])-less)%97 != value(d[13:]) {
		return 0, false
	}
	return t.found(nationalID, "fr-nir", from, k), true
}
