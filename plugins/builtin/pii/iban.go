package pii

// ibanFormats are the formats of accounts in the SWIFT registry, by country. They describe an IBAN
// after the letters of the country and the two check digits: n is for digits, a for letters, c for
// both.
var ibanFormats = map[string]string{
	"AD": "8n12c", "AE": "19n", "AL": "8n16c", "AT": "16n", "AZ": "4a20c", "BA": "16n", "BE": "12n",
	"BG": "4a6n8c", "BH": "4a14c", "BI": "23n", "BR": "23n1a1c", "BY": "4c4n16c", "CH": "5n12c",
	"CR": "18n", "CY": "8n16c", "CZ": "20n", "DE": "18n", "DJ": "23n", "DK": "14n", "DO": "4c20n",
	"EE": "16n", "EG": "25n", "ES": "20n", "FI": "14n", "FK": "2a12n", "FO": "14n",
	"FR": "10n11c2n", "GB": "4a14n", "GE": "2a16n", "GI": "4a15c", "GL": "14n", "GR": "7n16c",
	"GT": "4c20c", "HN": "4a20n", "HR": "17n", "HU": "24n", "IE": "4a14n", "IL": "19n",
	"IQ": "4a15n", "IS": "22n", "IT": "1a10n12c", "JO": "4a4n18c", "KW": "4a22c", "KZ": "3n13c",
	"LB": "4n20c", "LC": "4a24c", "LI": "5n12c", "LT": "16n", "LU": "3n13c", "LV": "4a13c",
	"LY": "21n", "MC": "10n11c2n", "MD": "2c18c", "ME": "18n", "MK": "3n10c2n", "MN": "16n",
	"MR": "23n", "MT": "4a5n18c", "MU": "4a19n3a", "NI": "4a20n", "NL": "4a10n", "NO": "11n",
	"OM": "3n16c", "PK": "4a16c", "PL": "24n", "PS": "4a21c", "PT": "21n", "QA": "4a21c",
	"RO": "4a16c", "RS": "18n", "RU": "14n15c", "SA": "2n18c", "SC": "4a20n3a", "SD": "14n",
	"SE": "20n", "SI": "15n", "SK": "20n", "SM": "1a10n12c", "SO": "19n", "ST": "21n",
	"SV": "4a20n", "TL": "19n", "TN": "20n", "TR": "6n16c", "UA": "6n19c", "VA": "18n",
	"VG": "4a16n", "XK": "16n", "YE": "4a4n18c",
}

// ibanPatterns are the formats with one class (n, a, c) for each character, by country.
var ibanPatterns = func() map[[2]byte]string {
	m := make(map[[2]byte]string, len(ibanFormats))
	for country, format := range ibanFormats {
		var b []byte
		n := 0
		for _, c := range []byte(format) {
			if isDigit(c) {
				n = n*10 + int(c-'0')
				continue
			}
			for ; n > 0; n-- {
				b = append(b, c)
			}
		}
		m[[2]byte{country[0], country[1]}] = string(b)
	}
	return m
}()

const maxIBANLength = 40 // bytes, without separators

// findIBAN looks for an IBAN whose check digits are at i, behind two letters.
func (t *search) findIBAN(i int) (to int, ok bool) {
	s, from := t.text, i-2
	if from < 0 || !isLetter(s[from]) || !isLetter(s[from+1]) || !isWordStart(s, from) ||
		i+2 > len(s) || !isDigit(s[i+1]) {
		return 0, false
	}
	pattern, ok := ibanPatterns[[2]byte{s[from] &^ 0x20, s[from+1] &^ 0x20}]
	if !ok {
		return 0, false
	}
	var b [maxIBANLength]byte
	n, spaces := 0, 0
	i += 2
	for n < len(pattern) {
		if i < len(s) && n > 0 && (s[i] == ' ' || s[i] == '-' || s[i] == '.') ||
			i < len(s) && n == 0 && (s[i] == ' ' || s[i] == '-') {
			i++
			spaces++
			if i < len(s) && s[i] == ' ' {
				i++
			}
		}
		if i >= len(s) || !isAlnum(s[i]) || pattern[n] == 'n' && !isDigit(s[i]) ||
			pattern[n] == 'a' && !isLetter(s[i]) {
			return 0, false
		}
		b[n] = s[i]
		n++
		i++
	}
	if !isWordEnd(s, i) {
		return 0, false
	}
	// Small letters with spaces may be ordinary words, unless a word nearby is about accounts.
	if spaces > 0 && !isUpper(s[from]) &&
		t.contextEvidence(from, i, topicAccount, 0) != supports {
		return 0, false
	}
	if mod97(append(b[:n], s[from], s[from+1], s[from+2], s[from+3])) != 1 {
		return 0, false
	}
	return t.report(kindIBAN, "iban", from, i), true
}
