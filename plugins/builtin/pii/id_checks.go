package pii

import "time"

// The functions in this file report whether digits, as values from 0 to 9, are a valid id. The
// number of digits must be one of the lengths of its idFormat.

// isBelgianNumber reports whether the digits are a date of birth, a number within the day, and 97
// minus the remainder of both by 97. For births from 2000 on, the remainder is that with a 2 in
// front.
func isBelgianNumber(d []byte) bool {
	if month := digitsValue(d[2:4]); month > 12 || digitsValue(d[4:6]) > 31 ||
		digitsValue(d[6:9]) == 0 {
		return false
	}
	n, check := digitsValue(d[:9]), digitsValue(d[9:])
	return 97-n%97 == check || 97-(2_000_000_000+n)%97 == check
}

// isCPF reports whether the last two digits are the check digits of the others.
func isCPF(d []byte) bool {
	check := func(n int) bool {
		sum := 0
		for i := range n {
			sum += int(d[i]) * (n + 1 - i)
		}
		return sum*10%11%10 == int(d[n])
	}
	return check(9) && check(10)
}

// isSIN checks the Luhn digit. Numbers that begin with 0 are not issued, and those with 8 belong to
// businesses.
func isSIN(d []byte) bool { return d[0] != 0 && d[0] != 8 && luhn(d) }

// isSteuerID checks the check digit, and that exactly one of the first ten digits occurs twice or
// three times.
func isSteuerID(d []byte) bool {
	if d[0] == 0 {
		return false
	}
	var occurrences [10]int
	for _, x := range d[:10] {
		occurrences[x]++
	}
	repeated := 0
	for _, n := range occurrences {
		if n > 3 {
			return false
		}
		if n > 1 {
			repeated++
		}
	}
	return repeated == 1 && mod1110(d)
}

// isNIR reports whether the digits are sex, year, month, department, municipality, a number, and 97
// minus the remainder of all by 97. findCorsicanNIR finds those with a letter.
func isNIR(d []byte) bool {
	return hasNIRBirth(d) && 97-digitsValue(d[:13])%97 == digitsValue(d[13:])
}

// hasNIRBirth checks the sex and the month, which is 20 or more if it is unknown.
func hasNIRBirth(d []byte) bool {
	month := digitsValue(d[3:5])
	return containsByte("\x01\x02\x03\x04\x07\x08", d[0]) && (month >= 1 && month <= 12 ||
		month == 20 || month >= 30 && month <= 42 || month >= 50)
}

func isNHS(d []byte) bool {
	check := 11 - weightedSum(d, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return check%11 == int(d[9]) // numbers with the check value 10 are not issued
}

func isAadhaar(d []byte) bool { return d[0] > 1 && verhoeff(d) }

func isBSN(d []byte) bool { return weightedSum(d, 9, 8, 7, 6, 5, 4, 3, 2, -1)%11 == 0 }

// isPESEL checks the date of birth, whose month tells the century, and the check digit.
func isPESEL(d []byte) bool {
	month, day := digitsValue(d[2:4])%20, digitsValue(d[4:6])
	check := (10 - weightedSum(d, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3)%10) % 10
	return month >= 1 && month <= 12 && day >= 1 && day <= 31 && check == int(d[10])
}

// isPersonnummer checks the date of birth, whose day is 60 higher in a coordination number, and the
// Luhn digit of the last ten digits.
func isPersonnummer(d []byte) bool {
	if len(d) == 12 {
		if year := digitsValue(d[:4]); year < 1880 || year > time.Now().Year() {
			return false
		}
		d = d[2:]
	}
	month, day := digitsValue(d[2:4]), digitsValue(d[4:6])%60
	return month >= 1 && month <= 12 && day >= 1 && day <= 31 && luhn(d)
}

// isSSN checks that the area is not 000, 666 or above 899, and that no part is all zeros. The two
// numbers that advertising made known belong to nobody.
func isSSN(d []byte) bool {
	area, group, serial := digitsValue(d[:3]), digitsValue(d[3:5]), digitsValue(d[5:])
	n := digitsValue(d)
	return area > 0 && area != 666 && area < 900 && group > 0 && serial > 0 && n != 78_05_1120 &&
		n != 219_09_9999
}
