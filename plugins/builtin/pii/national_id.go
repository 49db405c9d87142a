package pii

import "time"

// idCode numbers the national ids.
type idCode uint8

const (
	beNational idCode = iota
	brCPF
	caSIN
	deSteuerID
	esDNI
	esNIE
	frNIR
	gbNHS
	gbNINO
	inAadhaar
	itCodiceFiscale
	nlBSN
	plPESEL
	sePersonnummer
	usSSN
	numIDs
)

// requirement is what must be there beside a number that is right in itself, since many numbers
// are.
type requirement uint8

const (
	noContext    requirement = iota
	localeOrWord             // the country is among the locales, or a word
	wordNearby               // a word like "ssn" near it
)

// idFormat is an id that states give to persons.
type idFormat struct {
	code       idCode
	name       string
	country    string
	topics     topic
	isValid    func(digits []byte) bool // of those that are digits only
	lengths    []int                    // how many digits
	shapes     []string                 // how it is written in groups
	separators string                   // what may be between them
	grouped    requirement              // when it is written so
	plain      requirement              // when it is written in one
	odd        requirement              // when it is written in other groups
	// specimen is one that is found in any case.
	specimen string
}

var idFormats = []idFormat{
	{code: beNational, name: "be-national-number", country: "BE", topics: topicBelgium,
		isValid: isBelgianNumber,
		lengths: []int{11}, shapes: []string{"2 2 2 3 2", "6 3 2", "6 5"}, separators: ".- /",
		grouped: noContext, plain: localeOrWord, odd: wordNearby,
		specimen: "85.07.30-033.28"},
	{code: brCPF, name: "br-cpf", country: "BR", topics: topicCPF, isValid: isCPF,
		lengths: []int{11},
		shapes:  []string{"3 3 3 2", "9 2"}, separators: ".-/ ", grouped: noContext,
		plain: localeOrWord,
		odd:   wordNearby, specimen: "529.982.247-25"},
	{code: caSIN, name: "ca-sin", country: "CA", topics: topicSIN, isValid: isSIN,
		lengths: []int{9},
		shapes:  []string{"3 3 3"}, separators: "- .", grouped: localeOrWord, plain: wordNearby,
		odd:      wordNearby,
		specimen: "SIN 130-692-544"},
	{code: deSteuerID, name: "de-steuer-id", country: "DE", topics: topicSteuerID,
		isValid: isSteuerID,
		lengths: []int{11}, shapes: []string{"2 3 3 3"}, separators: " -.", grouped: noContext,
		plain: localeOrWord, odd: wordNearby, specimen: "86 095 742 719"},
	{code: esDNI, name: "es-dni", country: "ES", topics: topicSpain, lengths: []int{8},
		shapes: []string{"2 3 3"}, separators: ".", grouped: noContext, plain: localeOrWord,
		odd:      wordNearby,
		specimen: "DNI 12345678Z"},
	{code: esNIE, name: "es-nie", country: "ES", topics: topicSpain, specimen: "NIE X1234567L"},
	{code: frNIR, name: "fr-nir", country: "FR", topics: topicNIR, isValid: isNIR,
		lengths: []int{15},
		shapes:  []string{"1 2 2 2 3 3 2", "13 2"}, separators: " -./", grouped: noContext,
		plain: noContext,
		odd:   wordNearby, specimen: "1 84 12 76 451 089 46"},
	{code: gbNHS, name: "gb-nhs", country: "GB", topics: topicNHS, isValid: isNHS,
		lengths: []int{10},
		shapes:  []string{"3 3 4"}, separators: " ", grouped: localeOrWord, plain: wordNearby,
		odd:      wordNearby,
		specimen: "NHS 943 476 5919"},
	{code: gbNINO, name: "gb-nino", country: "GB", topics: topicNINO, specimen: "NI AB 12 34 56 C"},
	{code: inAadhaar, name: "in-aadhaar", country: "IN", topics: topicAadhaar, isValid: isAadhaar,
		lengths: []int{12}, shapes: []string{"4 4 4"}, separators: " -", grouped: localeOrWord,
		plain: wordNearby,
		odd:   wordNearby, specimen: "Aadhaar 2341 2341 2346"},
	{code: itCodiceFiscale, name: "it-codice-fiscale", country: "IT", topics: topicFiscale,
		specimen: "RSSMRA85T10A562S"},
	{code: nlBSN, name: "nl-bsn", country: "NL", topics: topicBSN, isValid: isBSN,
		lengths: []int{9},
		shapes:  []string{"4 2 3", "3 3 3"}, separators: ". -", grouped: wordNearby,
		plain: wordNearby, odd: wordNearby,
		specimen: "BSN 111222333"},
	{code: plPESEL, name: "pl-pesel", country: "PL", topics: topicPESEL, isValid: isPESEL,
		lengths: []int{11},
		grouped: wordNearby, plain: localeOrWord, odd: wordNearby, specimen: "PESEL 44051401359"},
	{code: sePersonnummer, name: "se-personnummer", country: "SE", topics: topicPersonnummer,
		isValid: isPersonnummer, lengths: []int{10, 12}, shapes: []string{"6 4", "8 4"},
		separators: "-",
		grouped:    localeOrWord, plain: wordNearby, odd: wordNearby,
		specimen: "personnummer 811228-9874"},
	{code: usSSN, name: "us-ssn", country: "US", topics: topicSSN, isValid: isSSN,
		lengths: []int{9},
		shapes:  []string{"3 2 4"}, separators: "-", grouped: noContext, plain: wordNearby,
		odd:      wordNearby,
		specimen: "SSN 536-90-4399"},
}

