package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// ServerAuth is [server.NAME.auth]: the credentials with which Gatekit asks the server. A client's
// token or cookie never reaches it.
type ServerAuth struct {
	// Type is how Gatekit authenticates: headers (by the configured headers, if any),
	// client_credentials (with a token that Gatekit gets for itself, for all clients), oauth (with
	// a token of a user, who logs in with gatekit auth login), exchange (with a token that the
	// issuer issues in exchange for the access token of the client, RFC 8693) or id_jag (with a
	// token that the issuer issues for an assertion of the users' identity provider, at which they
	// log in: the MCP extension for enterprise-managed authorization). Default: headers.
	Type string `toml:"type"`
	// Per is whose login a request uses, with type = "oauth": principal (the login of the principal
	// that sends it) or gatekit (one login, for all principals). Default: principal.
	Per string `toml:"per"`
	// Issuer is the issuer identifier of the server's authorization server, the only one that gets
	// the client's secret. The metadata of the server must name it. A client with a secret or a key
	// needs it. Default: the first issuer of the server's metadata at the first login of a
	// principal, and after that the issuer of this login.
	Issuer string `toml:"issuer"`
	// WithoutMetadata allows an authorization server of the revision 2025-03-26 that has no
	// metadata, with type = "oauth". Its endpoints are /authorize, /token and /register at the
	// origin of url, which must also be the issuer. Such a server cannot show that it verifies
	// PKCE: set this only if you know that it does. Where there is metadata, it is used. Default:
	// false.
	WithoutMetadata bool `toml:"without_metadata"`
	// Audience is the name of the server at the issuer, with type = "exchange". Default: none; the
	// issuer chooses the audience by the server's URL (the parameter resource).
	Audience string `toml:"audience"`
	// Register lets Gatekit register itself at the authorization server, with type = "oauth"
	// (dynamic client registration, RFC 7591). If the client has an id, this must be the URL of a
	// client metadata document, and Gatekit registers itself where such documents are not read.
	// Without an id, the same holds for Gatekit's own document below listen.public_url. Default:
	// false.
	Register bool `toml:"register"`
	// ConnectTool adds the tool NAME__connect, with which users log in, to the list of tools of a
	// principal who cannot list the server's tools without a login, with type = "oauth" or
	// "id_jag". Default: true.
	ConnectTool bool `toml:"connect_tool"`
	// Scopes holds scopes to ask for in addition to those that the server asks for. Default: none.
	Scopes []string `toml:"scopes"`
	// MaxScopes holds the only scopes that Gatekit asks for, whatever the server wants. Default:
	// all scopes are allowed.
	MaxScopes []string `toml:"max_scopes"`
	// Networks holds networks, such as 10.0.0.0/8, that the authorization server and the server's
	// metadata may be in, beside the public internet. Default: none.
	Networks []string `toml:"networks"`
	// Client is the registration of Gatekit at the authorization server.
	Client AuthClient `toml:"client"`
	// Login is the OpenID Connect client at the identity provider of the users, for "id_jag".
	Login ProviderLogin `toml:"login"`
}

func (a *ServerAuth) setDefaults() { a.Type, a.Per, a.ConnectTool = "headers", "principal", true }

// AuthClient is [server.NAME.auth.client]: the client id of Gatekit at the authorization server,
// and its secret or key.
type AuthClient struct {
	// ID is the client id. It may be the URL of a client metadata document, which the authorization
	// server reads. client_credentials needs it. Default for oauth, if listen.public_url is https:
	// the URL of Gatekit's own document, PUBLIC_URL/connect/client.json.
	ID string `toml:"id"`
	// Secret is the client secret. Default: none.
	Secret Secret `toml:"secret"`
	// Key is a private key, as PEM or JWK, that signs the client's assertions (private_key_jwt). It
	// is used instead of a secret. Default: none.
	Key Secret `toml:"key"`
}

// ProviderLogin is [server.NAME.auth.login]: Gatekit's client at the users' identity provider.
type ProviderLogin struct {
	// Issuer is the issuer identifier of the identity provider, the only one that gets the secret.
	Issuer string `toml:"issuer"`
	// ID is the client id of Gatekit at the identity provider.
	ID string `toml:"id"`
	// Secret is the secret of this client. Default: none.
	Secret Secret `toml:"secret"`
	// Key is a private key, as PEM or JWK, that signs the client's assertions (private_key_jwt). It
	// is used instead of a secret. Default: none.
	Key Secret `toml:"key"`
}

