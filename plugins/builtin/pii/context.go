package pii

// word is what a word near a number says about it.
type word uint32

const (
	wPhone word = 1 << iota
	wCard
	wIP
	wVersion
	wOther // a number of something that is no person: an order, a part, a build
	wAccount
	wID // some national id
	wSSN
	wNINO
	wNHS
	wSIN
	wSteuer
	wNIR
	wSpain
	wFiscale
	wBSN
	wPESEL
	wPersonnummer
	wBelgium
	wCPF
	wAadhaar

	wIDs = wID | wSSN | wNINO | wNHS | wSIN | wSteuer | wNIR | wSpain | wFiscale | wBSN | wPESEL | wPersonnummer | wBelgium | wCPF | wAadhaar
)

// vocabulary is what is asked for each word, in lower case. The words of names like "phoneNumber"
// and "client_ip" are words of their own.
var vocabulary = func() map[string]word {
	v := map[string]word{}
	for w, words := range map[word][]string{
		wPhone: {"phone", "phones", "telephone", "tel", "telefon", "telefono", "teléfono",
			"telefone", "téléphone", "mobile", "mobil", "mobilfunk", "móvil", "movil", "cell",
			"cellphone", "cellular", "fax", "call", "dial", "sms", "whatsapp", "handy",
			"handynummer", "rufnummer", "telefonnummer", "portable", "gsm", "ph", "msisdn",
			"hotline", "voicemail", "ring", "contact", "cel", "celular", "komórka", "mob", "reach"},
		wCard: {"card", "cards", "credit", "debit", "visa", "mastercard", "amex", "cc", "pan",
			"karte", "kreditkarte", "kartennummer", "carte", "tarjeta", "cartão", "carta",
			"discover",
			"jcb", "maestro", "unionpay", "cvv", "cvc", "ccnum", "cardnumber", "creditcard",
			"diners"},
		wIP: {"ip", "ips", "ipaddress", "ipaddr", "ipv", "address", "addr", "host", "hosts",
			"client", "remote", "server", "ping", "dns", "gateway", "subnet", "inet", "peer", "src",
			"dst", "destination", "connect", "connected", "connection", "login", "logged", "ssh",
			"listen", "nameserver", "forwarded", "whois", "firewall", "blocked", "banned", "ban",
			"visitor", "bind", "adresse", "direccion", "network", "netmask", "resolved", "resolves",
			"traceroute", "cidr", "accept", "accepted", "session"},
		wVersion: {"version", "versions", "ver", "v", "release", "releases", "released", "upgrade",
			"upgraded", "upgrading", "update", "build", "firmware", "section", "chapter", "clause",
			"oid",
			"package", "dependency", "driver", "chrome", "chromium", "sdk", "runtime", "assembly",
			"changelog", "tag", "agent", "mozilla", "msie", "edge", "safari", "schema"},
		wOther: {"order", "orders", "invoice", "isbn", "issn", "sku", "serial", "tracking",
			"ticket", "uuid", "guid", "commit", "hash", "sha", "checksum", "build", "version",
			"port", "epoch", "timestamp",
			"ts", "part", "batch", "lot", "amount", "total", "price", "usd", "eur", "bytes", "size",
			"reference", "ref", "case", "doi", "asin", "ean", "upc", "gtin", "row", "line",
			"offset", "imei", "iccid",
			"shipment", "parcel", "transaction", "txn", "bestellung", "bestellnummer", "rechnung",
			"commande", "factura", "pedido", "zamówienie", "catalog", "catalogue", "model",
			"revision", "rev",
			"barcode", "nonce", "seed", "snowflake", "coordinates", "lat", "lon", "latitude",
			"longitude", "pid", "inode", "counter", "population", "item", "article", "product",
			"seq", "sequence", "job", "run", "cve", "cwe", "ghsa", "rfc", "orcid", "pmid"},
		wAccount: {"iban", "konto", "account", "bic", "swift", "bank", "rekening", "compte",
			"cuenta", "conto", "kontonummer", "bankverbindung"},
		wID:   {"national", "citizen", "nationalid", "identity"},
		wSSN:  {"ssn", "ssns", "social", "socialsecurity", "taxpayer"},
		wNINO: {"nino", "ni", "insurance", "nin"},
		wNHS:  {"nhs", "patient"},
		wSIN:  {"sin", "social", "nas"},
		wSteuer: {"steuer", "steuerid", "idnr", "steueridnr", "steueridentifikationsnummer",
			"identifikationsnummer", "idnummer", "tin", "finanzamt", "steuernummer"},
		wNIR:          {"nir", "insee", "sécu", "secu", "sécurité", "securite"},
		wSpain:        {"dni", "nif", "nie", "documento", "identidad", "extranjero"},
		wFiscale:      {"fiscale", "codice", "cf"},
		wBSN:          {"bsn", "burgerservicenummer", "sofinummer", "sofi", "burgerservice"},
		wPESEL:        {"pesel"},
		wPersonnummer: {"personnummer", "personnr", "pnr", "samordningsnummer", "personal"},
		wBelgium: {"rijksregister", "rijksregisternummer", "registre", "insz", "niss", "nrn",
			"rrn", "nationaal"},
		wCPF:     {"cpf", "contribuinte", "pessoa"},
		wAadhaar: {"aadhaar", "aadhar", "adhaar", "uidai", "uid", "आधार"},
	} {
		for _, s := range words {
			v[s] |= w
		}
	}
	return v
}()

