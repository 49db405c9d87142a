package pii_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
)

// The texts for the figures are generated in this file. The checksums are written again here, so
// that the plugin is not measured by its own code.

// generator makes values and texts. The same seed gives the same values and texts.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 0x9a7e))} }

// pick returns one of the values.
func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

// fill returns the pattern with a random digit for each #, a capital for each | and a hexadecimal
// digit for each ^.
func (g generator) fill(pattern string) string {
	b := []byte(pattern)
	for i, c := range b {
		switch c {
		case '#':
			b[i] = '0' + byte(g.IntN(10))
		case '|':
			b[i] = 'A' + byte(g.IntN(26))
		case '^':
			b[i] = "0123456789abcdef"[g.IntN(16)]
		}
	}
	return string(b)
}

// grouped returns s with separators between groups of the lengths.
func grouped(s, sep string, lengths ...int) string {
	var parts []string
	for _, n := range lengths {
		n = min(n, len(s))
		parts, s = append(parts, s[:n]), s[n:]
	}
	if s != "" {
		parts = append(parts, s)
	}
	return strings.Join(parts, sep)
}

// withLuhn returns s with its Luhn digit.
func withLuhn(s string) string {
	sum := 0
	for i := range len(s) {
		d := int(s[len(s)-1-i] - '0')
		if i%2 == 0 {
			d = d*2/10 + d*2%10
		}
		sum += d
	}
	return s + string(rune('0'+(10-sum%10)%10))
}

func (g generator) card() string {
	n := withLuhn(g.fill(pick(g, "4##############", "4##############", "51#############",
		"54#############", "2221###########", "34############", "37############", "6011###########",
		"3530###########", "36###########", "62#############")))
	sep := pick(g, "", "", " ", " ", "-", ".")
	if sep == "" {
		return n
	}
	if len(n) < 16 {
		return grouped(n, sep, 4, 6)
	}
	if g.IntN(6) == 0 {
		return n[:4] + "-" + n[4:8] + " " + n[8:12] + "." + n[12:]
	}
	return grouped(n, sep, 4, 4, 4)
}

func (g generator) iban() string {
	country := pick(g, "DE##################", "FR###################0|##", "GB||||##############",
		"ES####################", "NL||||##########", "IT|######################",
		"CH#################",
		"PL########################", "SE####################", "NO###########",
		"AT################", "BE############")
	bban := g.fill(country[2:])
	digits := ""
	for _, c := range bban + country[:2] + "00" {
		if c >= 'A' {
			digits += fmt.Sprint(int(c-'A') + 10)
		} else {
			digits += string(c)
		}
	}
	rest := 0
	for _, c := range digits {
		rest = (rest*10 + int(c-'0')) % 97
	}
	n := fmt.Sprintf("%s%02d%s", country[:2], 98-rest, bban)
	switch g.IntN(4) {
	case 0:
		return n
	case 1:
		return strings.TrimRight(grouped(n, "-", 4, 4, 4, 4, 4, 4, 4), "-")
	}
	return strings.TrimRight(grouped(n, " ", 4, 4, 4, 4, 4, 4, 4), " ")
}

func (g generator) phone() string {
	return g.fill(pick(g, "+1 21# 55#-####", "+1-415-55#-####", "(312) 55#-####",
		"212-55#-####", "646.55#.####", "+44 20 7946 ####", "020 7946 ####", "07700 900###",
		"+44 (0)161 496 ####", "+49 30 2#######", "030 2#######",
		"+49 151 2#######", "+33 6 12 ## ## ##", "06 12 ## ## ##", "01.42.6#.##.##",
		"+34 612 ### ###", "+39 06 698#####", "+91 98### #####", "+55 11 9####-####",
		"+81 3-5###-####", "+86 138 #### ####", "+61 2 9### ####",
		"+12025550###", "+4915123######", "+380 44 2## ####"))
}

func (g generator) email() string {
	first, last := pick(g, "anna", "john", "li", "müller", "joão", "s", "o'brien", "maria.luisa",
		"x99"), pick(g, "smith", "weber", "garcia", "novak", "d", "tanaka", "2001")
	local := pick(g, first+"."+last, first+last, first+"_"+last, first+"+"+last, last)
	return local + "@" + pick(g, "gmail.com", "web.de", "mail.corp.co.uk", "uni-köln.de",
		"пример.рф", "xn--mnchen-3ya.de", "big-company.io", "a.b.c.museum", "startup.dev",
		"GMX.NET", "acme.internal")
}

