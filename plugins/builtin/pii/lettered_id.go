package pii

// findLetterDigits looks for an IBAN, or an id with letters and digits, in one word. t.text[i:end]
// are digits of that word after a letter. findLetterDigits returns where the search goes on.
func (t *search) findLetterDigits(i, end int) int {
	s := t.text
	if t.enabled[kindIBAN] {
		if to, ok := t.findIBAN(i); ok {
			return to
		}
	}
	if !t.enabled[kindNationalID] {
		return end
	}
	if t.enabledIDs[gbNINO] && i > 1 && isLetter(s[i-2]) && isWordStart(s, i-2) {
		if to, ok := t.findNINO(i-2, i); ok {
			return to
		}
	}
	if t.enabledIDs[esNIE] && end-i >= 7 && isWordStart(s, i-1) {
		if to, ok := t.findNIE(i-1, i); ok {
			return to
		}
	}
	if t.enabledIDs[itCodiceFiscale] && i > 5 && isLetter(s[i-6]) {
		if to, ok := t.findCodiceFiscale(i); ok {
			return to
		}
	}
	return end
}

// findSpacedLetterDigits looks for an id with letters, a blank or hyphen, and the digits
// t.text[i:end].
func (t *search) findSpacedLetterDigits(i, end int) (to int, ok bool) {
	s := t.text
	if !t.enabled[kindNationalID] || i < 2 || s[i-1] != ' ' && s[i-1] != '-' || !isLetter(s[i-2]) {
		return 0, false
	}
	switch {
	case t.enabledIDs[gbNINO] && i > 2 && (end-i == 2 || end-i == 6) && isLetter(s[i-3]) &&
		isWordStart(s, i-3):
		return t.findNINO(i-3, i)
	case t.enabledIDs[esNIE] && end-i == 7 && isWordStart(s, i-2):
		return t.findNIE(i-2, i)
	case t.enabledIDs[itCodiceFiscale] && end-i == 2 && i > 4 && isLetter(s[i-4]):
		return t.findCodiceFiscale(i)
	}
	return 0, false
}

// findNINO looks for a British National Insurance number: two letters at index from, six digits at
// index i, and a letter. A number without the last letter needs a word nearby.
func (t *search) findNINO(from, i int) (end int, ok bool) {
	s, k := t.text, i
	for n := range 6 {
		if n > 0 && n%2 == 0 && k < len(s) && (s[k] == ' ' || s[k] == '-') {
			k++
		}
		if k >= len(s) || !isDigit(s[k]) {
			return 0, false
		}
		k++
	}
	to := k
	if k+1 < len(s) && (s[k] == ' ' || s[k] == '-') {
		k++
	}
	hasSuffix := k < len(s) && s[k]&^0x20 >= 'A' && s[k]&^0x20 <= 'D' && isWordEnd(s, k+1)
	if hasSuffix {
		to = k + 1
	}
	a, b := s[from]&^0x20, s[from+1]&^0x20
	if containsByte("DFIQUV", a) || containsByte("DFIQUVO", b) || isUnusedNINOPrefix(a, b) ||
		!isWordEnd(s, to) {
		return 0, false
	}
	required := noContext
	if !hasSuffix || !isUpper(s[from]) || !isUpper(s[from+1]) || !isUpper(s[to-1]) {
		required = wordNearby
	}
	if !t.meets(&idFormats[gbNINO], required, from, to) {
		return 0, false
	}
	return t.report(kindNationalID, "gb-nino", from, to), true
}

// isUnusedNINOPrefix reports whether no number begins with these letters.
func isUnusedNINOPrefix(a, b byte) bool {
	switch string([]byte{a, b}) {
	case "BG", "GB", "NK", "KN", "TN", "NT", "ZZ":
		return true
	}
	return false
}

