package sessions

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// TestBrowserKeepsItsPage opens a page with the published Playwright server, and changes the title
// of the page. Then the client does nothing until the processes of idle servers are ended. With
// keep = true, the browser must still have the changed page. Without keep, the page is gone.
func TestBrowserKeepsItsPage(t *testing.T) {
	harness.Long(t, "starts browsers")
	peers.Installed(t, "chromium")
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"node", peers.Published(t).Path("@playwright", "mcp", "cli.js"),
		"--headless", "--isolated", "--no-sandbox", "--executable-path", browser}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<title>as loaded</title>")
	}))
	defer site.Close()

	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		for _, keep := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, keep = %v", revision, keep), func(t *testing.T) {
				address := peers.FreeAddress(t)
				g := harness.StartHTTP(t, harness.ScriptedServer("box")+
					harness.StdioServer("browser", command, "HOME", t.TempDir())+
					fmt.Sprintf("keep = %v\n[admin]\nhttp = %q\n[limits]\nserver_idle = \"2s\"\n",
						keep, address))
				processes := func(server string) int {
					return metric(t, "http://"+address,
						`gatekit_server_processes{gatekit_server="`+server+`"}`)
				}
				conn := mcptest.NewHTTP(g.URL)
				conn.NoStream = true // an open stream would keep all servers
				c := mcptest.NewClient(conn, revision)
				t.Cleanup(func() { c.Close() })
				harness.Handshake(t, c)
				title := func(function string) string {
					t.Helper()
					return string(harness.CallTool(t, c, "browser__browser_evaluate",
						`{"function":"`+function+`"}`).Raw)
				}

				harness.CallTool(t, c, "browser__browser_navigate", `{"url":"`+site.URL+`"}`)
				if got := title("() => document.title"); !strings.Contains(got, "as loaded") {
					t.Fatalf("the browser did not load the page: %s", got)
				}
				title("() => { document.title = 'changed' }")
				harness.CallTool(t, c, "box__echo", ``)

				// With keep, the browser's process stays. The end of box, which was used last,
				// then shows that server_idle has passed.
				idle := "box"
				if !keep {
					idle = "browser"
				}
				harness.WaitUntilAtMost(t, "processes of the server "+idle, 0, func() int {
					return processes(idle)
				})
				got := title("() => document.title")
				if hasPage := strings.Contains(got, "changed"); hasPage != keep {
					t.Errorf("after server_idle, the browser has its page: %v, want %v; it "+
						"answered %s", hasPage, keep, got)
				}
			})
		}
	}
}