func (g generator) ip() string {
	octet := func() int { return 1 + g.IntN(254) }
	h := func() string { return g.fill("^^^") }
	switch g.IntN(8) {
	case 0:
		return "2a00:1" + h() + ":" + "4001:8" + h()[:2] + "::200e"
	case 1:
		return "2001:4" + h() + ":0000:0000:0000:00ff:fe" + h()[:2] + ":8329"
	case 2:
		return "2606:4700::6810:8" + h()
	case 3:
		return fmt.Sprintf("::ffff:81.2.%d.%d", octet(), octet())
	}
	return fmt.Sprintf("%d.%d.%d.%d", pick(g, 8, 23, 46, 62, 81, 91, 104, 139, 151, 185, 193, 213),
		octet(), octet(), octet())
}

// national returns a random national id, its finding type, and a word that is about it.
func (g generator) national() (findingType, word, value string) {
	date := fmt.Sprintf("%02d%02d%02d", 40+g.IntN(59), 1+g.IntN(12), 1+g.IntN(28))
	for {
		switch g.IntN(15) {
		case 0:
			n := g.fill("5########")
			return "us-ssn", "SSN", pick(g, grouped(n[:3]+"12"+n[5:], "-", 3, 2), n[:3]+"12"+n[5:])
		case 1:
			n := pick(g, "AB", "CE", "JK", "SW", "YZ") + g.fill("######") + pick(g,
				"A", "B", "C", "D")
			return "gb-nino", "National Insurance", pick(g, n, grouped(n, " ", 2, 2, 2, 2))
		case 2:
			n, sum := g.fill("4########"), 0
			for i := range 9 {
				sum += int(n[i]-'0') * (10 - i)
			}
			if check := (11 - sum%11) % 11; check < 10 {
				n += fmt.Sprint(check)
				return "gb-nhs", "NHS number", pick(g, n, grouped(n, " ", 3, 3))
			}
		case 3:
			n := withLuhn(g.fill("1#######"))
			return "ca-sin", "SIN", pick(g, n, grouped(n, " ", 3, 3), grouped(n, "-", 3, 3))
		case 4:
			digits := g.Perm(10)
			for digits[0] == 0 {
				digits = g.Perm(10)
			}
			digits[9] = digits[g.IntN(9)]
			p, n := 10, ""
			for _, d := range digits {
				n += fmt.Sprint(d)
				if p = (p + d) % 10; p == 0 {
					p = 10
				}
				p = p * 2 % 11
			}
			n += fmt.Sprint((11 - p) % 10)
			return "de-steuer-id", "Steuer-ID", pick(g, n, grouped(n, " ", 2, 3, 3))
		case 5:
			n := fmt.Sprintf("%d%02d%02d%s", 1+g.IntN(2), 30+g.IntN(69), 1+g.IntN(12),
				g.fill("75######"))
			var v int
			fmt.Sscan(n, &v)
			n += fmt.Sprintf("%02d", 97-v%97)
			return "fr-nir", "numéro de sécurité sociale", pick(g, n, grouped(n, " ", 1, 2, 2, 2, 3,
				3))
		case 6:
			v := 10_000_000 + g.IntN(80_000_000)
			return "es-dni", "DNI", fmt.Sprintf("%d%s%c", v, pick(g, "", "-"),
				"TRWAGMYFPDXBNJZSQVHLCKE"[v%23])
		case 7:
			v := g.IntN(10_000_000)
			return "es-nie", "NIE", fmt.Sprintf("X%s%07d%c", "", v, "TRWAGMYFPDXBNJZSQVHLCKE"[v%23])
		case 8: // published examples, since the check letter is not computed here
			return "it-codice-fiscale", "codice fiscale",
				pick(g, "RSSMRA85T10A562S", "MRTMTT91D08F205J", "MLLSNT82P65Z404U")
		case 9:
			n, sum := g.fill("1#######"), 0
			for i := range 8 {
				sum += int(n[i]-'0') * (9 - i)
			}
			if sum%11 < 10 {
				return "nl-bsn", "BSN", n + fmt.Sprint(sum%11)
			}
		case 10:
			n, sum := date+g.fill("####"), 0
			for i, w := range []int{1, 3, 7, 9, 1, 3, 7, 9, 1, 3} {
				sum += int(n[i]-'0') * w
			}
			return "pl-pesel", "PESEL", n + fmt.Sprint((10-sum%10)%10)
		case 11:
			n := withLuhn(date + g.fill("###"))
			return "se-personnummer", "personnummer", pick(g, n[:6]+"-"+n[6:], "19"+n[:6]+"-"+n[6:],
				n)
		case 12:
			n := date + g.fill("1##")
			var v int
			fmt.Sscan(n, &v)
			n += fmt.Sprintf("%02d", 97-v%97)
			return "be-national-number", "rijksregisternummer", pick(g, n,
				fmt.Sprintf("%s.%s.%s-%s.%s", n[:2], n[2:4], n[4:6], n[6:9], n[9:]))
		case 13:
			n := g.fill("#########")
			for len(n) < 11 {
				sum := 0
				for i := range len(n) {
					sum += int(n[i]-'0') * (len(n) + 1 - i)
				}
				n += fmt.Sprint(sum * 10 % 11 % 10)
			}
			return "br-cpf", "CPF", pick(g, n, n[:3]+"."+n[3:6]+"."+n[6:9]+"-"+n[9:])
		case 14: // from the test sets of UIDAI and others
			return "in-aadhaar", "Aadhaar", pick(g, "2341 2341 2346", "4991 1866 5246",
				"499118665246", "234123412346")
		}
	}
}

