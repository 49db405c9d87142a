package clientfiles

// Scope is the group of users that a file is for.
type Scope string

// The scopes.
const (
	User    Scope = "user"    // one user of this machine
	Project Scope = "project" // everybody who works in a folder
	System  Scope = "system"  // all users of this machine; an administrator writes the file
)

// Place is where a client looks for servers.
type Place struct {
	// Path is a template. See Machine.Files.
	Path string
	// OS is the operating system that has the file, as runtime.GOOS; "" for all.
	OS string
	// Scope is the group of users that the file is for.
	Scope Scope
	// Format is the syntax of the file.
	Format Format
	// Keys holds the places of the servers in the file. The key * stands for any key.
	Keys [][]string
	// Shape is how the file writes a server.
	Shape Shape
	// Beyond is the reason why the servers in the file cannot be wrapped; "" if they can.
	Beyond string
}

// Shape is how a file writes a server: the names of its keys.
type Shape int

// The shapes.
const (
	// Usual is {"command": "npx", "args": ["-y"], "env": {}}, or {"url": "…"}.
	Usual Shape = iota
	// Array is {"type": "local", "command": ["npx", "-y"], "environment": {}}, as in opencode.
	Array
	// Cmd is {cmd: npx, args: [-y], envs: {}, env_keys: []}, as in Goose.
	Cmd
)

func (s Shape) command() string {
	if s == Cmd {
		return "cmd"
	}
	return "command"
}

func (s Shape) args() string { return "args" }

func (s Shape) isArray() bool { return s == Array }

// urls returns the keys that have the address of a server.
func (s Shape) urls() []string { return []string{"url", "serverUrl", "httpUrl", "uri"} }

// envNames returns the keys that list names of variables without their values.
func (s Shape) envNames() []string { return []string{"env_vars", "env_keys"} }

// noCommand returns what a server without command and URL is, or "".
func (s Shape) noCommand(entry *value) string {
	if t := entry.member("type").string(); s == Cmd && t != "" {
		return "it is part of the client (type " + t + ")"
	}
	return ""
}

// Client is an MCP client.
type Client struct {
	// ID is the name in commands: claude-code.
	ID string
	// Name is the name that the maker gives it.
	Name string
	// Places holds the files in which the client looks for servers.
	Places []Place
	// Restart says what the user has to do before a change of the files is in effect.
	Restart string
}

// keys returns one place of servers in a file.
func keys(k ...string) [][]string { return [][]string{k} }

