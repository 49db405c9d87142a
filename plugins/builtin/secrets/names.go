package secrets

import (
	"slices"
	"strings"
)

// This file decides by the words of a name whether the name is one of a secret, such as
// "db_password" or "apiKey", or of something that only has a similar name: a cursor
// ("nextPageToken"), a key of data ("cacheKey"), or an attribute of a secret ("tokenCount").

// wordSet is a set of words in lower case.
type wordSet map[string]bool

func newWordSet(words string) wordSet {
	set := make(wordSet)
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

func (s wordSet) hasAny(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return s[w] })
}

var (
	// attributeWords end the names of attributes: the count, the id or the address of a thing.
	attributeWords = newWordSet(`address addresses age alg algorithm alias aliases amount arn at
		available backend balance base block board boards budget category checksum class cmd
		column command comment contract cost count counts created curve date day days decimal
		decimals default desc description device digest dir directory docs domain duration email
		enabled endpoint endpoints env envs envvar error errors expiration expires expiresat
		expiry ext factory family field fields file filename filter fingerprint flow folder format
		grant group groups handle handles hash header headers help helper hint host id identifier
		identifiers ids in index info input instructions interval issuer kind label labels last
		left length level lifetime limit limits link list loader location manager map max message
		metadata method methods min minutes mode model module month name names namespace network
		note number offset on order output owner page pair parameter params parent path paths
		pattern percent period permission permissions place placeholder placement plan plugin
		point points policy port position precision prefix price process provider purpose quantity
		quota range rate ratio reason ref reference refs region remaining required requirements
		resolver resource role roles rotation rules schema scope scopes seconds selector server
		service sha shape signature size sizes slot source space standard start state status
		storage store strategy stream strength style suffix supply symbol table tag tags target
		template text threshold time timeout timestamp title total ttl type types unit units until
		updated uri uris url urls usage used user username users uuid validity var variable
		variables vars vault version versions via view volume warning window word words year`)

	// positionWords stand before "token" and "key" in names of cursors: of places in a list, a
	// stream or a series of changes.
	positionWords = newWordSet(`after batch before begin bookmark change changes chunk checkpoint
		collection continuation continue cursor delta end ending evaluated first from iterator
		last list marker more next nextpage offset page pagetoken pagination paging paginate
		position prev previous resume resumption scan scroll search sequence shard since skip
		start starting startpage state stream subsequent sync syncing until watermark`)

	// otherTokenWords stand before "token" in names of things that are no credentials.
	otherTokenWords = newWordSet(`approximate asset available average avg base bid bos buy cached
		callback cls client collateral completion confirmation consumed context contract cost csrf
		current debt dedup deduplication device erc20 estimated eos etag fcm fee fungible gas
		governance idempotency idempotent in input job lease lock lp mask max maximum min minimum
		mint native nft num number operation out output pad per poll polling pool progress prompt
		public push quote reasoning receipt registration remaining request reward sell sep special
		spl stop stream swap task thinking thread total transaction underlying unk unknown used
		version visible vocab wrapped xsrf`)

	// secretTokenWords stand before "token" in names of credentials, whatever else is there.
	secretTokenWords = newWordSet(`access admin api auth bearer bot id login oauth personal
		private refresh secret security service session user`)

	// secretKeyWords stand before "key" in names of credentials. A key with another name, such as
	// "cacheKey" or "projectKey", is one of data.
	secretKeyWords = newWordSet(`access account activation admin aes api apis app application auth
		authentication authorization bot cert certificate client connection consumer crypto crypt
		decryption deploy developer encrypt encrypted encryption enc functions hmac host ingest
		ingestion insert integration jwt licence license live master merchant openssh partner pgp
		priv private prod production publishing rest root rsa sas sandbox secret security service
		session shared sign signed signing ssh ssl subscription test tls unseal vault wallet
		webhook wpa write`)

	// questionWords begin the names of answers to questions about a secret: "requiresApiKey".
	questionWords = newWordSet(`has have is needs requires should`)

	// neutralWords are behind the main word of a name and do not change its meaning.
	neutralWords = newWordSet(`b64 base64 backup current default dev hex live local main new
		old plain plaintext primary prod production raw sandbox secondary staging str string test
		value v1 v2`)
)

// mainWords are the words for secrets that end a name, with the names joined without separators.
var (
	passwordWords = newWordSet(`password passwords passwd passphrase pwd passcode passwort
		contrasena mdp pass`)
	secretWords = newWordSet(`secret secrets credential credentials creds auth authorization
		bearer access`)
	tokenWords = newWordSet(`token tokens jwt`)
	keyWords   = newWordSet(`key keys`)
	apiWords   = newWordSet(`api apikey apitoken apisecret accesskey accesstoken authtoken authkey
		clientsecret secretkey privatekey refreshtoken sessiontoken bearertoken signingsecret
		webhooksecret encryptionkey idtoken`)
)

// nameKind is the kind of a name: its meaning for the value.
type nameKind uint8

const (
	unknownName   nameKind = iota // the name has no word of a secret
	secretName                    // the value is a secret
	attributeName                 // the value is an attribute of a secret, such as its id
	cursorName                    // the value is a place in a list or a stream
	dataName                      // the value is a key of data, or a token that is no credential
)

