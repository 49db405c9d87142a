package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ListenTLS is [listen.tls]: the certificate of the HTTP listener.
type ListenTLS struct {
	// Cert is the absolute path of a PEM file with the certificate and its chain.
	Cert string `toml:"cert"`
	// Key is the absolute path of a PEM file with the private key of the certificate.
	Key string `toml:"key"`
}

// Auth is [listen.auth]: who may use the HTTP endpoint.
type Auth struct {
	// Anonymous also accepts clients of this machine that send no credential, as the principal
	// local:anonymous. Default: false.
	Anonymous bool `toml:"anonymous"`
	// Skew is how far the clocks of issuers may differ from this machine's. Default: 30s.
	Skew time.Duration `toml:"skew"`
	// Scopes holds the scopes that every token must have. Default: none.
	Scopes []string `toml:"scopes"`

	// Issuers holds the authorization servers whose access tokens are accepted.
	Issuers []Issuer `toml:"issuer"`
	// Tokens holds the static tokens, in the order of the file.
	Tokens []StaticToken `toml:"token"`
	// MTLS accepts clients by their TLS certificates; nil when the file has no [listen.auth.mtls].
	MTLS *ClientCertificates `toml:"mtls"`
	// Roles holds who may use the console of the listener; nil when the file has no such table.
	Roles *Roles `toml:"roles"`
}

// Roles is [listen.auth.roles]: the users of the console of the listener.
type Roles struct {
	// ConsoleRead holds the users who may see all pages of the console: "group:NAME" for the
	// members of a group of an issuer, and ISSUER#SUBJECT for one principal, as the audit log names
	// it. Default: nobody.
	ConsoleRead []string `toml:"console/read"`
	// ConsoleApprove holds the users who may see the pages, and approve requests and pins. Default:
	// nobody.
	ConsoleApprove []string `toml:"console/approve"`
}

// groupPrefix begins a value of Roles that stands for a group.
const groupPrefix = "group:"

// HasRole reports whether one of the values of a role stands for a principal: its ID, or one of its
// groups.
func HasRole(role []string, principal string, groups []string) bool {
	return slices.ContainsFunc(role, func(value string) bool {
		group, isGroup := strings.CutPrefix(value, groupPrefix)
		if isGroup {
			return slices.Contains(groups, group)
		}
		return principal != "" && value == principal
	})
}

// DefaultSkew is how far the clocks of issuers may differ if the configuration does not say it.
const DefaultSkew = 30 * time.Second

func (a *Auth) setDefaults() { a.Skew = DefaultSkew }

// Issuer is one [[listen.auth.issuer]]: an authorization server whose access tokens are accepted.
type Issuer struct {
	// Issuer is the identifier of the authorization server: exactly the iss of its tokens.
	Issuer string `toml:"issuer"`
	// Audience holds the values of aud that a token may be for. Default: listen.public_url followed
	// by listen.path.
	Audience []string `toml:"audience"`
	// Algorithms holds the algorithms of signatures that are accepted: RS, PS or ES followed by
	// 256, 384 or 512, and EdDSA. Default: RS256, PS256, ES256 and EdDSA.
	Algorithms []string `toml:"algorithms"`
	// Tokens is how tokens are checked: jwt (by their signature) or introspection (the issuer is
	// asked about each token). Default: jwt.
	Tokens string `toml:"tokens"`
	// Subject is the claim that names the user: a name, or a JSON pointer such as /user/id.
	// Default: sub.
	Subject string `toml:"subject"`
	// Groups is the claim with the groups of the user: a name, or a JSON pointer such as
	// /realm_access/roles. Default: groups.
	Groups string `toml:"groups"`
	// Scope is the claim with the scopes. Default: none, which is scope, or else scp.
	Scope string `toml:"scope"`
	// ScopePrefix is the beginning of the names by which clients ask the issuer for scopes that
	// tokens name without it, such as api://APP-ID/ of Entra ID. Challenges and the metadata then
	// name the scopes with it; listen.auth.scopes and policies never do. If listen.auth.scopes is
	// set, all issuers must have the same. Default: none.
	ScopePrefix string `toml:"scope_prefix"`
	// Clients holds the OAuth clients that may ask (client_id, azp, cid or appid). Default: none,
	// so that all may.
	Clients []string `toml:"clients"`
	// Networks holds the networks that the issuer may be in besides the public internet, such as
	// 10.0.0.0/8. Default: none.
	Networks []string `toml:"networks"`
	// Introspect is how the issuer is asked about tokens. With tokens = "jwt", it is asked in
	// addition, so that a revoked token is refused at once; nil when the file has no such table.
	Introspect *Introspect `toml:"introspect"`
	// Login is the OpenID Connect client of Gatekit's own pages at the issuer: a call that needs a
	// login at a server asks the user to open such a page. Its redirect URI is public_url followed
	// by /connect/login. With listen.console, users log in to the console with it, too, and it
	// needs a second redirect URI: public_url followed by /console/callback. nil when the file has
	// no such table.
	Login *LoginClient `toml:"login"`
}

