package secrets

import (
	"strings"
)

// namedID is the rule for what a member's name alone says to be a secret, and which is too short or
// too plain for the rules that look at values.
const namedID = "named-secret"

// passwordSuffixes and keys are ends of such names, without "_", "-", "." and case. A password can
// be any word; a key has digits.
var (
	passwordSuffixes = []string{"password", "passwd", "passphrase", "pwd", "passcode"}
	keySuffixes      = []string{"clientsecret", "secretkey", "secretaccesskey", "privatekey",
		"apikey",
		"apisecret", "appsecret", "accesstoken", "refreshtoken", "authtoken", "apitoken",
		"sessiontoken", "bearertoken", "signingsecret", "webhooksecret", "encryptionkey"}
	placeholderValues = []string{"string", "text", "password", "passwd", "secret", "token",
		"boolean",
		"number", "integer", "object", "null", "none", "true", "false", "required", "optional",
		"hidden", "redacted", "masked", "unset", "undefined", "empty", "changeme", "example",
		"sample", "placeholder", "your-", "your_", "yourpassword", "yoursecret"}
)

func isNamedSecret(name, value string) bool {
	if len(value) < 4 || len(value) > 256 || strings.ContainsAny(value[:1], "$%{<[*") {
		return false
	}
	plain := strings.Map(func(r rune) rune {
		switch {
		case r == '_' || r == '-' || r == '.' || r == ' ':
			return -1
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return r
	}, name)
	password := hasAnySuffix(plain, passwordSuffixes)
	if !password && !hasAnySuffix(plain, keySuffixes) {
		return false
	}
	if !strings.HasSuffix(plain, "passphrase") && strings.ContainsAny(value, " \t\r\n") {
		return false // words about one
	}
	low := strings.ToLower(value)
	for _, w := range placeholderValues {
		if low == w || len(w) > 4 && strings.HasPrefix(low, w) && (len(low) <= len(w)+2 ||
			w[len(w)-1] == '-' || w[len(w)-1] == '_') {
			return false
		}
	}
	if strings.Trim(low, low[:1]) == "" || strings.Trim(low, "x*.•-") == "" {
		return false
	}
	return password || len(value) >= 8 && strings.ContainsAny(value, "0123456789")
}

func hasAnySuffix(s string, ends []string) bool {
	for _, e := range ends {
		if strings.HasSuffix(s, e) {
			return true
		}
	}
	return false
}