// findNIE looks for a Spanish NIE, the id of a foreigner: X, Y or Z at index from, seven digits at
// index i, and a letter.
func (t *search) findNIE(from, i int) (end int, ok bool) {
	s := t.text
	first := s[from]&^0x20 - 'X'
	if first > 2 || i+8 > len(s) {
		return 0, false
	}
	n := int(first)
	for _, c := range []byte(s[i : i+7]) {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	to := i + 7
	if to+1 < len(s) && s[to] == '-' {
		to++
	}
	if !isLetter(s[to]) || !isWordEnd(s, to+1) || s[to]&^0x20 != dniLetters[n%23] {
		return 0, false
	}
	required := noContext
	if !isUpper(s[from]) || !isUpper(s[to]) {
		required = wordNearby
	}
	if !t.meets(&idFormats[esNIE], required, from, to+1) {
		return 0, false
	}
	return t.report(kindNationalID, "es-nie", from, to+1), true
}

// findCodiceFiscale looks for the Italian tax code whose digits of the year are at i: six letters,
// year, month, day, municipality, and a check letter. If two persons would have the same code,
// digits are replaced by letters, from the right. A code whose year has letters is not found.
func (t *search) findCodiceFiscale(i int) (end int, ok bool) {
	s, from := t.text, i
	for n := 0; n < 6; n++ {
		if from--; from > 0 && s[from] == ' ' && (n == 0 || n == 3) {
			from--
		}
		if from < 0 || !isLetter(s[from]) {
			return 0, false
		}
	}
	var c [16]byte
	k := from
	for n := range c {
		if k < len(s) && s[k] == ' ' && (n == 3 || n == 6 || n == 11) {
			k++
		}
		if k >= len(s) || !isAlnum(s[k]) {
			return 0, false
		}
		if c[n] = s[k]; isLetter(s[k]) {
			c[n] &^= 0x20
		}
		k++
	}
	if !isWordStart(s, from) || !isWordEnd(s, k) || !isCodiceFiscale(c) {
		return 0, false
	}
	return t.report(kindNationalID, "it-codice-fiscale", from, k), true
}

// isCodiceFiscale reports whether c, in capitals, has the form and the check letter of a tax code.
func isCodiceFiscale(c [16]byte) bool {
	const form = "aaaaaannmnnannna"
	for i := range c {
		switch form[i] {
		case 'a':
			if isDigit(c[i]) {
				return false
			}
		case 'm':
			if !containsByte("ABCDEHLMPRST", c[i]) {
				return false
			}
		case 'n':
			if !isDigit(c[i]) && !containsByte("LMNPQRSTUV", c[i]) {
				return false
			}
		}
	}
	sum := 0
	for i, x := range c[:15] {
		n := int(x - 'A')
		if isDigit(x) {
			n = int(x - '0')
		}
		if i%2 == 0 {
			n = oddPositionValues[n]
		}
		sum += n
	}
	return c[15] == byte('A'+sum%26)
}

// oddPositionValues are the values of characters in odd positions, for the check letter. The first
// position is 1.
var oddPositionValues = [26]int{1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12,
	14, 16,
	10, 22, 25, 24, 23}

// mayBeCorsican reports whether the digits s[i:end] may be the beginning of a French NIR, before
// the letter of a department of Corsica.
func mayBeCorsican(s string, i, end int) bool {
	return end-i >= 1 && end-i <= 6 && s[end-1] == '2' && end+1 < len(s) && (s[end] == 'A' ||
		s[end] == 'B') && (isDigit(s[end+1]) || byteClasses[s[end+1]]&spacerByte != 0)
}

// findCorsicanNIR looks for a French NIR of a person born in Corsica, where the department is 2A
// or 2B. n holds the digits before the letter.
func (t *search) findCorsicanNIR(n *digitGroups) (to int, ok bool) {
	last := n.groups[n.count-1]
	s, from, k := t.text, n.groups[0].from, last.to
	if !t.enabled[kindNationalID] || !t.enabledIDs[frNIR] || last.total != 6 || n.digits[5] != 2 ||
		k >= len(s) || s[k] != 'A' && s[k] != 'B' || !isWordStart(s, from) {
		return 0, false
	}
	var d [15]byte
	copy(d[:], n.digits[:6])
	// For the check digits, 2A and 2B count as 20. Then a million is subtracted for 2A, and two
	// million for 2B.
	less := 1_000_000
	if s[k] == 'B' {
		less = 2_000_000
	}
	d[6] = 0
	k++
	for i := 7; i < len(d); i++ {
		if k < len(s) && byteClasses[s[k]]&spacerByte != 0 {
			k++
		}
		if k >= len(s) || !isDigit(s[k]) {
			return 0, false
		}
		d[i] = s[k] - '0'
		k++
	}
	if !isWordEnd(s, k) || !hasNIRBirth(d[:]) ||
		97-(digitsValue(d[:13])-less)%97 != digitsValue(d[13:]) {
		return 0, false
	}
	return t.report(kindNationalID, "fr-nir", from, k), true
}
