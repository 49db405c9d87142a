package console

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gatekit/audit"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/test/peers"
)

// recordRefusals opens the log of a replica in a folder, and records refused requests.
func recordRefusals(t *testing.T, dir, replica string, tools ...string) {
	t.Helper()
	l, err := audit.Open(audit.Options{File: filepath.Join(dir, replica, "gatekit.jsonl"),
		Replica: replica})
	if err != nil {
		t.Fatal(err)
	}
	for i, tool := range tools {
		if _, err := l.Record(t.Context(), pipeline.Outcome{Time: time.Now(), Action: "deny",
			Reason: "no", Before: &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Request,
				Session: "s", Exchange: fmt.Sprint(tool, i), Method: "tools/call", Name: tool,
				Server: "box"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// startFleetConsole starts "gatekit console --fleet DIR --print", and returns the URL. The command
// ends with the test, by Ctrl-C.
func startFleetConsole(t *testing.T, dir string) string {
	t.Helper()
	c := exec.Command(peers.Gatekit(t), "console", "--fleet", dir, "--print")
	c.Dir = t.TempDir()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGINT)
		if err := c.Wait(); err != nil {
			t.Errorf("gatekit console --fleet ended with %v after SIGINT", err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("gatekit console --fleet printed %q (%v)", url, err)
	}
	return strings.TrimSpace(url)
}

// The console of a fleet shows the calls of all replicas, each with its replica, as the logs grow,
// and has no page that needs a running gatekit.
func TestFleetConsoleShowsAllReplicas(t *testing.T) {
	peers.Installed(t, "chromium")
	dir := t.TempDir()
	recordRefusals(t, dir, "gatekit-0", "first")
	recordRefusals(t, dir, "gatekit-1", append([]string{"second"}, hostile...)...)
	b := newTab(t, browser(t))
	b.run(chromedp.Navigate(startFleetConsole(t, dir)))
	b.await(trafficShown)
	b.await(row("first") + `?.innerText.includes("gatekit-0")`)
	b.await(row("second") + `?.innerText.includes("gatekit-1")`)
	if got := b.eval(`[...document.querySelectorAll("nav a")].map((a) => a.textContent).join()`); got !=
		`"Traffic,Audit,Stats"` {
		t.Errorf("the pages are %s", got)
	}
	b.await(`document.getElementById("live-state").innerText.startsWith("live")`)
	recordRefusals(t, dir, "gatekit-0", "third")
	b.await(row("third") + `?.innerText.includes("gatekit-0")`)

	// One replica only, and also for new calls.
	b.run(chromedp.SetValue(chromedp.CSS("#replica"), "gatekit-1"),
		chromedp.Click(chromedp.CSS("#apply")))
	b.await(`location.hash.includes("replica=gatekit-1") && !` + row("first"))
	b.await(`document.getElementById("live-state").innerText.startsWith("live")`)
	recordRefusals(t, dir, "gatekit-0", "fourth")
	recordRefusals(t, dir, "gatekit-1", "fifth")
	b.await(row("fifth"))
	if got := b.eval(row("fourth") + ` === undefined`); got != "true" {
		t.Error("a call of another replica is shown")
	}

	b.eval(`void ` + row("second") + `.click()`)
	b.await(`document.querySelector("main h1")?.textContent.includes("second")`)
	b.awaitText("gatekit-1")
	b.run(chromedp.Click(chromedp.CSS("#prove")))
	b.awaitText("a signed checkpoint over")
	b.goTo("#logs", "Audit")
	b.await(`[...document.querySelectorAll("#logs tbody tr")].length === 2 &&
		[...document.querySelectorAll("#logs tbody tr")].every((r) => r.innerText.includes("1 to ") &&
			!r.classList.contains("failed"))`)
	b.goTo("#stats", "Stats")
	b.await(`document.querySelector("#stats-replicas tbody")?.innerText.includes("gatekit-0")`)
	if title := b.eval("document.title"); strings.Contains(title, "owned") {
		t.Errorf("a text of a record became a script: the title is %s", title)
	}
}