// Clients returns the known clients, those with the most users first.
//
// The sources are the clients' public documentation, the tables of docker/mcp-gateway
// (pkg/client/config.yml) and toolhive (pkg/client/config.go), and snyk/agent-scan. Each client has
// a fixture in testdata/clients.
func Clients() []Client {
	const restart = "restart the client"
	user := func(path string, f Format, k [][]string) Place {
		return Place{Path: path, Scope: User, Format: f, Keys: k}
	}
	project := func(path string, f Format, k [][]string) Place {
		return Place{Path: path, Scope: Project, Format: f, Keys: k}
	}
	shaped := func(s Shape, p Place) Place {
		p.Shape = s
		return p
	}
	on := func(os string, p Place) Place {
		p.OS = os
		return p
	}
	beyond := func(reason string, p Place) Place {
		p.Beyond = reason
		return p
	}
	system := func(p Place) Place {
		p.Scope = System
		p.Beyond = "an administrator manages this file"
		return p
	}
	mcpServers := keys("mcpServers")
	code := func(product string) []Place {
		in := "{app}/" + product + "/User/"
		return []Place{
			user(in+"mcp.json", JSON, keys("servers")),
			user(in+"profiles/*/mcp.json", JSON, keys("servers")),
			user(in+"settings.json", JSON, keys("mcp", "servers")),
		}
	}
	// An extension of VS Code keeps its own file, in each product that is built on VS Code.
	extension := func(file string) (all []Place) {
		for _, product := range []string{"Code", "Code - Insiders", "Cursor", "VSCodium",
			"Windsurf"} {
			all = append(all, user("{app}/"+product+"/User/globalStorage/"+file, JSON, mcpServers))
		}
		return append(all, user("~/.vscode-server/data/User/globalStorage/"+file, JSON, mcpServers))
	}
	return []Client{
		{ID: "claude-desktop", Name: "Claude Desktop", Restart: restart, Places: []Place{
			user("{app}/Claude/claude_desktop_config.json", JSON, mcpServers),
			on("linux", user("{app}/claude/claude_desktop_config.json", JSON, mcpServers)),
			beyond("Claude Desktop starts its extensions by itself",
				user("{app}/Claude/Claude Extensions/*/manifest.json", JSON,
					keys("server"))),
		}},
		{ID: "claude-code", Name: "Claude Code",
			Restart: "restart the client; it asks again about the servers of a project",
			Places: []Place{
				user("{CLAUDE_CONFIG_DIR|~}/.claude.json", JSON,
					[][]string{{"mcpServers"}, {"projects", "*", "mcpServers"}}),
				project(".mcp.json", JSON, mcpServers),
				beyond("a plugin of Claude Code has it; an update of the plugin replaces the file",
					user("{CLAUDE_CONFIG_DIR|~/.claude}/plugins/cache/*/*/*/.mcp.json", JSON,
						[][]string{{"mcpServers"}})),
				on("linux", system(user("/etc/claude-code/managed-mcp.json", JSON, mcpServers))),
				on("darwin", system(user(
					"/Library/Application Support/ClaudeCode/managed-mcp.json", JSON, mcpServers))),
			}},
		{ID: "cursor", Name: "Cursor",
			Restart: "restart the client; it asks again about a server that has changed",
			Places: []Place{
				user("~/.cursor/mcp.json", JSON, mcpServers),
				project(".cursor/mcp.json", JSON, mcpServers),
			}},
		{ID: "vscode", Name: "VS Code", Restart: "restart the servers (MCP: List Servers)",
			Places: append(code("Code"),
				user("~/.vscode-server/data/User/mcp.json", JSON, keys("servers")),
				project(".vscode/mcp.json", JSON, keys("servers")))},
		{ID: "vscode-insiders", Name: "VS Code Insiders",
			Restart: "restart the servers (MCP: List Servers)",
			Places: append(code("Code - Insiders"),
				user("~/.vscode-server-insiders/data/User/mcp.json", JSON, keys("servers")))},
		{ID: "windsurf", Name: "Windsurf", Restart: "refresh the servers", Places: []Place{
			user("~/.codeium/windsurf/mcp_config.json", JSON, mcpServers),
			user("~/.codeium/mcp_config.json", JSON, mcpServers),
		}},
		{ID: "codex", Name: "Codex", Restart: restart, Places: []Place{
			user("{CODEX_HOME|~/.codex}/config.toml", TOML, keys("mcp_servers")),
			user("{CODEX_HOME|~/.codex}/*.config.toml", TOML, keys("mcp_servers")),
			project(".codex/config.toml", TOML, keys("mcp_servers")),
			system(user("/etc/codex/config.toml", TOML, keys("mcp_servers"))),
		}},
		{ID: "gemini", Name: "Gemini CLI", Restart: restart, Places: []Place{
			user("~/.gemini/settings.json", JSON, mcpServers),
			project(".gemini/settings.json", JSON, mcpServers),
			on("linux", system(user("/etc/gemini-cli/settings.json", JSON, mcpServers))),
			on("darwin", system(user("/Library/Application Support/GeminiCli/settings.json", JSON,
				mcpServers))),
		}},
		{ID: "opencode", Name: "opencode", Restart: restart, Places: []Place{
			shaped(Array, user("{config}/opencode/opencode.json", JSON, keys("mcp"))),
			shaped(Array, user("{config}/opencode/opencode.jsonc", JSON, keys("mcp"))),
			shaped(Array, user("~/.opencode/opencode.json", JSON, keys("mcp"))),
			shaped(Array, user("~/.opencode/opencode.jsonc", JSON, keys("mcp"))),
			shaped(Array, user("{OPENCODE_CONFIG}", JSON, keys("mcp"))),
			shaped(Array, project("opencode.json", JSON, keys("mcp"))),
			shaped(Array, project("opencode.jsonc", JSON, keys("mcp"))),
		}},
		{ID: "goose", Name: "Goose", Restart: restart, Places: []Place{
			shaped(Cmd, user("{config}/goose/config.yaml", YAML, keys("extensions"))),
		}},
		{ID: "copilot", Name: "Copilot CLI", Restart: restart, Places: []Place{
			user("{COPILOT_HOME|~/.copilot}/mcp-config.json", JSON, mcpServers),
		}},
		{ID: "cline", Name: "Cline", Restart: "restart the servers", Places: append(
			extension("saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
			user("~/.cline/data/settings/cline_mcp_settings.json", JSON, mcpServers),
			user("{CLINE_MCP_SETTINGS_PATH}", JSON, mcpServers))},
		{ID: "roo", Name: "Roo Code", Restart: "restart the servers", Places: append(
			extension("rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
			project(".roo/mcp.json", JSON, mcpServers))},
		{ID: "zed", Name: "Zed", Restart: restart, Places: []Place{
			user("{config}/zed/settings.json", JSON, keys("context_servers")),
			project(".zed/settings.json", JSON, keys("context_servers")),
		}},
		{ID: "vibe", Name: "Mistral Vibe", Restart: restart, Places: []Place{
			user("{VIBE_HOME|~/.vibe}/config.toml", TOML, keys("mcp_servers")),
			project(".vibe/config.toml", TOML, keys("mcp_servers")),
		}},
		{ID: "antigravity", Name: "Antigravity", Restart: "refresh the servers", Places: []Place{
			user("~/.gemini/antigravity/mcp_config.json", JSON, mcpServers),
			user("~/.gemini/config/mcp_config.json", JSON, mcpServers),
		}},
		{ID: "continue", Name: "Continue", Restart: "reload the configuration", Places: []Place{
			user("~/.continue/config.yaml", YAML, mcpServers),
			user("~/.continue/config.json", JSON, mcpServers),
			project(".continue/mcpServers/*.yaml", YAML, mcpServers),
			project(".continue/mcpServers/*.json", JSON, mcpServers),
		}},
		{ID: "lmstudio", Name: "LM Studio", Restart: restart, Places: []Place{
			user("~/.lmstudio/mcp.json", JSON, mcpServers),
			user("~/.cache/lm-studio/mcp.json", JSON, mcpServers),
		}},
		{ID: "kiro", Name: "Kiro", Restart: restart, Places: []Place{
			user("~/.kiro/settings/mcp.json", JSON,
				[][]string{{"mcpServers"}, {"powers", "mcpServers"}}),
			project(".kiro/settings/mcp.json", JSON, mcpServers),
		}},
		{ID: "junie", Name: "JetBrains Junie", Restart: restart, Places: []Place{
			user("~/.junie/mcp/mcp.json", JSON, mcpServers),
			project(".junie/mcp/mcp.json", JSON, mcpServers),
		}},
		{ID: "crush", Name: "Crush", Restart: restart, Places: []Place{
			user("{config}/crush/crush.json", JSON, keys("mcp")),
			project(".crush.json", JSON, keys("mcp")),
			project("crush.json", JSON, keys("mcp")),
		}},
		{ID: "amp", Name: "Amp", Restart: restart, Places: []Place{
			user("{config}/amp/settings.json", JSON, keys("amp.mcpServers")),
			project(".amp/settings.json", JSON, keys("amp.mcpServers")),
		}},
		{ID: "amazonq", Name: "Amazon Q Developer", Restart: restart, Places: []Place{
			user("~/.aws/amazonq/mcp.json", JSON, mcpServers),
			user("~/.aws/amazonq/default.json", JSON, mcpServers),
			user("~/.aws/amazonq/agents/*.json", JSON, mcpServers),
			user("~/.aws/amazonq/cli-agents/*.json", JSON, mcpServers),
			project(".amazonq/mcp.json", JSON, mcpServers),
		}},
		{ID: "factory", Name: "Factory", Restart: restart, Places: []Place{
			user("~/.factory/mcp.json", JSON, mcpServers),
			project(".factory/mcp.json", JSON, mcpServers),
		}},
		{ID: "kimi", Name: "Kimi CLI", Restart: restart, Places: []Place{
			user("~/.kimi/mcp.json", JSON, mcpServers),
		}},
		{ID: "trae", Name: "Trae", Restart: restart, Places: []Place{
			user("{app}/Trae/User/mcp.json", JSON, mcpServers),
			project(".trae/mcp.json", JSON, mcpServers),
		}},
		{ID: "qoder", Name: "Qoder", Restart: restart, Places: []Place{
			user("~/.qoder/mcp.json", JSON, mcpServers),
		}},
	}
}
