package config

import "slices"

// KeyringKey is the value of tokens.key for a key in the keyring of the operating system.
const KeyringKey = "keyring"

// minTokenKey is the length of the shortest key, in bytes.
const minTokenKey = 32

// Tokens is [tokens]: where the logins at servers with type = "oauth" or "id_jag" are kept, unless
// [shared] keeps them.
type Tokens struct {
	// File is the absolute path of the folder with the logins. Their tokens are encrypted. Default:
	// tokens in the state folder.
	File string `toml:"file"`
	// Key encrypts the tokens: keyring (a key that Gatekit keeps in the keyring of the operating
	// system), or at least 32 random bytes. Default: a key that Gatekit makes in tokens.key in the
	// state folder, readable only for the user.
	Key Secret `toml:"key"`
}

// checkTokens checks [tokens].
func (l *loader) checkTokens(t *Tokens, n *node) {
	if at := n.lookup("file"); n.has("file") && !l.hasErrorAt(at) {
		if t.File == "" {
			l.errorf(at, "tokens.file is empty")
		} else {
			t.File = l.absPath(t.File)
		}
	}
	if at := n.lookup("key"); n.has("key") && !l.hasErrorAt(at) && t.Key != KeyringKey &&
		len(t.Key) < minTokenKey {
		l.errorf(at, "tokens.key has %d bytes, and must be \"keyring\" or have at least %d random "+
			"bytes, such as \"${file:tokens.key}\", made with openssl rand -hex 32 > tokens.key",
			len(t.Key), minTokenKey)
	}
}

// HasLogins reports whether users log in to at least one server.
func (c *Config) HasLogins() bool {
	return slices.ContainsFunc(c.Servers, Server.HasLogins)
}

// HasLogins reports whether users log in to the server.
func (s Server) HasLogins() bool {
	return s.Auth != nil && (s.Auth.Type == "oauth" || s.Auth.Type == "id_jag")
}
