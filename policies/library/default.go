package library

// DefaultRules returns the rules that are active when the user selects none, such as before a
// server that `gatekit wrap` starts, with their settings. [FolderSettings] narrows them for one
// server.
//
// The rules deny only messages that no well-behaved server or client sends. They never modify a
// message, never ask the user, need no settings, and do not read results of tools. The rules are:
//
//   - roots/traversal denies paths that hide `../`. It does not enforce roots: clients declare
//     where they work, not everything that a server may use (a database, a configuration, a remote
//     repository), and most clients declare none.
//   - elicitation/gate enforces the specification's requirements for servers: no secrets and no
//     links in forms, and only https URLs. A local server may open URLs of this machine.
//   - sampling/gate lets servers ask the model: Gatekit forwards sampling requests only to clients
//     that support them, and these ask their user. The rule denies requests for the context of
//     other servers (includeContext = "allServers"). It also denies more than 60 requests within a
//     minute, which are a loop or theft.
//
// The following are not active by default:
//
//   - tools/readonly, tools/allowlist, tools/arguments, resources/redact, flow/exfiltration and
//     limits/rate need settings by the user.
//   - tasks/gate and vendor/methods are not needed, because Gatekit already drops messages that a
//     server may not send.
//   - resources/uris denies a whole result that has a link to the local network. Servers for homes,
//     printers and databases send such links.
//   - Plugins cost a process and about 300 µs per call each. A secret that is redacted in a file is
//     missing when the file is written back.
func DefaultRules() map[string]map[string]any {
	return map[string]map[string]any{
		"elicitation/gate": {"loopback": true},
		"roots/traversal":  {"anywhere": true},
		"sampling/gate": {"servers": []any{"*"}, "context": []any{"none", "thisServer"},
			"tools": true, "per_minute": 60},
	}
}

// FolderSettings returns the settings of roots/traversal for a server that gets its folders, as
// absolute paths, when it starts. Paths must stay within these folders or within the roots that the
// client declares, because such servers use both. home is the folder that ~ stands for, or "" when
// it is not known. Relative paths are assumed to start in one of the folders.
func FolderSettings(folders []string, home string) map[string]any {
	roots := make([]any, len(folders))
	for i, f := range folders {
		roots[i] = f
	}
	settings := map[string]any{"roots": roots, "declared": true, "relative": true}
	if home != "" {
		settings["home"] = home
	}
	return settings
}

// WithoutSettings returns what a rule does when it has no settings, for the rules that are of no
// use then; "" for all others.
func WithoutSettings(rule string) string {
	switch rule {
	case "tools/allowlist":
		return "hides every tool"
	case "flow/exfiltration", "limits/rate", "resources/redact", "tools/arguments":
		return "does nothing"
	}
	return ""
}
