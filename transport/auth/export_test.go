package auth

import "net/http"

// UseTransport makes a reach its issuers with rt.
func (a *Authenticator) UseTransport(rt http.RoundTripper) {
	for _, i := range a.issuers {
		i.client = &http.Client{Transport: rt}
	}
}

// SetCacheSize bounds the verified tokens that a remembers, twice.
func (a *Authenticator) SetCacheSize(n int) { a.verified.size = n }

// Remembered returns the number of verified tokens that a remembers.
func (a *Authenticator) Remembered() int {
	a.verified.mu.Lock()
	defer a.verified.mu.Unlock()
	return len(a.verified.recent) + len(a.verified.old)
}

// Fuzzed reads a token as the Authenticator does, without verifying it.
func Fuzzed(token string) (issuer, client string, scopes []string, ok bool) {
	if !isToken(token) {
		return
	}
	t, err := parseToken(token)
	if err != nil {
		return
	}
	return text(t.claims.values["iss"]), t.claims.client(), t.claims.scopes(""), true
}
