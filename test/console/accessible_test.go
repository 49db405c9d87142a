package console

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/test/harness"
	"gatekit/test/peers"
)

// setMedia makes the viewport and the colour scheme.
func (b *tab) setMedia(width int64, scheme string) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(width, 900))
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// readAxe returns axe-core, a script that finds what makes a page hard to use for some people.
func readAxe(t *testing.T) string {
	t.Helper()
	axe, err := os.ReadFile(peers.Node(t).Path("axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(axe) + "; void 0"
}

// wantAccessible fails the test if axe-core, which the page has evaluated, finds a fault in the
// page, or if the page is wider than the window: in narrow and wide windows, light and dark.
func (b *tab) wantAccessible(page string) {
	b.t.Helper()
	for _, width := range []int64{390, 1440} {
		for _, scheme := range []string{"light", "dark"} {
			b.setMedia(width, scheme)
			var result struct {
				Violations []struct {
					ID, Help string
					Nodes    []struct{ HTML string }
				}
			}
			if err := json.Unmarshal([]byte(b.eval("axe.run(document)")), &result); err != nil {
				b.t.Fatal(err)
			}
			for _, v := range result.Violations {
				b.t.Errorf("%s, %d px, %s: %s: %s: %s", page, width, scheme, v.ID, v.Help,
					harness.Clip(fmt.Append(nil, v.Nodes)))
			}
			b.wantNoWiderThanWindow(fmt.Sprintf("%s, %d px", page, width))
		}
	}
}

func TestPagesAreAccessible(t *testing.T) {
	axe := readAxe(t)
	dir := t.TempDir()
	writeLog(t, dir, 60, func(i int) pipeline.Outcome {
		m := &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Request, Method: "tools/call",
			Name: fmt.Sprint("tool_", i), Server: "box", Session: "session-1"}
		action := []string{"pass", "deny", "modify"}[i%3]
		return pipeline.Outcome{Time: time.Now(), Before: m, Action: action,
			Reason: "a reason that is long enough to break the line in a narrow window"}
	})
	g := start(t, dir, readOnlyRule+harness.ScriptedServer("box"))
	b := newTab(t, browser(t))
	b.open(g)
	b.await(row("tool_1"))
	b.eval(axe)
	for _, page := range []struct{ fragment, heading string }{
		{"#traffic", "Traffic"}, {"#traffic?filter=--tool+none", "Traffic"},
		{"#traffic?filter=--wrong", "Traffic"}, {"#record?seq=2", "tool_1"},
		{"#record?seq=2&explain=1&proof=1", "tool_1"}, {"#record?seq=9999", "Record"},
	} {
		b.goTo(page.fragment, page.heading)
		b.wantAccessible(page.fragment)
	}
	b.takeProblems() // axe-core makes style elements, which the policy refuses
}

func TestKeyboardAlone(t *testing.T) {
	g := start(t, t.TempDir(), harness.ScriptedServer("box"))
	c := client(t, g)
	for range 3 {
		harness.CallTool(t, c, "box__echo", `{"text":"hello"}`)
	}
	b := newTab(t, browser(t))
	b.open(g)
	b.await(`document.querySelectorAll("#live tr").length > 3`)
	b.run(chromedp.KeyEvent("/"))
	b.await(`document.activeElement.id === "filter"`)
	b.eval(`void (document.activeElement.value = "")`) // chromedp also types the slash
	b.run(chromedp.KeyEvent("--tool echo"), chromedp.KeyEvent(kb.Enter))
	b.await(`document.querySelectorAll("#live tr").length === 3`)
	b.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	b.await(`document.activeElement === document.querySelectorAll("#live tr")[1]`)
	b.run(chromedp.KeyEvent("k"))
	b.await(`document.activeElement === document.querySelectorAll("#live tr")[0]`)
	// New rows wait, so that the focus stays.
	harness.CallTool(t, c, "box__echo", `{"text":"again"}`)
	b.await(`document.getElementById("live-state").innerText.startsWith("paused, 1 new")`)
	key := strings.Trim(b.eval("document.activeElement.dataset.key"), `"`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.await(fmt.Sprintf(`location.hash === "#record?seq=%s" &&
		document.querySelector("main h1").textContent === "echo"`, key))
}