// checkServerAuth checks the credentials of a server. n is the node of the server.
func (l *loader) checkServerAuth(s *Server, n *node) {
	if s.Auth == nil {
		return
	}
	a, at, name := s.Auth, n.lookup("auth"), "server."+s.Name+".auth"
	l.checkOneOf(&a.Type, at, name, "type", "headers", "client_credentials", "oauth",
		"exchange", "id_jag")
	if s.URL == "" && !l.isUnknown(n, "url") {
		l.errorf(at, "[%s] applies to a server with a url, and this one has a command: its "+
			"credentials come from env", name)
		return
	}
	if a.Type == "headers" {
		for _, key := range at.keys {
			if key != "type" {
				l.errorf(at.lookup(key), `%s.%s needs another type than "headers"`, name, key)
			}
		}
		return
	}
	for key := range s.Headers {
		if strings.EqualFold(key, "authorization") {
			l.errorf(n.lookup("headers", key), "server.%s.headers.%s: the header is set by [%s]; "+
				"remove one of them", s.Name, key, name)
		}
	}
	if u, err := url.Parse(s.URL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		l.errorf(n.lookup("url"), "server.%s.url sends tokens over http; use https", s.Name)
	}
	l.checkOneOf(&a.Per, at, name, "per", "principal", "gatekit")
	for _, setting := range []struct {
		key   string
		types []string // that have the setting
	}{
		{"per", []string{"oauth"}}, {"register", []string{"oauth"}},
		{"connect_tool", []string{"oauth", "id_jag"}}, {"audience", []string{"exchange"}},
		{"login", []string{"id_jag"}}, {"without_metadata", []string{"oauth"}},
	} {
		if at.has(setting.key) && !slices.Contains(setting.types, a.Type) &&
			!l.isUnknown(at, "type") {
			l.errorf(at.lookup(setting.key), `%s.%s needs type = "%s"`, name, setting.key,
				strings.Join(setting.types, `" or "`))
		}
	}
	l.checkAuthClient(a, at, name)
	l.checkAuthIssuer(a, at, name)
	if a.WithoutMetadata && a.Issuer != originOf(s.URL) && !l.isUnknown(at, "issuer") &&
		!l.isUnknown(n, "url") {
		l.errorf(at.lookup("without_metadata"), "%s.without_metadata needs the origin of the "+
			"server as the issuer: set issuer = %q", name, originOf(s.URL))
	}
	if a.Type == "id_jag" {
		l.checkProviderLogin(a, at, name)
	}
	l.checkScopes(a.Scopes, at.lookup("scopes"), name+".scopes")
	l.checkScopes(a.MaxScopes, at.lookup("max_scopes"), name+".max_scopes")
	for i, scope := range a.Scopes {
		if len(a.MaxScopes) > 0 && !slices.Contains(a.MaxScopes, scope) {
			l.errorf(at.lookup("scopes").item(i), "%s.scopes[%d] is %q, which is not one of "+
				"max_scopes", name, i, scope)
		}
	}
	for i, network := range a.Networks {
		if item := at.lookup("networks").item(i); !l.hasErrorAt(item) {
			if p, err := netip.ParsePrefix(network); err != nil || p.Masked() != p {
				l.errorf(item, `%s.networks[%d] must be a network such as "10.0.0.0/8", not %q`,
					name, i, item.raw)
			}
		}
	}
}

// originOf returns the scheme and the host of a URL.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "" // no issuer
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

func (l *loader) checkAuthClient(a *ServerAuth, at *node, name string) {
	client := at.lookup("client")
	hasSecret, hasKey := client.has("secret"), client.has("key")
	hasID := a.Client.ID != "" || l.isUnknown(client, "id") || l.isUnknown(at, "client")
	switch isOAuth := a.Type == "oauth"; {
	case hasID && isOAuth && a.Register && !l.partial && (hasSecret || hasKey ||
		!isDocument(a.Client.ID)):
		l.errorf(at.lookup("register"), "%s.register is for a Gatekit without a client id, or "+
			"whose client id is the https URL of a client metadata document: remove client or "+
			"register", name)
	case hasID || isOAuth && (a.Register || l.hasDocument || l.isUnknown(at, "register")) &&
		!hasSecret && !hasKey:
	case isOAuth && !hasSecret && !hasKey:
		l.errorf(at, `[%s] has no client id: set client = { id = "…" }, or register = true if `+
			`the authorization server registers clients, or an https listen.public_url if it `+
			`reads client metadata documents`, name)
	default:
		l.errorf(at, `[%s] has no client id: set client = { id = "…", secret = "${file:…}" }`,
			name)
	}
	switch {
	case hasSecret && hasKey:
		l.errorf(client.lookup("key"), "%s.client has both a secret and a key: remove one of them",
			name)
	case !hasSecret && !hasKey && !l.partial && a.Type != "oauth":
		l.errorf(at, "[%s] needs a secret or a key in client: its type is %q", name, a.Type)
	}
}

