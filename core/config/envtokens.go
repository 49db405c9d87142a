package config

import (
	"regexp"
	"slices"
	"strings"
)

// tokenPrefix begins a token of a user in the env of a server: ${token:SERVER}.
const tokenPrefix = "${token:"

// serverEnv matches the keys whose values may have tokens of users.
var serverEnv = regexp.MustCompile(`^server\.[a-z][a-z0-9-]*\.env\.`)

// splitToken splits a value of env at its first ${token:SERVER}. ok is false if there is none.
func splitToken(value string) (before, server, after string, ok bool) {
	before, rest, ok := strings.Cut(value, tokenPrefix)
	if !ok {
		return value, "", "", false
	}
	server, after, ok = strings.Cut(rest, "}")
	return before, server, after, ok
}

// EnvTokens returns the names of the servers whose tokens are in the env of the server
// (${token:NAME}), sorted. Each process of the server then belongs to one principal.
func (s Server) EnvTokens() []string {
	var names []string
	for _, value := range s.Env {
		for rest := string(value); ; {
			_, name, after, ok := splitToken(rest)
			if !ok {
				break
			}
			names, rest = append(names, name), after
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// WithTokens returns a value of env with the token of each server that it names.
func WithTokens(value Secret, tokens map[string]string) string {
	var out strings.Builder
	for rest := string(value); ; {
		before, name, after, ok := splitToken(rest)
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		out.WriteString(tokens[name])
		rest = after
	}
}

// checkEnvTokens checks that users log in to the servers whose tokens are in the env of others.
func (l *loader) checkEnvTokens(c *Config, root *node) {
	for _, s := range c.Servers {
		for key, value := range s.Env {
			for _, name := range (Server{Env: map[string]Secret{"": value}}).EnvTokens() {
				i := slices.IndexFunc(c.Servers, func(o Server) bool { return o.Name == name })
				at := root.lookup("server", s.Name, "env", key)
				switch {
				case l.hasErrorAt(at):
				case i < 0:
					l.errorf(at, "server.%s.env.%s names the server %q, and there is no "+
						"[server.%s]", s.Name, key, name, name)
				case !c.Servers[i].HasLogins() && !l.isUnknown(root.lookup("server", name), "auth"):
					l.errorf(at, `server.%s.env.%s needs a server that users log in to: set `+
						`[server.%s.auth] type = "oauth" or "id_jag"`, s.Name, key, name)
				}
			}
		}
	}
}