// hardNegative returns a text that looks like personal data but contains none.
func (g generator) hardNegative() string {
	return g.fill(pick(g,
		"order ##########", "Order no. 4###############", "invoice INV-2024-######",
		"order #: ###-#######-#######", "ticket #######", "case 00######", "PO 45########",
		"commit ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^", "index ^^^^^^^..^^^^^^^ 100644",
		"sha256:^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
		"^^^^^^^^-^^^^-4^^^-a^^^-^^^^^^^^^^^^", "########-####-4###-8###-############",
		"id 1############", "ts=17##########", "17##########.######", "at 17###########",
		"17#################",
		"2024-01-1# 10:3#:#### done", "2024-01-1#T10:3#:##.###Z", "202401##-1###",
		"1#.0#.2024 12.30", "0#/1#/2023 ##:##", "build 202401##.####",
		"v1.2#.#.#", "version 4.1#.3.2", "1.2.3.4-rc1", "Chrome/1##.0.6###.###",
		"python==3.1#.1.0", "lib-2.4.1.#.so", "OID 2.5.29.1#", "1.3.6.1.4.1.311.20.2",
		"$1,2##,###.99", "EUR 12.###.###,00", "1 2## ### bytes", "ISBN 978-3-16-14841#-#",
		"ISBN 0-306-4061#-2", "978316148####",
		"40.7###### -74.00#####", "52.52####, 13.40####", "lat=48.85661##", "0.4###############",
		"3.14159265358979##", "x = 1############## + 2", "part 4#-1###-####", "SKU ###-##-####",
		"serial 123-45-67##",
		"phone-like id 1-2##-###", "item 555-####", "model 800-###-####", "ref 020 7946 ####",
		"range 1000-2000, 3000-4000", "10.0.#.1#", "192.168.1.##", "127.0.0.1:80##", "198.51.100.#",
		"fe80::1", "2001:db8::^^^^",
		"12:34:56:78", "00:1a:2b:^^:^^:^^", "std::vector<abc::def>", "a::b",
		"ab:cd:ef:01:23:45:67:89:ab:cd", "user@example.com", "you@sub.example.org",
		"root@localhost", "git@github.com:o/r.git", "pkg@1.2.3",
		"actions/checkout@v4", "@app.route('/x')", "x@y.T", "a@b.shape",
		"https://bob:pw@host.com/x", "#include <abc.h>", "arr[1234567890]", "0x4###############L",
		"uint64(4###############)", "4###_####_####", "port 443##", "pid 12####",
		"1234 5678 9012 3456 7890 1234 5678 9012", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
		"100 200 300 400 500", "sess_4########", "AWB ###########", "tracking 1Z999AA1##########",
		"tracking 94001######## ####", "IMEI 35##############",
		"DE10 reasons to go on", "GB29 NWBK is a start", "id A12345678",
		"AB123456", "ABCDEF12G34H567I", "X1234567", "12345678L", "#{1234}",
		"row 12345 col 678901234", "timeout 30000000", "population 83 294 633",
		"id ################", "uid=4###############", "account 5###############", "n ##########",
		"k=#########", "user ###########", "device ############", "key 37#############",
		"x ###-###-####", "a ###.###.###",
		"+########## points", "d +#.#######", "### ### ####", "## ## ## ## ##", "####-####-####",
		"########|", "||######|", "||## #### ####",
		"1,234,567,890", "+123", "UTC+02:00", "a+1234567890", "@@ -1234567,89 +1234567,90 @@",
		"-1234567890", "fontSize: 1234567.5", "#123456", "rgb(120, 130, 140)", "(1234) 5678",
		"page 123-456", "matrix 1.5 2.5 3.5 4.5"))
}

// templates are texts around a value, which is %s.
var templates = []string{"%s", "Please note %s, thanks.", "value: %s", "{\"k\":\"%s\"}", "see (%s)",
	"a\tb\t%s\tc", "Dear all,\n%s\nRegards", "<td>%s</td>", "x=%s;", "It is %s."}

// figure counts the results of one finding type.
type figure struct {
	generated, found, false int
	missed, wrong           []string // examples of texts, up to maxExamples of each
}

