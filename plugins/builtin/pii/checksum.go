package pii

// luhn reports whether the last digit is the Luhn checksum, as on cards and in some ids. In this
// file, the parameters named digits hold values from 0 to 9.
func luhn(digits []byte) bool {
	sum := 0
	for i := range digits {
		d := int(digits[len(digits)-1-i])
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// weightedSum returns the sum of the first digits, each times its weight.
func weightedSum(digits []byte, weights ...int) int {
	sum := 0
	for i, w := range weights {
		sum += int(digits[i]) * w
	}
	return sum
}

// digitsValue returns the number with these digits.
func digitsValue(digits []byte) int {
	n := 0
	for _, d := range digits {
		n = n*10 + int(d)
	}
	return n
}

// mod97 returns s modulo 97 (ISO 7064 MOD 97-10). s has letters and digits; the letters A to Z
// stand for 10 to 35.
func mod97(s []byte) int {
	m := 0
	for _, c := range s {
		switch {
		case isDigit(c):
			m = (m*10 + int(c-'0')) % 97
		default:
			m = (m*100 + int(c|0x20-'a') + 10) % 97
		}
	}
	return m
}

// mod1110 reports whether the last digit is the check digit of ISO 7064 MOD 11,10.
func mod1110(digits []byte) bool {
	p := 10
	for _, d := range digits[:len(digits)-1] {
		s := (int(d) + p) % 10
		if s == 0 {
			s = 10
		}
		p = s * 2 % 11
	}
	return (11-p)%10 == int(digits[len(digits)-1])
}

// verhoeff reports whether the last digit is the Verhoeff checksum: see dihedral and permuted.
func verhoeff(digits []byte) bool {
	c := byte(0)
	for i := range digits {
		c = dihedral[c][permuted[i%8][digits[len(digits)-1-i]]]
	}
	return c == 0
}

var (
	// dihedral is the multiplication table of the dihedral group of order 10.
	dihedral = [10][10]byte{
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		{1, 2, 3, 4, 0, 6, 7, 8, 9, 5},
		{2, 3, 4, 0, 1, 7, 8, 9, 5, 6},
		{3, 4, 0, 1, 2, 8, 9, 5, 6, 7},
		{4, 0, 1, 2, 3, 9, 5, 6, 7, 8},
		{5, 9, 8, 7, 6, 0, 4, 3, 2, 1},
		{6, 5, 9, 8, 7, 1, 0, 4, 3, 2},
		{7, 6, 5, 9, 8, 2, 1, 0, 4, 3},
		{8, 7, 6, 5, 9, 3, 2, 1, 0, 4},
		{9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
	}
	// permuted[place%8][digit] is the digit that replaces a digit at a place.
	permuted = [8][10]byte{
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		{1, 5, 7, 6, 2, 8, 3, 0, 9, 4},
		{5, 8, 0, 3, 7, 9, 6, 1, 4, 2},
		{8, 9, 1, 6, 0, 4, 3, 5, 2, 7},
		{9, 4, 5, 3, 1, 2, 6, 8, 7, 0},
		{4, 2, 8, 6, 5, 7, 3, 9, 0, 1},
		{2, 7, 9, 3, 8, 0, 6, 4, 1, 5},
		{7, 0, 4, 6, 9, 1, 3, 2, 5, 8},
	}
)
