package library

// DefaultRules returns the rules that are active when the user selects none, with their settings.
// For example, they are active for a server that `gatekit wrap` starts. For a server that gets its
// folders when it starts, [FolderSettings] narrows roots/traversal.
//
// The rules deny only messages that no well-behaved server or client sends. They never modify a
// message and never ask the user. They do not need settings. Of the results of tools, they read
// only structuredContent, and only for a tool with an outputSchema. The rules are:
//
//   - roots/traversal denies paths that hide `../`. It does not enforce roots. Most clients declare
//     no roots, and the other clients declare only the folders in which they work. Outside these
//     folders, a server may need a database, a configuration or a remote repository.
//   - elicitation/gate enforces the specification's requirements for servers: no secrets and no
//     links in forms, and only https URLs. A local server may open URLs of this machine. A form
//     that only speaks about a secret, or names the URL that a tool wants to use, adds a note.
//   - sampling/gate lets servers ask the model, because Gatekit forwards sampling requests only to
//     clients that support them, and these clients ask their user. The rule denies requests for the
//     context of other servers (includeContext = "allServers"). It also denies more than 60
//     requests within a minute, because so many requests are a loop or an abuse of the model.
//   - tools/schema only adds notes to the audit record: arguments and results that do not match the
//     tool's own schemas.
//
// These rules and all plugins are not active by default:
//
//   - tools/readonly, tools/allowlist, tools/arguments, resources/redact, flow/exfiltration and
//     limits/rate need settings from the user.
//   - tasks/gate and vendor/methods are not needed, because Gatekit already drops messages that a
//     server may not send.
//   - resources/uris denies a whole result that has a link to the local network. Servers for homes,
//     printers and databases send such links.
//   - Each plugin costs a process, and about 300 µs per call. If a plugin redacts a secret in a
//     file, and the client writes the file back, the secret is lost.
func DefaultRules() map[string]map[string]any {
	return map[string]map[string]any{
		"elicitation/gate": {"loopback": true},
		"roots/traversal":  {"anywhere": true},
		"sampling/gate": {"servers": []any{"*"}, "context": []any{"none", "thisServer"},
			"tools": true, "per_minute": 60},
		"tools/schema": {"arguments": "note", "results": "note"},
	}
}

// FolderSettings returns the settings of roots/traversal for a server that gets its folders when it
// starts. The folders are absolute paths. Paths must stay within these folders or within the roots
// that the client declares, because such servers use both. The parameter home is the folder that ~
// stands for, or "" if it is unknown. Relative paths are assumed to start in one of the folders.
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

// WithoutSettings describes what a rule does without settings, if the rule is useless then. For all
// other rules, it returns "".
func WithoutSettings(rule string) string {
	switch rule {
	case "tools/allowlist":
		return "hides every tool"
	case "flow/exfiltration", "limits/rate", "resources/redact", "tools/arguments":
		return "does nothing"
	}
	return ""
}