func (i *Issuer) setDefaults() {
	i.Algorithms = []string{"RS256", "PS256", "ES256", "EdDSA"}
	i.Tokens, i.Subject, i.Groups = "jwt", "sub", "groups"
}

// String returns the identifier. The other fields may hold secrets.
func (i Issuer) String() string { return i.Issuer }

// Introspect is introspect of an issuer: how the issuer is asked about tokens (RFC 7662).
type Introspect struct {
	// ID is the OAuth client id of Gatekit at the issuer.
	ID string `toml:"id"`
	// Secret is the secret of this client.
	Secret Secret `toml:"secret"`
	// Cache is how long an answer counts. Default: 10s.
	Cache time.Duration `toml:"cache"`
}

func (i *Introspect) setDefaults() { i.Cache = 10 * time.Second }

// LoginClient is login of an issuer: the OpenID Connect client of Gatekit's own pages.
type LoginClient struct {
	// ID is the client id of Gatekit's pages at the issuer.
	ID string `toml:"id"`
	// Secret is the secret of this client.
	Secret Secret `toml:"secret"`
}

// StaticToken is one [listen.auth.token.NAME]: a token that gatekit auth token NAME has made.
type StaticToken struct {
	// Name is the name in the header, and a part of the token.
	Name string `toml:",name"`

	// SHA256 is the digest of the secret half of the token, as 64 hexadecimal digits.
	SHA256 string `toml:"sha256"`
	// Subject is the name of the principal, after token: in the audit log. Default: NAME.
	Subject string `toml:"subject"`
	// Scopes holds the scopes of the token. Default: none.
	Scopes []string `toml:"scopes"`
	// Expires is when the token ends, such as 2027-01-01T00:00:00Z. Default: never.
	Expires time.Time `toml:"expires"`
}

// ClientCertificates is [listen.auth.mtls]: which TLS certificates of clients are accepted.
type ClientCertificates struct {
	// CA is the PEM of the certificates that sign those of clients, such as "${file:clients.pem}".
	CA string `toml:"ca"`
	// Subject is the kind of name in the certificate that becomes the principal: uri (of SPIFFE),
	// dns or email. Default: uri.
	Subject string `toml:"subject"`
	// Trust holds the names that are accepted. A URI that ends with a slash stands for all URIs
	// below it, ".example.com" for all DNS names below it, and "@example.com" for all its
	// mailboxes.
	Trust []string `toml:"trust"`
}

func (c *ClientCertificates) setDefaults() { c.Subject = "uri" }

// Resource returns the URL of the HTTP endpoint as clients reach it, or "" without a public_url.
func (c *Listen) Resource() string {
	if c.PublicURL == "" {
		return ""
	}
	return strings.TrimSuffix(c.PublicURL, "/") + c.Path
}

// ClientDocument is the path of Gatekit's own client metadata document, below public_url.
const ClientDocument = "/connect/client.json"

// ClientDocumentURL returns the URL of Gatekit's own client metadata document. It returns "" if
// there is none: authorization servers only read such documents over https.
func (c *Listen) ClientDocumentURL() string {
	if !strings.HasPrefix(c.PublicURL, "https://") {
		return ""
	}
	return strings.TrimSuffix(c.PublicURL, "/") + ClientDocument
}

// ConnectPages is the path of Gatekit's own pages for logins at servers, below public_url.
const ConnectPages = "/connect/"

// HasConnectPages reports whether Gatekit serves pages for logins at servers.
func (c *Listen) HasConnectPages() bool {
	return c.Auth != nil && slices.ContainsFunc(c.Auth.Issuers, func(i Issuer) bool {
		return i.Login != nil
	})
}