// isDocument reports whether a client id is the URL of a client metadata document.
func isDocument(id string) bool {
	u, err := url.Parse(id)
	return err == nil && u.Scheme == "https" && u.Host != "" && len(u.Path) > 1 &&
		u.Fragment == "" && u.User == nil
}

// checkAuthIssuer checks the issuer. A client with a secret needs one.
func (l *loader) checkAuthIssuer(a *ServerAuth, at *node, name string) {
	client := at.lookup("client")
	needed := a.Type != "oauth" || client.has("secret") || client.has("key")
	if needed && !at.has("issuer") && !l.isUnknown(at, "issuer") {
		l.errorf(at, "[%s] has no issuer: set it to the authorization server; otherwise the "+
			"server could name another one, which would get the client's secret", name)
	}
	l.checkIssuerURL(a.Issuer, at, name)
}

// checkIssuerURL checks the key issuer of a table, if it is there.
func (l *loader) checkIssuerURL(issuer string, at *node, name string) {
	if !at.has("issuer") || l.hasErrorAt(at.lookup("issuer")) {
		return
	}
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		l.errorf(at.lookup("issuer"), `%s.issuer must be a URL such as `+
			`"https://login.example", not %q`, name, at.lookup("issuer").raw)
	}
}

// checkProviderLogin checks the identity provider of type = "id_jag".
func (l *loader) checkProviderLogin(a *ServerAuth, at *node, name string) {
	login := at.lookup("login")
	if l.isUnknown(at, "login") {
		return
	}
	if !at.has("login") {
		l.errorf(at, `[%s] has no login: set login = { issuer = "…", id = "…", secret = `+
			`"${file:…}" } to the identity provider of the users`, name)
		return
	}
	name += ".login"
	if a.Login.Issuer == "" && !l.isUnknown(login, "issuer") {
		l.errorf(login, "%s has no issuer", name)
	}
	if a.Login.ID == "" && !l.isUnknown(login, "id") {
		l.errorf(login, "%s has no id", name)
	}
	switch hasSecret, hasKey := login.has("secret"), login.has("key"); {
	case hasSecret && hasKey:
		l.errorf(login.lookup("key"), "%s has both a secret and a key: remove one of them", name)
	case !hasSecret && !hasKey && !l.partial:
		l.errorf(login, "%s needs a secret or a key: whoever has an ID token could exchange it "+
			"otherwise", name)
	}
	l.checkIssuerURL(a.Login.Issuer, login, name)
}

// checkExchanges checks that clients can have the tokens that are to be exchanged.
func (l *loader) checkExchanges(c *Config, root *node) {
	var issuers []string
	if c.Listen.Auth != nil {
		for i, issuer := range c.Listen.Auth.Issuers {
			if l.isUnknown(root.lookup("listen", "auth", "issuer").item(i), "issuer") {
				return
			}
			issuers = append(issuers, issuer.Issuer)
		}
	}
	for _, s := range c.Servers {
		if s.Auth == nil || s.Auth.Type != "exchange" || s.Auth.Issuer == "" {
			continue
		}
		at := root.lookup("server", s.Name, "auth", "issuer")
		if !l.hasErrorAt(at) && !slices.Contains(issuers, s.Auth.Issuer) {
			l.errorf(at, "server.%s.auth.issuer exchanges the tokens of clients, and no "+
				"[[listen.auth.issuer]] has the issuer %q", s.Name, at.raw)
		}
	}
}

// isScope reports whether a request can have the scope (RFC 6749, section 3.3).
func isScope(scope string) bool {
	return scope != "" && !strings.ContainsFunc(scope, func(c rune) bool {
		return c <= ' ' || c > '~' || c == '"' || c == '\\'
	})
}

// checkScopes checks that each scope is one that a request can have.
func (l *loader) checkScopes(scopes []string, at *node, name string) {
	for i, scope := range scopes {
		if item := at.item(i); !isScope(scope) && !l.hasErrorAt(item) {
			l.errorf(item, "%s[%d] is not a scope: %q", name, i, item.raw)
		}
	}
}
