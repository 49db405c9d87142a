package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/chromedp"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// runConsole runs "gatekit console --print" and returns its output and exit code.
func runConsole(t *testing.T, dir string) (string, int) {
	t.Helper()
	c := exec.Command(peers.Gatekit(t), "console", "--print")
	c.Dir = dir
	out, _ := c.CombinedOutput()
	return string(out), c.ProcessState.ExitCode()
}

const readOnlyRule = "[policy]\nrules = [\"tools/readonly\"]\n"

// row returns an expression for the text of the first row that contains a text.
func row(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#live tr")]
		.find((r) => r.innerText.includes(%q))`, text)
}

func TestTrafficShowsCallsAsTheyEnd(t *testing.T) {
	g := start(t, t.TempDir(), harness.ScriptedServer("box"))
	b := newTab(t, browser(t))
	b.open(g)
	c := client(t, g)
	harness.CallTool(t, c, "box__echo", `{"text":"hello"}`)
	b.await(row("echo") + `?.innerText.includes("box")`)
	harness.Request(t, c, "tools/call", `{"name":"box__nothing","arguments":{}}`)
	b.await(row("nothing") + `?.classList.contains("failed")`)
	if got := b.eval(row("echo") + `.classList.contains("failed")`); got != "false" {
		t.Error("a call that passed is red")
	}
	newest := b.eval(`document.querySelector("#live tr").innerText.includes("nothing")`)
	if newest != "true" {
		t.Error("the newest call is not the first row")
	}
	// The filter is applied by gatekit, and the query is in the fragment.
	b.run(chromedp.SetValue(chromedp.CSS("#filter"), "--tool echo"),
		chromedp.Click(chromedp.CSS("#apply")))
	b.await(`document.querySelectorAll("#live tr").length === 1 && location.hash.includes("echo")`)
	harness.CallTool(t, c, "box__echo", `{"text":"again"}`)
	b.await(`document.querySelectorAll("#live tr").length === 2`)
	b.run(chromedp.SetValue(chromedp.CSS("#filter"), "action=denied"),
		chromedp.Click(chromedp.CSS("#apply")))
	b.awaitText(`no record has the action "denied"`)
	g.WantRecords("to_server request tools/call box echo pass",
		"to_client response tools/call box echo pass")
}

func TestPausedRowsAreShownLater(t *testing.T) {
	g := start(t, t.TempDir(), harness.ScriptedServer("box"))
	b := newTab(t, browser(t))
	b.open(g)
	c := client(t, g)
	harness.CallTool(t, c, "box__echo", `{"text":"first"}`)
	b.await(row("echo"))
	b.eval(`document.getElementById("live").dispatchEvent(new PointerEvent("pointerenter"))`)
	harness.Request(t, c, "tools/call", `{"name":"box__other","arguments":{}}`)
	b.await(`document.getElementById("live-state").innerText.startsWith("paused, 1 new")`)
	if got := b.eval(row("other") + ` === undefined`); got != "true" {
		t.Error("a row was added while the pointer was over the list")
	}
	b.eval(`document.getElementById("live").dispatchEvent(new PointerEvent("pointerleave"))`)
	b.await(row("other"))
}

// hostile are texts that a careless page would take for markup or a script, or that hide something.
var hostile = []string{
	`<img src=x onerror="document.title='owned'">`,
	`"><script>document.title='owned'</script>`,
	`</td></tr></table><svg onload=document.title='owned'>`,
	`<a href="javascript:document.title='owned'">x</a>`,
	`{{.}}<template><style>*{display:none}</style></template>`,
	"' autofocus onfocus=document.title='owned' x='",
	"\u202egnp.exe\u2066\u200b\x1b[2J\x00\r\nnext line",
	"<!--<textarea><title><base href=//evil><meta http-equiv=refresh content=0;url=//evil>",
}

func TestHostileTextsStayTexts(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir, 2*len(hostile), func(i int) pipeline.Outcome {
		text := hostile[i/2]
		m := &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Request, Method: "tools/call",
			Name: text, Server: text, Session: text, Principal: identity.FromID(text)}
		action := "pass"
		if i%2 == 1 {
			action = "deny"
		}
		return pipeline.Outcome{Time: time.Now(), Before: m, Action: action, Reason: text}
	})
	g := start(t, dir, harness.ScriptedServer("box"))
	b := newTab(t, browser(t))
	b.open(g)
	b.await(fmt.Sprintf(`document.querySelectorAll("#live tr").length >= %d`, 2*len(hostile)))
	check := func() {
		t.Helper()
		if got := b.eval(`document.querySelectorAll("main img, main script, main style, " +
			"main iframe, main [onload], main [onerror], main [onfocus], main base").length`); got != "0" {
			t.Errorf("the page has %s elements of hostile texts", got)
		}
		if got := b.eval("document.title"); strings.Contains(got, "owned") {
			t.Error("a hostile text was run")
		}
		if got := b.eval("main_text = document.getElementById('page').textContent"); strings.
			ContainsAny(got, "\u202e\u2066\u200b\x1b\x00") {
			t.Error("the page has invisible characters of a hostile text")
		}
	}
	check()
	b.awaitText(`<img src=x onerror="document.title='owned'">`)
	b.awaitText(`\u202egnp.exe\u2066\u200b\x1b[2J`)
	for seq := 1; seq <= 2*len(hostile); seq++ {
		b.goTo(fmt.Sprintf("#record?seq=%d", seq), "")
		b.await(fmt.Sprintf(`document.querySelector("main table th[scope=row] strong")
			?.textContent === "%d"`, seq))
		check()
	}
	b.goTo("#traffic?filter="+`%22%3E%3Cscript%3E1%3C/script%3E`, "Traffic")
	check()
}

