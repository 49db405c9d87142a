package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"gatekit/audit"
	"gatekit/core/pipeline"
	"gatekit/test/browsertest"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

func TestMain(m *testing.M) { harness.Main(m) }

// adminTable is the configuration of a console on a free port.
const adminTable = "[admin]\nhttp = \"127.0.0.1:0\"\nconsole = \"approve\"\n"

// start starts a gatekit with a console in a folder.
func start(t *testing.T, dir, config string) *harness.Gatekit {
	t.Helper()
	peers.Installed(t, "chromium")
	return harness.StartHTTPIn(t, dir, adminTable+config, "XDG_STATE_HOME="+stateFolder(dir))
}

func stateFolder(dir string) string { return filepath.Join(dir, "state") }

// consoleURL returns the URL with a code that "gatekit console" prints.
func consoleURL(t *testing.T, g *harness.Gatekit, flags ...string) string {
	t.Helper()
	c := exec.Command(peers.Gatekit(t), append([]string{"console", "--print"}, flags...)...)
	c.Dir = g.Dir
	c.Env = append(os.Environ(), "XDG_STATE_HOME="+stateFolder(g.Dir))
	out, err := c.CombinedOutput()
	url := strings.TrimSpace(string(out))
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("gatekit console: %v\n%s", err, out)
	}
	return url
}

// writeLog writes an audit log of n messages into the folder of a gatekit that will start there.
func writeLog(t *testing.T, dir string, n int, outcome func(i int) pipeline.Outcome) {
	t.Helper()
	l, err := audit.Open(audit.Options{File: filepath.Join(dir, "audit.jsonl"),
		Durability: audit.DurabilityAsync, QueueBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := l.Record(t.Context(), outcome(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// tab is a tab of a browser that has storage and a history of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // errors of scripts, and violations of the content security policy
}

// browser starts a browser, which ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	return browsertest.Start(t, chromedp.Flag("ignore-certificate-errors", true)) // of a public URL
}

// newTab opens a tab. The test fails if a page in it has an error of a script or violates its
// content security policy, unless the test takes the problems.
func newTab(t *testing.T, browser context.Context) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	tab := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			tab.note("exception: " + describeException(e.ExceptionDetails))
		case *audits.EventIssueAdded:
			text, _ := json.Marshal(e.Issue)
			if strings.Contains(string(text), "ontentSecurityPolicy") {
				tab.note("policy: " + string(text))
			}
		case *cdplog.EventEntryAdded:
			if e.Entry.Source == "security" {
				tab.note("log: " + e.Entry.Text)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	command(tab, audits.Enable, cdp.Empty{})
	command(tab, cdplog.Enable, cdp.Empty{})
	t.Cleanup(func() {
		for _, p := range tab.takeProblems() {
			t.Error("in the browser: " + p)
		}
	})
	return tab
}

func (b *tab) note(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

// takeProblems returns the problems until now, and forgets them.
func (b *tab) takeProblems() (problems []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems, b.problems = b.problems, nil
	return problems
}

// command sends a command of the DevTools protocol.
func command[P, R any](b *tab, c cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	result, err := chromedp.Call(ctx, c, params)
	if err != nil {
		b.t.Fatalf("in the browser: %s: %v", c.Method, err)
	}
	return result
}

// run runs actions.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("in the browser: %v\nthe page is:\n%s", err, b.text())
	}
}

// text returns the text of the page, or "" if there is none.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body?.innerText ?? ""`))
	if err != nil {
		return err.Error()
	}
	return text
}

// eval returns the JSON of the value of an expression, which may be a promise.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](expression,
		chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("in the browser: %s: %v\nthe page is:\n%s", harness.Clip([]byte(expression)),
			err, b.text())
	}
	return string(value)
}

// await waits until an expression is true. It does not wait in the page, which may evaluate no
// text.
func (b *tab) await(expression string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); b.eval("Boolean("+expression+")") != "true"; {
		if time.Now().After(end) {
			b.t.Fatalf("in the browser: this did not become true: %s\nthe page is:\n%s",
				expression, b.text())
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-b.ctx.Done():
			b.t.Fatal("the browser has ended")
		}
	}
}

// awaitText waits until the page contains a text.
func (b *tab) awaitText(text string) {
	b.t.Helper()
	b.await(fmt.Sprintf("document.body?.innerText.includes(%q)", text))
}

// open opens the console.
func (b *tab) open(g *harness.Gatekit, flags ...string) {
	b.t.Helper()
	b.run(chromedp.Navigate(consoleURL(b.t, g, flags...)))
	b.await(trafficShown)
}

// goTo shows a page of the console.
func (b *tab) goTo(fragment, heading string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("void (location.hash = %q)", fragment))
	b.await(fmt.Sprintf(`document.querySelector("main h1")?.textContent.includes(%q) &&
		location.hash === %q`, heading, fragment))
}

// client returns a client of gatekit that has made the handshake.
func client(t *testing.T, g *harness.Gatekit) *mcptest.Client {
	t.Helper()
	c := g.Client(mcptest.Modern)
	harness.Handshake(t, c)
	return c
}

// serve serves pages on another port of this machine, and returns their origin.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	s := &http.Server{Addr: peers.FreeAddress(t), Handler: handler}
	go s.ListenAndServe()
	t.Cleanup(func() { s.Close() })
	if !peers.Listening(s.Addr, func() bool { return true }) {
		t.Fatal("the other server does not listen")
	}
	return "http://" + s.Addr
}

func describeException(e *runtime.ExceptionDetails) string {
	text := e.Text
	if e.Exception != nil {
		text += " " + e.Exception.Description
	}
	return text
}
