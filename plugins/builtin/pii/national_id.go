package pii

import "time"

// code numbers the national ids.
type code uint8

const (
	beNational code = iota
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
	codes
)

// need is what must be there beside a number that is right in itself, since many numbers are.
type need uint8

const (
	nothing need = iota
	locale       // the country is among the locales, or a word
	aWord        // a word like "ssn" near it
)

// stateID is an id that states give to persons.
type stateID struct {
	code    code
	name    string
	country string
	words   word
	right   func(digits []byte) bool // of those that are digits only
	length  []int                    // how many digits
	shapes  []string                 // how it is written in groups
	seps    string                   // what may be between them
	grouped need                     // when it is written so
	plain   need                     // when it is written in one
	odd     need                     // when it is written in other groups
	// specimen is one that is found in any case.
	specimen string
}

var nationals = []stateID{
	{code: beNational, name: "be-national-number", country: "BE", words: wBelgium, right: belgian,
		length: []int{11}, shapes: []string{"2 2 2 3 2", "6 3 2", "6 5"}, seps: ".- /",
		grouped: nothing, plain: locale, odd: aWord,
		specimen: "85.07.30-033.28"},
	{code: brCPF, name: "br-cpf", country: "BR", words: wCPF, right: cpf, length: []int{11},
		shapes: []string{"3 3 3 2", "9 2"}, seps: ".-/ ", grouped: nothing, plain: locale,
		odd: aWord, specimen: "529.982.247-25"},
	{code: caSIN, name: "ca-sin", country: "CA", words: wSIN, right: sin, length: []int{9},
		shapes: []string{"3 3 3"}, seps: "- .", grouped: locale, plain: aWord, odd: aWord,
		specimen: "SIN 130-692-544"},
	{code: deSteuerID, name: "de-steuer-id", country: "DE", words: wSteuer, right: steuerID,
		length: []int{11}, shapes: []string{"2 3 3 3"}, seps: " -.", grouped: nothing,
		plain: locale, odd: aWord, specimen: "86 095 742 719"},
	{code: esDNI, name: "es-dni", country: "ES", words: wSpain, length: []int{8},
		shapes: []string{"2 3 3"}, seps: ".", grouped: nothing, plain: locale, odd: aWord,
		specimen: "DNI 12345678Z"},
	{code: esNIE, name: "es-nie", country: "ES", words: wSpain, specimen: "NIE X1234567L"},
	{code: frNIR, name: "fr-nir", country: "FR", words: wNIR, right: nir, length: []int{15},
		shapes: []string{"1 2 2 2 3 3 2", "13 2"}, seps: " -./", grouped: nothing, plain: nothing,
		odd: aWord, specimen: "1 84 12 76 451 089 46"},
	{code: gbNHS, name: "gb-nhs", country: "GB", words: wNHS, right: nhs, length: []int{10},
		shapes: []string{"3 3 4"}, seps: " ", grouped: locale, plain: aWord, odd: aWord,
		specimen: "NHS 943 476 5919"},
	{code: gbNINO, name: "gb-nino", country: "GB", words: wNINO, specimen: "NI AB 12 34 56 C"},
	{code: inAadhaar, name: "in-aadhaar", country: "IN", words: wAadhaar, right: aadhaar,
		length: []int{12}, shapes: []string{"4 4 4"}, seps: " -", grouped: locale, plain: aWord,
		odd: aWord, specimen: "Aadhaar 2341 2341 2346"},
	{code: itCodiceFiscale, name: "it-codice-fiscale", country: "IT", words: wFiscale,
		specimen: "RSSMRA85T10A562S"},
	{code: nlBSN, name: "nl-bsn", country: "NL", words: wBSN, right: bsn, length: []int{9},
		shapes: []string{"4 2 3", "3 3 3"}, seps: ". -", grouped: aWord, plain: aWord, odd: aWord,
		specimen: "BSN 111222333"},
	{code: plPESEL, name: "pl-pesel", country: "PL", words: wPESEL, right: pesel, length: []int{11},
		grouped: aWord, plain: locale, odd: aWord, specimen: "PESEL 44051401359"},
	{code: sePersonnummer, name: "se-personnummer", country: "SE", words: wPersonnummer,
		right: personnummer, length: []int{10, 12}, shapes: []string{"6 4", "8 4"}, seps: "-",
		grouped: locale, plain: aWord, odd: aWord,
		specimen: "personnummer 811228-9874"},
	{code: usSSN, name: "us-ssn", country: "US", words: wSSN, right: ssn, length: []int{9},
		shapes: []string{"3 2 4"}, seps: "-", grouped: nothing, plain: aWord, odd: aWord,
		specimen: "SSN 536-90-4399"},
}

// national looks for an id of digits only, or of eight and a letter.
func (t *search) national(v view) (int, bool) {
	if len(v.groups) > 7 || !v.alone() || !free(t.s, v.from) || same(v.digits) ||
		t.fraction(v.from) {
		return 0, false
	}
	if len(v.digits) == 8 {
		return t.dni(v)
	}
	if !ends(t.s, v.to) {
		return 0, false
	}
	for i := range nationals {
		id := &nationals[i]
		if id.right == nil || !t.nationals[id.code] || !has(id.length, len(v.digits)) ||
			!id.right(v.digits) {
			continue
		}
		if t.enough(id, v) && !inUUID(t.s, v.from) {
			return t.found(nationalID, id.name, v.from, v.to), true
		}
	}
	return 0, false
}