// classifyName returns the kind of the name. It reads the last words of the name: a "token secret"
// is a secret, and a "secret token count" is a count.
func classifyName(name string) nameKind {
	words := splitName(name)
	for len(words) > 1 && (isNumber(words[len(words)-1]) || neutralWords[words[len(words)-1]]) {
		words = words[:len(words)-1]
	}
	if len(words) == 0 {
		return unknownName
	}
	last, before := words[len(words)-1], words[:len(words)-1]
	switch {
	case last == "cursor" || last == "cursors":
		return cursorName
	case len(before) > 0 && questionWords[before[0]]:
		return attributeName
	case last == "pass" && len(before) == 0:
		return unknownName
	case passwordWords[last], secretWords[last], apiWords[last]:
		return secretName
	case last == "code" && (secretWords.hasAny(before) || tokenWords.hasAny(before)):
		if attributeWords[before[len(before)-1]] {
			return attributeName // such as a credential's source code
		}
		return secretName
	case tokenWords[last]:
		switch {
		case secretTokenWords.hasAny(before):
			return secretName
		case positionWords.hasAny(before):
			return cursorName
		case otherTokenWords.hasAny(before):
			return dataName
		}
		return secretName
	case keyWords[last]:
		switch {
		case publicWords.hasAny(before):
			return dataName
		case secretKeyWords.hasAny(before):
			return secretName
		case positionWords.hasAny(before):
			return cursorName
		case dataKeyWords.hasAny(before):
			return dataName
		case len(before) > 0 && (strings.ToUpper(name) == name || before[0] == "x"):
			return secretName // a variable of the environment, or a header
		}
		return unknownName
	}
	if kind := classifyJoined(last); kind != unknownName {
		return kind
	}
	if attributeWords[last] || endsAttribute(last) {
		return attributeName
	}
	for _, w := range before {
		if passwordWords[w] || secretWords[w] && w != "access" && w != "auth" || apiWords[w] {
			return secretName
		}
	}
	return unknownName
}

var (
	// publicWords stand before "key" in names of keys that everybody may know.
	publicWords = newWordSet(`pub public publishable verify verification site`)

	// dataKeyWords stand before "key" in names of keys that find data.
	dataKeyWords = newWordSet(`board bucket cache child column component composite correlation
		custom data dedup deduplication document entity epic event feature field file filter flag
		folder foreign group hash hot idempotency index issue item job lookup map message metric
		natural node object parent partition path primary project property query range record
		registry repo repository routing row s3 sequence setting shard shortcut sort space sprint
		surrogate tag task team template translation unique view`)
)

// classifyJoined classifies a word that is joined of several ones without a sign between them, such
// as "nextpagetoken".
func classifyJoined(word string) nameKind {
	for _, main := range []string{"token", "key"} {
		before, ok := strings.CutSuffix(word, main)
		if !ok || before == "" {
			continue
		}
		for n := len(before); n > 0; n-- {
			switch w := before[len(before)-n:]; {
			case positionWords[w] && n > 2:
				return cursorName
			case main == "token" && otherTokenWords[w] && n > 2,
				main == "key" && dataKeyWords[w] && n > 2:
				return dataName
			case main == "key" && secretKeyWords[w] && n > 2:
				return secretName
			}
		}
		if main == "token" {
			return secretName
		}
	}
	for _, suffix := range []string{"password", "passwd", "passphrase", "secret", "credentials"} {
		if strings.HasSuffix(word, suffix) {
			return secretName
		}
	}
	return unknownName
}

// endsAttribute reports whether a word of several joined ones ends in one for an attribute, such as
// "keyid" and "tokencount".
func endsAttribute(word string) bool {
	for _, main := range []string{"token", "key", "secret", "access", "auth", "credential",
		"credentials", "password"} {
		if rest, ok := strings.CutPrefix(word, main); ok && attributeWords[rest] {
			return true
		}
	}
	return false
}

// splitName returns the words of a name in lower case. Words end at signs other than letters and
// digits, and at capital letters: "nextPage_token" has three words.
func splitName(name string) (words []string) {
	from := -1
	for i := 0; i < len(name); i++ {
		c := name[i]
		isUpper, isLower := c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z' || c >= 0x80
		isDigit := c >= '0' && c <= '9'
		if from >= 0 && (!isUpper && !isLower && !isDigit || isUpper && startsWord(name, i)) {
			words = append(words, strings.ToLower(name[from:i]))
			from = -1
		}
		if from < 0 && (isUpper || isLower || isDigit) {
			from = i
		}
	}
	if from >= 0 {
		words = append(words, strings.ToLower(name[from:]))
	}
	return words
}

// startsWord reports whether the capital letter name[i] begins a word: it follows a small letter or
// a digit, or a small letter follows it, as in "APIKey".
func startsWord(name string, i int) bool {
	before := name[i-1]
	return before >= 'a' && before <= 'z' || before >= '0' && before <= '9' ||
		i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z' && before >= 'A' && before <= 'Z' &&
			!(name[i+1] == 's' && (i+2 == len(name) || name[i+2] < 'a' || name[i+2] > 'z'))
}

func isNumber(s string) bool { return strings.Trim(s, "0123456789") == "" }
