package credentials

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

var inspectorPage = regexp.MustCompile(`http://127\.0\.0\.1:\d+\S*MCP_INSPECTOR_API_TOKEN=\w+`)

// inspectorInABrowser logs in with the web page of the Inspector, in Chromium.
func (c aClient) inspectorInABrowser() string {
	harness.Long(c.t, "starts a browser")
	peers.Installed(c.t, "chromium")
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		c.t.Fatal(err)
	}
	home := c.t.TempDir()
	server := map[string]any{"type": "streamable-http", "url": c.url,
		"protocolEra": map[bool]string{false: "legacy", true: "modern"}[c.modern]}
	storage := filepath.Join(home, ".mcp-inspector", "storage")
	if err := os.MkdirAll(storage, 0o700); err != nil {
		c.t.Fatal(err)
	}
	switch {
	case strings.HasPrefix(c.id, "https:"):
		c.writeJSON(filepath.Join(storage, "client.json"), map[string]any{"cimd": map[string]any{
			"enabled": true, "clientMetadataUrl": c.id}})
	case c.id != "":
		server["oauth"] = map[string]any{"clientId": c.id}
	}
	file := filepath.Join(home, "mcp.json")
	c.writeJSON(file, map[string]any{"mcpServers": map[string]any{"gatekit": server}})
	_, port, _ := strings.Cut(peers.FreeAddress(c.t), ":")
	_, sandbox, _ := strings.Cut(peers.FreeAddress(c.t), ":")
	m := peers.Node(c.t)
	cmd := exec.CommandContext(harness.Context(c.t), m.Inspector()[0], append(m.Inspector()[1:],
		"--web", "--config", file)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "MCP_AUTO_OPEN_ENABLED=false",
		"MCP_INSPECTOR_SECRET_STORE=file", "CLIENT_PORT=" + port, "MCP_SANDBOX_PORT=" + sandbox,
		"NODE_EXTRA_CA_CERTS=" + c.certFile}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	page := ""
	for lines := bufio.NewScanner(out); page == "" && lines.Scan(); {
		page = inspectorPage.FindString(lines.Text())
	}
	text, err := exec.CommandContext(harness.Context(c.t), "node", filepath.Join(peers.Top(),
		"test", "e2e", "credentials", "inspector.mjs"), peers.Published(c.t).Path(
		"playwright-core", "index.js"), chromium, page, filepath.Base(c.t.Name())).CombinedOutput()
	if err != nil {
		c.t.Errorf("the browser: %v", err)
	}
	return string(text)
}

// writeJSON writes a file.
func (c aClient) writeJSON(path string, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