// findNationalID looks for an id of digits only, or of eight and a letter.
func (t *search) findNationalID(v candidate) (int, bool) {
	if len(v.groups) > 7 || !v.isAlone() || !isWordStart(t.text, v.from) || allEqual(v.digits) ||
		t.isFraction(v.from) {
		return 0, false
	}
	if len(v.digits) == 8 {
		return t.findDNI(v)
	}
	if !isWordEnd(t.text, v.to) {
		return 0, false
	}
	for i := range idFormats {
		id := &idFormats[i]
		if id.isValid == nil || !t.enabledIDs[id.code] || !containsLength(id.lengths,
			len(v.digits)) ||
			!id.isValid(v.digits) {
			continue
		}
		if t.isPlausible(id, v) && !isInUUID(t.text, v.from) {
			return t.report(kindNationalID, id.name, v.from, v.to), true
		}
	}
	return 0, false
}

func containsLength(lengths []int, n int) bool {
	for _, l := range lengths {
		if l == n {
			return true
		}
	}
	return false
}

// isPlausible says whether there is what the id needs beside a number that is right.
func (t *search) isPlausible(id *idFormat, v candidate) bool {
	n := id.odd
	if len(v.groups) == 1 {
		n = id.plain
	}
	for _, shape := range id.shapes {
		if v.hasShape(shape, id.separators) {
			n = id.grouped
		}
	}
	if id.code == sePersonnummer && len(v.digits) == 12 && digitsValue(v.digits[:4]) >= 2010 {
		n = wordNearby // a date and a time are written so, too
	}
	for _, g := range v.groups {
		if g.separator == '(' || g.separator == 'x' {
			return false
		}
	}
	return t.meets(id, n, v.from, v.to)
}

// meets says whether what an id needs is there.
func (t *search) meets(id *idFormat, n requirement, from, to int) bool {
	if n == localeOrWord {
		n = wordNearby
		for _, l := range t.locales {
			if l == id.country {
				n = noContext
			}
		}
	}
	switch says := t.contextEvidence(from, to, id.topics|topicID,
		topicOther|topicPhone|topicAnyID&^id.topics&^topicID); n {
	case noContext:
		return says != contradicts
	case wordNearby:
		return says == supports
	}
	return false
}