// ConnectCallbackURL returns the redirect URI of logins that begin at Gatekit's own pages, or "" if
// there are no such pages.
func (c *Listen) ConnectCallbackURL() string {
	if !c.HasConnectPages() {
		return ""
	}
	return strings.TrimSuffix(c.PublicURL, "/") + ConnectPages + "callback"
}

// ConsolePages is the path of the console, below public_url.
const ConsolePages = "/console/"

// hasCredentials reports whether a client can authenticate itself.
func (a *Auth) hasCredentials() bool {
	return a != nil && (len(a.Issuers) > 0 || len(a.Tokens) > 0 || a.MTLS != nil)
}

// Required reports whether all HTTP clients must authenticate themselves.
func (a *Auth) Required() bool { return a.hasCredentials() && !a.Anonymous }

var hexSHA256 = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

var signatureAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
	"ES384", "ES512", "EdDSA"}

// checkAuthentication checks public_url, [listen.tls] and [listen.auth].
func (l *loader) checkAuthentication(c *Listen, n *node) {
	l.checkPublicURL(c, n)
	if c.TLS != nil {
		l.checkListenTLS(c.TLS, n.lookup("tls"))
	}
	for _, key := range []string{"tls", "auth", "public_url"} {
		if n.has(key) && !n.has("http") && !l.partial {
			l.errorf(n.lookup(key), "listen.%s needs listen.http, which is not set", key)
		}
	}
	l.checkConsole(c, n)
	a := c.Auth
	if a == nil {
		return
	}
	at := n.lookup("auth")
	if !a.hasCredentials() && !l.partial && !l.isUnknown(at, "issuer") &&
		!l.isUnknown(at, "token") && !l.isUnknown(at, "mtls") {
		l.errorf(at, "[listen.auth] lets nobody in: it needs an [[listen.auth.issuer]], a "+
			"[listen.auth.token.NAME] or [listen.auth.mtls]; remove the table to serve only this "+
			"machine")
	}
	l.checkScopes(a.Scopes, at.lookup("scopes"), "listen.auth.scopes")
	opaque := ""
	seen := map[string]bool{}
	for i := range a.Issuers {
		issuer, at := &a.Issuers[i], at.lookup("issuer").item(i)
		name := elementName("listen.auth.issuer", i, "")
		l.checkIssuer(c, issuer, at, name)
		if c.PublicURL == "" && !l.partial && !l.isUnknown(n, "public_url") {
			l.errorf(at, "%s needs listen.public_url, the URL at which clients reach Gatekit: "+
				"tokens are for this URL, and clients are told where to log in", name)
		}
		if issuer.Issuer != "" && seen[issuer.Issuer] {
			l.errorf(at.lookup("issuer"), "there are two issuers %q",
				at.lookup("issuer").raw)
		}
		seen[issuer.Issuer] = true
		if prefix := at.lookup("scope_prefix"); issuer.ScopePrefix != "" &&
			!isScope(issuer.ScopePrefix) && !l.hasErrorAt(prefix) {
			l.errorf(prefix, "%s.scope_prefix cannot begin a scope: %q", name, prefix.raw)
		}
		if len(a.Scopes) > 0 && issuer.ScopePrefix != a.Issuers[0].ScopePrefix && !l.partial {
			l.errorf(at, "%s has another scope_prefix than the first issuer: clients are told "+
				"the names of listen.auth.scopes before their issuer is known; remove "+
				"listen.auth.scopes, and demand scopes by a policy", name)
		}
		if issuer.Tokens == "introspection" {
			if opaque != "" {
				l.errorf(at.lookup("tokens"), "%s and %s both have tokens = "+
					"\"introspection\"; only one can be asked about tokens that do not name "+
					"their issuer", opaque, name)
			}
			opaque = name
		}
	}
	for i := range a.Tokens {
		l.checkStaticToken(a, &a.Tokens[i], at.lookup("token", a.Tokens[i].Name))
	}
	if a.MTLS != nil {
		l.checkClientCertificates(c, a.MTLS, at.lookup("mtls"))
	}
}

