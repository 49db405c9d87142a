package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"

	"gatekit/test/issuertest"
)

// suiteProvider describes the identity provider of a scenario. It has no page to log in at: the
// scenario gives clients an ID token.
type suiteProvider struct {
	ClientID      string `json:"idp_client_id"`
	IDToken       string `json:"idp_id_token"`
	TokenEndpoint string `json:"idp_token_endpoint"`
}

// startIdentityProvider starts an identity provider with a login, which it allows at once. It
// forwards each exchange of an ID token to the provider of the suite, with the ID token of the
// suite in place of its own, and all other parameters as they are.
func startIdentityProvider(suite suiteProvider) *httptest.Server {
	var own string // the ID token
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	issuer := issuertest.New(server.URL)
	issuer.AddKey("first", "ES256")
	writeJSON := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(issuertest.Encode(v))
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter,
		_ *http.Request) {
		writeJSON(w, map[string]any{"issuer": server.URL, "token_endpoint": server.URL + "/token",
			"authorization_endpoint": server.URL + "/authorize"})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		own = issuer.TokenWithHeader("first", map[string]any{"typ": "JWT"}, issuer.Claims(
			suite.ClientID, map[string]any{"nonce": q.Get("nonce"), "client_id": nil}))
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"1"},
			"state": {q.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		switch {
		case r.PostForm.Get("code") == "1":
			writeJSON(w, map[string]any{"access_token": "x", "token_type": "Bearer",
				"id_token": own})
		case r.PostForm.Get("subject_token") == own:
			r.PostForm.Set("subject_token", suite.IDToken)
			answer, err := http.PostForm(suite.TokenEndpoint, r.PostForm)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer answer.Body.Close()
			w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
			w.WriteHeader(answer.StatusCode)
			io.Copy(w, answer.Body)
		default:
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		}
	})
	return server
}