func has(lengths []int, n int) bool {
	for _, l := range lengths {
		if l == n {
			return true
		}
	}
	return false
}

// enough says whether there is what the id needs beside a number that is right.
func (t *search) enough(id *stateID, v view) bool {
	n := id.odd
	if len(v.groups) == 1 {
		n = id.plain
	}
	for _, shape := range id.shapes {
		if v.is(shape, id.seps) {
			n = id.grouped
		}
	}
	if id.code == sePersonnummer && len(v.digits) == 12 && value(v.digits[:4]) >= 2010 {
		n = aWord // a date and a time are written so, too
	}
	for _, g := range v.groups {
		if g.sep == '(' || g.sep == 'x' {
			return false
		}
	}
	return t.has(id, n, v.from, v.to)
}

// has says whether what an id needs is there.
func (t *search) has(id *stateID, n need, from, to int) bool {
	if n == locale {
		n = aWord
		for _, l := range t.locales {
			if l == id.country {
				n = nothing
			}
		}
	}
	switch says := t.says(from, to, id.words|wID, wOther|wPhone|wIDs&^id.words&^wID); n {
	case nothing:
		return says != against
	case aWord:
		return says == inFavour
	}
	return false
}

// dni is a Spanish id of eight digits and a letter.
func (t *search) dni(v view) (int, bool) {
	s, to := t.s, v.to
	if to+1 < len(s) && (s[to] == '-' || s[to] == ' ') {
		to++
	}
	if !t.nationals[esDNI] || to >= len(s) || !letter(s[to]) || !ends(s, to+1) ||
		s[to]&^0x20 != spanish[value(v.digits)%23] {
		return 0, false
	}
	id := &nationals[esDNI]
	n := locale
	switch {
	case !capital(s[to]) || s[v.to] == ' ':
		n = aWord
	case v.is("2 3 3", "."):
		n = nothing
	}
	if !t.has(id, n, v.from, to+1) {
		return 0, false
	}
	return t.found(nationalID, id.name, v.from, to+1), true
}

// spanish are the letters that check a DNI or NIE.
const spanish = "TRWAGMYFPDXBNJZSQVHLCKE"

// belgian: the date of birth, the number of the day, 97 minus the remainder. From 2000 on there is
// a 2 before it all.
func belgian(d []byte) bool {
	if month := value(d[2:4]); month > 12 || value(d[4:6]) > 31 || value(d[6:9]) == 0 {
		return false
	}
	n, check := value(d[:9]), value(d[9:])
	return 97-n%97 == check || 97-(2_000_000_000+n)%97 == check
}

func cpf(d []byte) bool {
	check := func(n int) bool {
		sum := 0
		for i := range n {
			sum += int(d[i]) * (n + 1 - i)
		}
		return sum*10%11%10 == int(d[n])
	}
	return check(9) && check(10)
}

// sin: those with 0 are not given out, those with 8 are businesses'.
func sin(d []byte) bool { return d[0] != 0 && d[0] != 8 && luhn(d) }

// steuerID: of the first ten digits one is there twice or three times, and no other more than once.
func steuerID(d []byte) bool {
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

// nir: the sex, the year, the month (from 20 on where it is not known), the department, the
// municipality, a number, 97 minus the remainder. Corsica is elsewhere.
func nir(d []byte) bool {
	return nirBorn(d) && 97-value(d[:13])%97 == value(d[13:])
}

func nirBorn(d []byte) bool {
	month := value(d[3:5])
	return within("\x01\x02\x03\x04\x07\x08", d[0]) && (month >= 1 && month <= 12 || month == 20 ||
		month >= 30 && month <= 42 || month >= 50)
}

func nhs(d []byte) bool {
	check := 11 - weighted(d, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
	return check%11 == int(d[9]) // 10 is nobody's: no digit is
}

func aadhaar(d []byte) bool { return d[0] > 1 && verhoeff(d) }

func bsn(d []byte) bool { return weighted(d, 9, 8, 7, 6, 5, 4, 3, 2, -1)%11 == 0 }

func pesel(d []byte) bool {
	month, day := value(d[2:4]), value(d[4:6])
	return month%20 >= 1 && month%20 <= 12 && day >= 1 && day <= 31 && (10-weighted(d, 1, 3, 7, 9,
		1, 3, 7, 9, 1, 3)%10)%10 == int(d[10])
}

// personnummer: a date of birth (the day plus 60 in a coordination number), a number, Luhn over the
// last ten.
func personnummer(d []byte) bool {
	if len(d) == 12 {
		if year := value(d[:4]); year < 1880 || year > time.Now().Year() {
			return false
		}
		d = d[2:]
	}
	month, day := value(d[2:4]), value(d[4:6])%60
	return month >= 1 && month <= 12 && day >= 1 && day <= 31 && luhn(d)
}

// ssn: the area is not 000, 666 or 900 and more, and no part is all zeros. The two that advertising
// made known are nobody's.
func ssn(d []byte) bool {
	area, group, serial := value(d[:3]), value(d[3:5]), value(d[5:])
	n := value(d)
	return area > 0 && area != 666 && area < 900 && group > 0 && serial > 0 && n != 78_05_1120 &&
		n != 219_09_9999
}
