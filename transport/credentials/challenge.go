package credentials

import (
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// maxScopes is how many scopes of a challenge or of metadata are used.
const maxScopes = 100

// challenge holds the parameters of a Bearer challenge (RFC 6750, RFC 9728).
type challenge struct {
	metadataURL string // of the protected resource
	code        string // the parameter error
	scopes      []string
}

// readChallenge returns the Bearer challenge of a response. A response without a valid challenge
// has the zero challenge.
func readChallenge(header http.Header) (c challenge) {
	challenges, err := oauthex.ParseWWWAuthenticate(header.Values("WWW-Authenticate"))
	if err != nil {
		return c
	}
	i := slices.IndexFunc(challenges, func(c oauthex.Challenge) bool {
		return c.Scheme == "bearer"
	})
	if i < 0 {
		return c
	}
	p := challenges[i].Params
	return challenge{p["resource_metadata"], p["error"], splitScopes(p["scope"])}
}

// splitScopes returns the scopes in a list that is separated by spaces. It leaves out texts that
// are no scopes (RFC 6749, section 3.3).
func splitScopes(list string) []string { return validScopes(strings.Fields(list)) }

// validScopes returns the different valid scopes in list, sorted, at most maxScopes.
func validScopes(list []string) []string {
	var valid []string
	for _, s := range list {
		if s != "" && len(valid) < maxScopes && !slices.Contains(valid, s) &&
			!strings.ContainsFunc(s, func(c rune) bool {
				return c <= ' ' || c > '~' || c == '"' || c == '\\'
			}) {
			valid = append(valid, s)
		}
	}
	slices.Sort(valid)
	return valid
}