// How far a word may be from its number, in bytes.
const (
	wordsBefore = 48
	wordsAfter  = 24
)

// sense is what the words near a number say: for, against, or nothing.
type sense int8

const (
	against sense = iota - 1
	silent
	inFavour
)

// says is the sense of the nearest word about s[from:to]: of those before it, of the name of its
// member, of those after it.
func (t *search) says(from, to int, pro, contra word) sense {
	for end := from; end > 0; {
		w, start := wordBefore(t.s, end, max(0, from-wordsBefore))
		if start < 0 {
			break
		}
		if v := about(w, pro, contra); v != silent {
			return v
		}
		end = start
	}
	if name := t.leaf.Member(); name != "" {
		for end := len(name); end > 0; {
			w, start := wordBefore(name, end, 0)
			if start < 0 {
				break
			}
			if v := about(w, pro, contra); v != silent {
				return v
			}
			end = start
		}
	}
	limit := min(len(t.s), to+wordsAfter)
	for i := to; i < limit; {
		if !inWord(t.s[i]) {
			i++
			continue
		}
		end := i
		for end < len(t.s) && end-i < maxWord && inWord(t.s[end]) {
			end++
		}
		w, _ := wordBefore(t.s, end, i)
		if about(w, pro, 0) == inFavour {
			return inFavour
		}
		i = end
	}
	return silent
}

func about(w string, pro, contra word) sense {
	switch is := vocabulary[w]; {
	case is&pro != 0:
		return inFavour
	case is&contra != 0:
		return against
	}
	return silent
}

const maxWord = 40

func inWord(c byte) bool { return letter(c) || c >= 0x80 }

// wordBefore is the last word, in lower case, of s[floor:end], and where it begins; below 0 when
// there is none. A capital after a small letter begins a word, and so does one before a small
// letter.
func wordBefore(s string, end, floor int) (string, int) {
	for end > floor && !inWord(s[end-1]) {
		end--
	}
	if end == floor {
		return "", -1
	}
	i := end - 1
	for i > floor && end-i < maxWord && inWord(s[i-1]) {
		if capital(s[i]) && (!capital(s[i-1]) || i+1 < end && !capital(s[i+1])) {
			break
		}
		i--
	}
	var b [maxWord]byte
	for k := range end - i {
		c := s[i+k]
		if capital(c) {
			c += 'a' - 'A'
		}
		b[k] = c
	}
	return known(b[:end-i]), i
}

// known is the word if the vocabulary has it, without a copy of what it has not.
func known(b []byte) string {
	if _, ok := vocabulary[string(b)]; !ok {
		return ""
	}
	return string(b)
}

func capital(c byte) bool { return c >= 'A' && c <= 'Z' }
