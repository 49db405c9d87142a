package main

import (
	"strings"
	"testing"
)

func TestWrappedServerIsNamedAfterItsPackage(t *testing.T) {
	tests := []struct{ command, want string }{
		{"npx -y @modelcontextprotocol/server-filesystem /srv/data", "server-filesystem"},
		{"npx @modelcontextprotocol/server-filesystem@2025.8.21 /srv/data", "server-filesystem"},
		{"npx --package=@scope/tools tools-cli serve", "tools"},
		{"npx -p mcp-tools@latest run", "mcp-tools"},
		{"/usr/local/bin/npx -y mcp-remote https://example.com/mcp", "mcp-remote"},
		{"npm exec -y -- mcp-server-git", "mcp-server-git"},
		{"pnpm dlx mcp-server-git", "mcp-server-git"},
		{"bunx -y mcp-server-git", "mcp-server-git"},
		{"node /x/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js /srv",
			"server-filesystem"},
		{"node /home/me/weather/build/index.js", "weather"},
		{"node --env-file .env weather.mjs", "weather"},
		{"node index.js", "index"},
		{"npx -y @upstash/context7@1.0.0", "context7"},
		{"/bin/" + strings.Repeat("long-", 50), strings.Repeat("long-", 12) + "long"},
		{"uvx mcp-server-git==2025.1.1 --repository .", "mcp-server-git"},
		{"uvx --python 3.12 mcp-server-time", "mcp-server-time"},
		{"uv run --directory /srv/x mcp-server-time", "mcp-server-time"},
		{"uv tool run mcp-server-time", "mcp-server-time"},
		{"uv run python -m mcp_server_time", "mcp-server-time"},
		{"python3.12 -m mcp_server_git", "mcp-server-git"},
		{"python /srv/weather/server.py", "weather"},
		{"docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:v1", "github-mcp-server"},
		{"docker run -i --rm --mount type=bind,src=/a,dst=/a mcp/filesystem /a", "filesystem"},
		{"env A=b npx -y mcp-server-git", "mcp-server-git"},
		{"deno run -A npm:mcp-server-git", "mcp-server-git"},
		{"/opt/bin/github-mcp-server.exe stdio", "github-mcp-server"},
		{"npx", "npx"},
		{"docker compose up", "docker"},
		{"123", "server"},
	}
	for _, tt := range tests {
		if got := serverName(strings.Fields(tt.command)); got != tt.want {
			t.Errorf("%s: the server is named %q, want %q", tt.command, got, tt.want)
		}
	}
}
