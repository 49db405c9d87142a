package pii

import "slices"

// idCode identifies a kind of national id.
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

// requirement is the context that a valid number needs to be reported. Checksums are short, so many
// numbers are valid by chance.
type requirement uint8

const (
	noContext    requirement = iota // no word nearby contradicts the id
	localeOrWord                    // noContext if the country is configured, else wordNearby
	wordNearby                      // a word nearby is about the id, such as "ssn"
)

// idFormat describes one kind of national id.
type idFormat struct {
	code       idCode
	name       string
	country    string
	topics     topic
	isValid    func(digits []byte) bool // nil for an id with letters
	lengths    []int                    // the possible numbers of digits
	shapes     []string                 // the usual lengths of groups: see candidate.hasShape
	separators string                   // the usual separators of groups
	grouped    requirement              // if the id is written in one of the shapes
	plain      requirement              // if the id is written in one run
	odd        requirement              // if the id is written in other groups
	// specimen is a text with an id that is found whatever the options are.
	specimen string
}

// idFormats are the national ids in the order of their codes.
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

// findNationalID reports the candidate as a detection if it is a national id of digits only, or a
// DNI.
func (t *search) findNationalID(v candidate) (to int, ok bool) {
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
		if id.isValid == nil || !t.enabledIDs[id.code] ||
			!slices.Contains(id.lengths, len(v.digits)) || !id.isValid(v.digits) {
			continue
		}
		if t.isPlausible(id, v) && !isInUUID(t.text, v.from) {
			return t.report(kindNationalID, id.name, v.from, v.to), true
		}
	}
	return 0, false
}

// isPlausible reports whether a valid number has the context that the id requires.
func (t *search) isPlausible(id *idFormat, v candidate) bool {
	required := id.odd
	if len(v.groups) == 1 {
		required = id.plain
	}
	for _, shape := range id.shapes {
		if v.hasShape(shape, id.separators) {
			required = id.grouped
		}
	}
	if id.code == sePersonnummer && len(v.digits) == 12 && digitsValue(v.digits[:4]) >= 2010 {
		required = wordNearby // a date with a time looks the same
	}
	for _, g := range v.groups {
		if g.separator == '(' || g.separator == 'x' {
			return false
		}
	}
	return t.meets(id, required, v.from, v.to)
}

// meets reports whether the context of t.text[from:to] meets the requirement.
func (t *search) meets(id *idFormat, required requirement, from, to int) bool {
	if required == localeOrWord {
		required = wordNearby
		if slices.Contains(t.locales, id.country) {
			required = noContext
		}
	}
	evidence := t.contextEvidence(from, to, id.topics|topicID,
		topicOther|topicPhone|topicAnyID&^id.topics&^topicID)
	if required == noContext {
		return evidence != contradicts
	}
	return evidence == supports
}

// findDNI reports the candidate as a detection if it is a Spanish DNI: eight digits and a letter.
func (t *search) findDNI(v candidate) (end int, ok bool) {
	s, to := t.text, v.to
	if to+1 < len(s) && (s[to] == '-' || s[to] == ' ') {
		to++
	}
	if !t.enabledIDs[esDNI] || to >= len(s) || !isLetter(s[to]) || !isWordEnd(s, to+1) ||
		s[to]&^0x20 != dniLetters[digitsValue(v.digits)%23] {
		return 0, false
	}
	id := &idFormats[esDNI]
	required := localeOrWord
	switch {
	case !isUpper(s[to]) || s[v.to] == ' ':
		required = wordNearby
	case v.hasShape("2 3 3", "."):
		required = noContext
	}
	if !t.meets(id, required, v.from, to+1) {
		return 0, false
	}
	return t.report(kindNationalID, id.name, v.from, to+1), true
}

// dniLetters are the check letters of a DNI or NIE, by the remainder of its number.
const dniLetters = "TRWAGMYFPDXBNJZSQVHLCKE"
