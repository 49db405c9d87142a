package pii

import "time"

// The functions in this file report whether the digits d are a valid id. Each byte of d is a value
// from 0 to 9, and the number of digits must be one of the lengths in the id's idFormat.

// isBelgianNumber reports whether the digits are a Belgian national number: a date of birth, a
// number within the day, and two check digits. The check digits are 97 minus the remainder of the
// other digits modulo 97. For births from 2000 on, a 2 is put before the other digits to calculate
// the remainder.
func isBelgianNumber(d []byte) bool {
	if month := digitsValue(d[2:4]); month > 12 || digitsValue(d[4:6]) > 31 ||
		digitsValue(d[6:9]) == 0 {
		return false
	}
	n, check := digitsValue(d[:9]), digitsValue(d[9:])
	return 97-n%97 == check || 97-(2_000_000_000+n)%97 == check
}

// isCPF reports whether the last two digits of a Brazilian CPF are the check digits of the others.
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

// isSIN reports whether the Luhn digit of a Canadian social insurance number is right. Numbers that
// begin with 0 are not issued, and those that begin with 8 belong to businesses.
func isSIN(d []byte) bool { return d[0] != 0 && d[0] != 8 && luhn(d) }

// isSteuerID reports whether the check digit of a German tax id is right, and exactly one value
// occurs twice or three times among the first ten digits.
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

// isNIR reports whether the digits are a French NIR: sex, year, month, department, municipality, a
// number, and two check digits. The check digits are 97 minus the remainder of the other digits
// modulo 97. For people born in Corsica, whose NIR contains a letter, see findCorsicanNIR.
func isNIR(d []byte) bool {
	return hasNIRBirth(d) && 97-digitsValue(d[:13])%97 == digitsValue(d[13:])
}

// hasNIRBirth reports whether the sex and the month of an NIR are valid. A month that is unknown is
// written as 20, 30 to 42, or 50 and more.
func hasNIRBirth(d []byte) bool {
	month := digitsValue(d[3:5])
	return containsByte("\x01\x02\x03\x04\x07\x08", d[0]) && (month >= 1 && month <= 12 ||
		month == 20 || month >= 30 && month <= 42 || month >= 50)
}

// isNHS reports whether the check digit of a British NHS number is right.
func isNHS(d []byte) bool {
	check := 11 - weightedSum(d, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return check%11 == int(d[9]) // numbers with the check value 10 are not issued
}

// isAadhaar reports whether the check digit of an Indian Aadhaar number is right. The first digit
// is at least 2.
func isAadhaar(d []byte) bool { return d[0] > 1 && verhoeff(d) }

// isBSN reports whether the weighted sum of a Dutch BSN is a multiple of 11.
func isBSN(d []byte) bool { return weightedSum(d, 9, 8, 7, 6, 5, 4, 3, 2, -1)%11 == 0 }

// isPESEL reports whether the date of birth and the check digit of a Polish PESEL are valid. The
// multiple of 20 that is added to the month stands for the century.
func isPESEL(d []byte) bool {
	month, day := digitsValue(d[2:4])%20, digitsValue(d[4:6])
	check := (10 - weightedSum(d, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3)%10) % 10
	return month >= 1 && month <= 12 && day >= 1 && day <= 31 && check == int(d[10])
}

// isPersonnummer reports whether the date of birth and the Luhn digit of a Swedish personnummer are
// valid. The Luhn digit covers the last ten digits. A coordination number adds 60 to the day.
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

// isSSN reports whether the digits may be a US social security number: the area is not 000, 666 or
// above 899, and no part is all zeros. Two numbers are excluded, because advertisements printed
// them and nobody has them.
func isSSN(d []byte) bool {
	area, group, serial := digitsValue(d[:3]), digitsValue(d[3:5]), digitsValue(d[5:])
	n := digitsValue(d)
	return area > 0 && area != 666 && area < 900 && group > 0 && serial > 0 && n != 78_05_1120 &&
		n != 219_09_9999
}