// checkConsole checks listen.console and the roles of its users.
func (l *loader) checkConsole(c *Listen, n *node) {
	if c.Auth != nil && c.Auth.Roles != nil {
		l.checkRoles(c, n)
	}
	if !c.Console || l.partial {
		return
	}
	at := n.lookup("console")
	switch {
	case !n.has("http"):
		l.errorf(at, "listen.console needs listen.http, which is not set; [admin] console serves "+
			"this machine")
	case c.PublicURL == "" && !l.isUnknown(n, "public_url"):
		l.errorf(at, "listen.console needs listen.public_url, the URL at which browsers reach "+
			"Gatekit")
	case !l.isUnknown(n, "auth") && !c.HasConnectPages():
		l.errorf(at, "listen.console needs an [[listen.auth.issuer]] with login = { id = \"…\", "+
			"secret = \"…\" }, at which its users log in")
	case strings.HasPrefix(c.Path, ConsolePages) || c.Path+"/" == ConsolePages:
		l.errorf(at, "listen.console needs the paths below %s, and listen.path = %q is one of "+
			"them; change listen.path", ConsolePages, c.Path)
	}
}

// checkRoles checks who may use the console of the listener.
func (l *loader) checkRoles(c *Listen, n *node) {
	at := n.lookup("auth").lookup("roles")
	for key, values := range map[string][]string{"console/read": c.Auth.Roles.ConsoleRead,
		"console/approve": c.Auth.Roles.ConsoleApprove} {
		for i, value := range values {
			group, isGroup := strings.CutPrefix(value, groupPrefix)
			isUser := slices.ContainsFunc(c.Auth.Issuers, func(i Issuer) bool {
				subject, ok := strings.CutPrefix(value, i.Issuer+"#")
				return i.Login != nil && ok && subject != ""
			})
			item := at.lookup(key).item(i)
			if isGroup && group != "" || isUser || l.hasErrorAt(item) || l.partial {
				continue
			}
			l.errorf(item, `listen.auth.roles: %q[%d] must be "group:NAME", or ISSUER#SUBJECT of `+
				`an [[listen.auth.issuer]] with a login, not %q`, key, i, item.raw)
		}
	}
}

func (l *loader) checkPublicURL(c *Listen, n *node) {
	at := n.lookup("public_url")
	if c.PublicURL == "" || l.hasErrorAt(at) {
		return
	}
	u, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		u.Scheme != "https" && u.Scheme != "http":
		l.errorf(at, `listen.public_url must be a URL such as "https://gatekit.example", not %q`,
			at.raw)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		l.errorf(at, "listen.public_url = %q must be https: clients would send their tokens "+
			"without encryption", at.raw)
	case !isLoopback(u.Hostname()) && n.has("http") && !c.Auth.hasCredentials() && !l.partial &&
		!l.isUnknown(n, "auth"):
		l.errorf(at, "listen.public_url = %q can be reached from other machines, and clients are "+
			"not authenticated; add [listen.auth], or remove public_url", at.raw)
	}
}

func (l *loader) checkListenTLS(t *ListenTLS, n *node) {
	for key, path := range map[string]*string{"cert": &t.Cert, "key": &t.Key} {
		if *path == "" && !l.partial && !l.isUnknown(n, key) && !l.hasErrorAt(n.lookup(key)) {
			l.errorf(n, "listen.tls has no %s: it needs cert and key, two PEM files", key)
		} else if *path != "" {
			*path = l.absPath(*path)
		}
	}
	if t.Cert == "" || t.Key == "" {
		return
	}
	if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
		l.errorf(n, "listen.tls: %v", err)
	}
}