const maxExamples = 8

func (f *figure) addFalse(text string) {
	if f.false++; len(f.wrong) < maxExamples {
		f.wrong = append(f.wrong, text)
	}
}

// measure inspects generated texts and returns the figures by finding type. In the variant "bare
// ids", no word stands beside a national id. In the variant "words", the word "phone" stands before
// each phone number.
func measure(t *testing.T, config string, variant string) map[string]*figure {
	t.Helper()
	stage := newStage(t, config)
	figures := map[string]*figure{}
	at := func(what string) *figure {
		if figures[what] == nil {
			figures[what] = &figure{}
		}
		return figures[what]
	}
	g := newGenerator(1)
	const each = 2000
	for range each {
		id, word, national := g.national()
		for _, p := range [][2]string{{"card", g.card()}, {"iban", g.iban()}, {"email", g.email()},
			{"ip", g.ip()}, {"phone", g.phone()}, {id, national}} {
			what, value := p[0], p[1]
			text := fmt.Sprintf(templates[g.IntN(len(templates))], value)
			if what == id && variant != "bare ids" {
				text = word + " " + national
			}
			if what == "phone" && variant == "words" {
				text = "phone " + value
			}
			at(what).generated++
			isFound := false
			for _, found := range findingTypes(t, stage, text) {
				if found == what { // the redaction must cover exactly the value
					isFound = redactedBy(t, stage, text) == strings.Replace(text, value,
						"["+what+"]", 1)
				} else {
					at(found).addFalse(text)
				}
			}
			if isFound {
				at(what).found++
			} else if f := at(what); len(f.missed) < maxExamples {
				f.missed = append(f.missed, text)
			}
		}
	}
	for range 6 * each {
		text := fmt.Sprintf(templates[g.IntN(len(templates))], g.hardNegative())
		for _, found := range findingTypes(t, stage, text) {
			at(found).addFalse(text)
		}
	}
	return figures
}

// floor is the lowest recall and precision that a finding type may have.
type floor struct{ recall, precision float64 }

func TestFigures(t *testing.T) {
	// The texts are the same in each run, so the floors are just below the figures in doc.go. They
	// leave room for other versions of the phone library's metadata.
	everything := map[string]floor{"card": {.995, .98}, "iban": {.995, .995},
		"email": {.995, .995}, "ip": {.99, .995}}
	with := func(more map[string]floor) map[string]floor {
		maps.Copy(more, everything)
		return more
	}
	for _, c := range []struct {
		name, config, variant string
		want                  map[string]floor
	}{
		{"default", `{}`, "", with(map[string]floor{"phone": {.665, .99}, "ids": {.995, .99}})},
		{"default, phones with a word", `{}`,
			"words", with(map[string]floor{"phone": {.99, .99}})},
		{"with locales", `{"locales":["US","GB","DE","FR","ES","IT"]}`,
			"", with(map[string]floor{"phone": {.99, .895}})},
		{"default, ids without a word", `{}`, "bare ids",
			with(map[string]floor{"ids": {.4, .98}})},
		{"all locales, ids without a word", allLocales, "bare ids",
			with(map[string]floor{"ids": {.79, .96}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			figures := measure(t, c.config, c.variant)
			ids := &figure{}
			for _, what := range sortedKeys(figures) {
				f := figures[what]
				t.Logf("%-20s generated %5d  recall %.3f  precision %.3f  (%d false)", what,
					f.generated,
					ratio(f.found, f.generated), ratio(f.found, f.found+f.false), f.false)
				if testing.Verbose() && len(f.missed)+len(f.wrong) > 0 {
					t.Logf("    missed %q\n    wrong %q", f.missed, f.wrong)
				}
				checkFloor(t, what, f, c.want)
				if strings.Contains(what, "-") {
					ids.generated, ids.found, ids.false = ids.generated+f.generated,
						ids.found+f.found,
						ids.false+f.false
				}
			}
			t.Logf("%-20s generated %5d  recall %.3f  precision %.3f  (%d false)",
				"all national ids",
				ids.generated, ratio(ids.found, ids.generated),
				ratio(ids.found, ids.found+ids.false),
				ids.false)
			checkFloor(t, "ids", ids, c.want)
		})
	}
}

// checkFloor fails the test if the figure is below its floor.
func checkFloor(t *testing.T, what string, f *figure, want map[string]floor) {
	t.Helper()
	w, ok := want[what]
	if recall, precision := ratio(f.found, f.generated), ratio(f.found, f.found+f.false); ok &&
		(recall < w.recall || precision < w.precision) {
		t.Errorf("%s: recall %.3f and precision %.3f, want at least %.3f and %.3f", what, recall,
			precision,
			w.recall, w.precision)
	}
}

func ratio(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}
