package credentials

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// LoopbackRedirect is the redirect URI of logins with gatekit auth login. Authorization servers
// accept it with any port (RFC 8252).
const LoopbackRedirect = "http://127.0.0.1" + LoopbackPath

// LoopbackPath is the path of LoopbackRedirect.
const LoopbackPath = "/callback"

// clientDocument describes Gatekit for authorization servers that read the description at the URL
// that is the client id (draft-ietf-oauth-client-id-metadata-document).
type clientDocument struct {
	ClientID string `json:"client_id"`
	registration
}

// ClientDocument returns Gatekit's own client metadata document, which is published at the URL.
// callback is the redirect URI of logins that begin at Gatekit's own pages, or "" if there are no
// pages. Gatekit has no secret with the document: PKCE and the redirect URI protect the code.
func ClientDocument(url, callback string) ([]byte, error) {
	redirects := []string{LoopbackRedirect}
	if callback != "" {
		redirects = append(redirects, callback)
	}
	return json.Marshal(clientDocument{url, registration{ClientName: "Gatekit",
		ApplicationType: applicationNative, RedirectURIs: redirects,
		GrantTypes: []string{grantCode, grantRefresh}, ResponseTypes: []string{"code"},
		AuthMethod: methodNone}}, jsontext.Multiline(true))
}