func (l *loader) checkIssuer(c *Listen, i *Issuer, n *node, name string) {
	at := n.lookup("issuer")
	u, err := url.Parse(i.Issuer)
	switch {
	case l.hasErrorAt(at):
	case i.Issuer == "":
		if !l.partial && !l.isUnknown(n, "issuer") {
			l.errorf(n, "%s has no issuer: set it to the iss of its tokens", name)
		}
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		u.Scheme != "https" && u.Scheme != "http":
		l.errorf(at, `%s.issuer must be a URL such as "https://login.example", not %q`, name,
			at.raw)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		l.errorf(at, "%s.issuer = %q must be https: its keys could be changed in transit", name,
			at.raw)
	}
	if len(i.Audience) == 0 && !n.has("audience") && c.PublicURL != "" {
		i.Audience = []string{c.Resource()}
	}
	if (n.has("audience") && len(i.Audience) == 0 || slices.Contains(i.Audience, "")) &&
		!l.hasErrorAt(n.lookup("audience")) {
		l.errorf(n.lookup("audience"), "%s.audience must have at least one value, and none may be "+
			"empty", name)
	}
	if len(i.Algorithms) == 0 {
		l.errorf(n.lookup("algorithms"), "%s.algorithms must have at least one algorithm", name)
	}
	for k, a := range i.Algorithms {
		if at := n.lookup("algorithms").item(k); !slices.Contains(signatureAlgorithms, a) {
			l.errorf(at, "%s.algorithms[%d] must be one of %s, not %q", name, k,
				strings.Join(signatureAlgorithms, ", "), at.raw)
		}
	}
	for k, p := range i.Networks {
		if _, err := netip.ParsePrefix(p); err != nil {
			at := n.lookup("networks").item(k)
			l.errorf(at, `%s.networks[%d] must be a network such as "10.0.0.0/8", not %q`, name, k,
				at.raw)
		}
	}
	l.checkOneOf(&i.Tokens, n, name, "tokens", "jwt", "introspection")
	if i.Tokens == "introspection" && i.Introspect == nil && !l.partial &&
		!l.isUnknown(n, "introspect") {
		l.errorf(n, `%s has tokens = "introspection" but no introspect = { id = "…", secret = `+
			`"…" }`, name)
	}
	if s := i.Introspect; s != nil {
		l.checkIssuerClient(s.ID, s.Secret, n.lookup("introspect"), name+".introspect")
	}
	if s := i.Login; s != nil {
		at := n.lookup("login")
		l.checkIssuerClient(s.ID, s.Secret, at, name+".login")
		if strings.HasPrefix(c.Path, ConnectPages) {
			l.errorf(at, "%s.login needs the paths below %s for its pages, and listen.path = %q "+
				"is one of them; change listen.path", name, ConnectPages, c.Path)
		}
	}
}

// checkIssuerClient checks that a client of Gatekit at an issuer has an id and a secret.
func (l *loader) checkIssuerClient(id string, secret Secret, at *node, name string) {
	for key, missing := range map[string]bool{"id": id == "", "secret": secret == ""} {
		if missing && !l.partial && !l.isUnknown(at, key) && !l.hasErrorAt(at.lookup(key)) {
			l.errorf(at, "%s has no %s", name, key)
		}
	}
}

func (l *loader) checkStaticToken(a *Auth, t *StaticToken, n *node) {
	name := "listen.auth.token." + t.Name
	if !serverName.MatchString(t.Name) {
		l.errorf(n, `%q is not a valid name of a token: it must start with a-z and contain only `+
			`a-z, 0-9 and "-"`, t.Name)
	}
	if at := n.lookup("sha256"); !hexSHA256.MatchString(t.SHA256) && !l.hasErrorAt(at) &&
		!l.partial && !l.isUnknown(n, "sha256") {
		if !n.has("sha256") {
			at = n
		}
		l.errorf(at, "%s.sha256 must have 64 hexadecimal digits; gatekit auth token %s prints a "+
			"new token and its table", name, t.Name)
	}
	if t.Subject == "" {
		t.Subject = t.Name
	}
	l.checkScopes(t.Scopes, n.lookup("scopes"), name+".scopes")
	for _, s := range a.Scopes {
		if !slices.Contains(t.Scopes, s) && !l.partial && !l.isUnknown(n, "scopes") {
			l.errorf(n, "[%s] has no scope %q, which listen.auth.scopes demands of every token",
				name, s)
		}
	}
}

// Digest returns the value of SHA256.
func (t *StaticToken) Digest() (digest [32]byte) {
	hex.Decode(digest[:], []byte(t.SHA256)) // Load has checked it
	return digest
}

func (l *loader) checkClientCertificates(c *Listen, m *ClientCertificates, n *node) {
	const name = "listen.auth.mtls"
	if c.TLS == nil && !l.partial {
		l.errorf(n, "[listen.auth.mtls] needs listen.tls: certificates of clients are a part of "+
			"TLS")
	}
	if at := n.lookup("ca"); !l.hasErrorAt(at) && !l.partial && !l.isUnknown(n, "ca") &&
		!x509.NewCertPool().AppendCertsFromPEM([]byte(m.CA)) {
		if !n.has("ca") {
			at = n
		}
		l.errorf(at, `%s.ca must have a certificate in PEM, such as "${file:clients.pem}"`, name)
	}
	l.checkOneOf(&m.Subject, n, name, "subject", "uri", "dns", "email")
	if len(m.Trust) == 0 && !l.partial && !l.isUnknown(n, "trust") || slices.Contains(m.Trust, "") {
		l.errorf(n, "%s.trust must have the names that are accepted, such as "+
			`"spiffe://acme.example/"`, name)
	}
}
