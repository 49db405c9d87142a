package credentials

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// savedLogin has what Login.Save saves.
type savedLogin struct {
	Principal string      `json:"principal,omitzero"` // whose login it is
	Issuer    string      `json:"issuer"`
	Resource  string      `json:"resource"`
	Scopes    []string    `json:"scopes"`
	Metadata  *authServer `json:"metadata"` // of the authorization server
	Redirect  string      `json:"redirect"`
	State     string      `json:"state"`
	Nonce     string      `json:"nonce"`
	Verifier  string      `json:"verifier"`
	ClientID  string      `json:"client_id"`
	// of a client that registered itself
	ClientSecret string `json:"client_secret,omitzero"`
	AuthMethod   string `json:"auth_method,omitzero"`
}

// State returns the parameter state of the answer.
func (n *Login) State() string { return n.state }

// Save returns what ResumeLogin needs, perhaps in another replica. It is a secret.
func (n *Login) Save() ([]byte, error) {
	s := savedLogin{Principal: n.key, Issuer: n.Issuer, Resource: n.endpoints.resource,
		Scopes: n.Scopes, Metadata: n.endpoints.as, Redirect: n.redirect, State: n.state,
		Nonce: n.nonce, Verifier: n.verifier, ClientID: n.client.ID}
	if n.client.ID != n.server.o.Client.ID { // the configuration has the secret
		s.ClientSecret, s.AuthMethod = n.client.Secret, n.client.AuthMethod
	}
	return json.Marshal(s)
}

// ResumeLogin returns the login that Save has saved. The caller must finish it once at most. Its
// URL is "".
func (s *Server) ResumeLogin(saved []byte) (*Login, error) {
	if s.provider != nil {
		return s.provider.ResumeLogin(saved)
	}
	var v savedLogin
	if err := json.Unmarshal(saved, &v); err != nil {
		return nil, err
	}
	if v.Metadata == nil || v.Metadata.Issuer != v.Issuer ||
		s.o.Issuer != "" && v.Issuer != s.o.Issuer || !s.isOwnClient(v.ClientID) {
		return nil, fmt.Errorf("the login at the server %q began with another configuration",
			s.o.Name)
	}
	n := &Login{Issuer: v.Issuer, Scopes: v.Scopes, server: s, key: v.Principal,
		endpoints: &endpoints{resource: v.Resource, as: v.Metadata}, redirect: v.Redirect,
		state: v.State, nonce: v.Nonce, verifier: v.Verifier, client: s.o.Client}
	if v.ClientID != s.o.Client.ID {
		n.client = Client{ID: v.ClientID, Secret: v.ClientSecret, AuthMethod: v.AuthMethod}
	}
	return n, nil
}