// findDNI is a Spanish id of eight digits and a letter.
func (t *search) findDNI(v candidate) (int, bool) {
	s, to := t.text, v.to
	if to+1 < len(s) && (s[to] == '-' || s[to] == ' ') {
		to++
	}
	if !t.enabledIDs[esDNI] || to >= len(s) || !isLetter(s[to]) || !isWordEnd(s, to+1) ||
		s[to]&^0x20 != dniLetters[digitsValue(v.digits)%23] {
		return 0, false
	}
	id := &idFormats[esDNI]
	n := localeOrWord
	switch {
	case !isUpper(s[to]) || s[v.to] == ' ':
		n = wordNearby
	case v.hasShape("2 3 3", "."):
		n = noContext
	}
	if !t.meets(id, n, v.from, to+1) {
		return 0, false
	}
	return t.report(kindNationalID, id.name, v.from, to+1), true
}

// dniLetters are the letters that check a DNI or NIE.
const dniLetters = "TRWAGMYFPDXBNJZSQVHLCKE"

// isBelgianNumber: the date of birth, the number of the day, 97 minus the remainder. From 2000 on
// there is a 2 before it all.
func isBelgianNumber(d []byte) bool {
	if month := digitsValue(d[2:4]); month > 12 || digitsValue(d[4:6]) > 31 ||
		digitsValue(d[6:9]) == 0 {
		return false
	}
	n, check := digitsValue(d[:9]), digitsValue(d[9:])
	return 97-n%97 == check || 97-(2_000_000_000+n)%97 == check
}

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

// isSIN: those with 0 are not given out, those with 8 are businesses'.
func isSIN(d []byte) bool { return d[0] != 0 && d[0] != 8 && luhn(d) }

// isSteuerID: of the first ten digits one is there twice or three times, and no other more than
// once.
func isSteuerID(d []byte) bool {
	if d[0] == 0 {
		return false
	}
	var times [10]int
	for _, x := range d[:10] {
		times[x]++
	}
	more := 0
	for _, n := range times {
		if n > 3 {
			return false
		}
		if n > 1 {
			more++
		}
	}
	return more == 1 && mod1110(d)
}

// isNIR: the sex, the year, the month (from 20 on where it is not known), the department, the
// municipality, a number, 97 minus the remainder. Corsica is elsewhere.
func isNIR(d []byte) bool {
	return hasNIRBirth(d) && 97-digitsValue(d[:13])%97 == digitsValue(d[13:])
}

func hasNIRBirth(d []byte) bool {
	month := digitsValue(d[3:5])
	return containsByte("\x01\x02\x03\x04\x07\x08", d[0]) && (month >= 1 && month <= 12 ||
		month == 20 ||
		month >= 30 && month <= 42 || month >= 50)
}

func isNHS(d []byte) bool {
	check := 11 - weightedSum(d, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return check%11 == int(d[9]) // 10 is nobody's: no digit is
}

func isAadhaar(d []byte) bool { return d[0] > 1 && verhoeff(d) }

func isBSN(d []byte) bool { return weightedSum(d, 9, 8, 7, 6, 5, 4, 3, 2, -1)%11 == 0 }

func isPESEL(d []byte) bool {
	month, day := digitsValue(d[2:4]), digitsValue(d[4:6])
	return month%20 >= 1 && month%20 <= 12 && day >= 1 && day <= 31 && (10-weightedSum(d, 1, 3, 7,
		9,
		1, 3, 7, 9, 1, 3)%10)%10 == int(d[10])
}

// isPersonnummer: a date of birth (the day plus 60 in a coordination number), a number, Luhn over
// the last ten.
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

// isSSN: the area is not 000, 666 or 900 and more, and no part is all zeros. The two that
// advertising made known are nobody's.
func isSSN(d []byte) bool {
	area, group, serial := digitsValue(d[:3]), digitsValue(d[3:5]), digitsValue(d[5:])
	n := digitsValue(d)
	return area > 0 && area != 666 && area < 900 && group > 0 && serial > 0 && n != 78_05_1120 &&
		n != 219_09_9999
}