func TestMemoryStaysFlatOver100000Records(t *testing.T) {
	harness.Long(t, "writes 100,000 records")
	dir := t.TempDir()
	writeLog(t, dir, 100_000, func(i int) pipeline.Outcome {
		m := &mcp.Message{Direction: mcp.ToServer, Kind: mcp.Notification,
			Method: "notifications/message", Name: fmt.Sprint("n", i), Server: "box"}
		return pipeline.Outcome{Time: time.Now(), Before: m, Action: "deny", Reason: "too many"}
	})
	g := start(t, dir, harness.ScriptedServer("box"))
	b := newTab(t, browser(t))
	b.open(g)
	heap := func() float64 {
		command(b, heapprofiler.CollectGarbage, cdp.Empty{})
		n, err := strconv.ParseFloat(b.eval("performance.memory.usedJSHeapSize"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n / (1 << 20)
	}
	older := func() {
		last := b.eval(`document.querySelector("main tbody tr:last-child").dataset.key`)
		b.eval(`void document.getElementById("older").click()`)
		b.await(fmt.Sprintf(`document.querySelector("main tbody tr:last-child").dataset.key !== %s`,
			last))
	}
	older()
	before := heap()
	for range 30 {
		older()
	}
	if after := heap(); after > before+8 {
		t.Errorf("the heap grew from %.1f to %.1f MiB while 30 pages were shown", before, after)
	}
	// Live rows: there are more than the page keeps.
	b.goTo("#traffic", "Traffic")
	stop := g.CallRepeatedly(2, func(c *mcptest.Client) bool {
		_, err := c.Call(t.Context(), "tools/call", `{"name":"box__echo"}`)
		return err == nil
	})
	b.await(`document.querySelectorAll("#live tr").length === 2000`)
	before = heap()
	first := b.eval(`document.querySelector("#live tr").dataset.key`)
	b.await(fmt.Sprintf(`document.querySelector("#live tr").dataset.key - %s > 8000`, first))
	stop()
	if got := b.eval(`document.querySelectorAll("#live tr").length`); got != "2000" {
		t.Errorf("the page has %s rows, want 2000", got)
	}
	if after := heap(); after > before+8 {
		t.Errorf("the heap grew from %.1f to %.1f MiB over 8,000 live records", before, after)
	}
}

// relay forwards connections to an address until it is cut.
type relay struct {
	net.Listener
	target string

	mu    sync.Mutex
	conns []net.Conn
}

func startRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, target: target}
	t.Cleanup(func() { l.Close(); r.cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return r
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

func TestReconnectingShowsEachCallOnce(t *testing.T) {
	g := start(t, t.TempDir(), harness.ScriptedServer("box"))
	address := consoleURL(t, g)
	host := strings.TrimPrefix(address, "http://")
	host, rest, _ := strings.Cut(host, "/")
	r := startRelay(t, host)
	b := newTab(t, browser(t))
	b.run(chromedp.Navigate("http://" + r.Addr().String() + "/" + rest))
	b.await(trafficShown) // a page that was never loaded does not try again
	c := client(t, g)
	calls := 0
	for range 3 {
		for range 5 {
			harness.CallTool(t, c, "box__echo", `{"text":"hello"}`)
			calls++
		}
		r.cut()
	}
	echoes := `[...document.querySelectorAll("#live tr")].filter((r) => r.innerText.includes("echo"))`
	b.await(fmt.Sprintf("%s.length >= %d", echoes, calls))
	harness.Request(t, c, "tools/call", `{"name":"box__other","arguments":{}}`)
	b.await(row("other"))
	var keys []string
	shown := b.eval(echoes + ".map((r) => r.dataset.key)")
	if err := json.Unmarshal([]byte(shown), &keys); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, k := range keys {
		if seen[k] {
			t.Errorf("the call of record %s is shown twice", k)
		}
		seen[k] = true
	}
	if len(keys) != calls {
		t.Errorf("%d rows for %d calls", len(keys), calls)
	}
	b.await(`document.getElementById("live-state").innerText === "live"`)
	b.await(`document.getElementById("status").textContent === ""`)
	b.takeProblems() // the browser reports the broken connections
}

func TestRecordPageExplainsAndProves(t *testing.T) {
	g := start(t, t.TempDir(), readOnlyRule+harness.ScriptedServer("box"))
	c := client(t, g)
	harness.WantDenied(t, c, "tools/call", `{"name":"box__echo","arguments":{"text":"x"}}`)
	b := newTab(t, browser(t))
	b.open(g)
	b.await(row("echo"))
	b.eval(row("echo") + ".click()")
	b.await(`document.querySelector("main h1").textContent === "echo"`)
	b.awaitText("refused")
	b.awaitText("policy: deny")
	b.run(chromedp.Click(chromedp.CSS("#explain")))
	b.awaitText("the policies decided deny; today, nobody can tell")
	b.awaitText("tools/readonly")
	harness.WaitUntilAtMost(t, "records without a checkpoint", 0, func() int {
		text, _ := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl.tree", "checkpoint"))
		lines := strings.Split(string(text), "\n")
		covered, _ := strconv.Atoi(lines[min(1, len(lines)-1)])
		return len(g.Records()) - covered
	})
	b.run(chromedp.Click(chromedp.CSS("#prove")))
	b.awaitText("is in the log: a signed checkpoint over")
	b.awaitText("c2sp.org/tlog-proof@v1")
}
