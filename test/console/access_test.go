package console

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

func TestTokenIsNowhereButInTheTab(t *testing.T) {
	dir := t.TempDir()
	g := start(t, dir, harness.ScriptedServer("box"))
	b := newTab(t, browser(t))
	address := consoleURL(t, g)
	_, code, _ := strings.Cut(address, "#")
	b.run(chromedp.Navigate(address))
	b.awaitText("Traffic")
	harness.CallTool(t, client(t, g), "box__echo", `{"text":"hello"}`)
	b.awaitText("box")
	token := strings.Trim(b.eval(`sessionStorage.getItem("gatekit-console-token")`), `"`)
	if len(token) < 43 {
		t.Fatalf("the token has %d characters, want at least 43", len(token))
	}
	places := map[string]string{
		"document": b.eval("document.documentElement.outerHTML"),
		"address":  b.eval("location.href"),
		"cookie":   b.eval("document.cookie"),
		"storage":  b.eval("JSON.stringify(localStorage)"),
		"requests": b.eval(`performance.getEntriesByType("resource").map((e) => e.name).join()`),
		"stderr":   g.Stderr.String(),
	}
	for _, e := range command(b, page.GetNavigationHistory, cdp.Empty{}).Entries {
		places["history"] += e.URL + " " + e.Title + "\n"
	}
	shell, err := http.Get(strings.TrimSuffix(address, "#"+code))
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Body.Close()
	all, err := io.ReadAll(shell.Body)
	if err != nil {
		t.Fatal(err)
	}
	places["shell"] = string(all)
	log, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	places["log"] = string(log)
	for place, text := range places {
		if text == "" {
			t.Errorf("%s: nothing was found there", place)
		}
		for name, secret := range map[string]string{"token": token, "code": code} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: contains the %s", place, name)
			}
		}
	}
	if places["cookie"] != `""` {
		t.Errorf("the page has the cookie %s", places["cookie"])
	}
	g.WantReasons(`opened with the scope "approve" by gatekit console`)
}

func TestCodeCannotBeUsedTwice(t *testing.T) {
	g := start(t, t.TempDir(), harness.ScriptedServer("box"))
	running := browser(t)
	address := consoleURL(t, g)
	first, second := newTab(t, running), newTab(t, running)
	first.run(chromedp.Navigate(address))
	first.awaitText("Traffic")
	second.run(chromedp.Navigate(address))
	second.awaitText("the code is wrong, expired or was used before")
	if got := second.eval(`sessionStorage.getItem("gatekit-console-token")`); got != "null" {
		t.Error("the second tab has a token")
	}
	if got := second.eval("location.href"); strings.Contains(got, "#") {
		t.Errorf("the refused code is still in the address %s", got)
	}
}

func TestTokenEndsWithTheProcess(t *testing.T) {
	dir := t.TempDir()
	address := peers.FreeAddress(t)
	config := strings.Replace(adminTable, "127.0.0.1:0", address, 1) +
		harness.ScriptedServer("box")
	peers.Installed(t, "chromium")
	state := "XDG_STATE_HOME=" + stateFolder(dir)
	g := harness.StartHTTPIn(t, dir, config, state)
	b := newTab(t, browser(t))
	b.open(g)
	g.Stop()
	harness.StartHTTPIn(t, dir, config, state)
	b.awaitText("This page needs a new login")
	if got := b.eval(`sessionStorage.getItem("gatekit-console-token")`); got != "null" {
		t.Error("the tab still has the token of the process that ended")
	}
	b.takeProblems() // the connection was refused in between
}

func TestReadOnlyConsoleSaysSo(t *testing.T) {
	g := start(t, t.TempDir(), harness.ScriptedServer("box"))
	b := newTab(t, browser(t))
	b.open(g, "--read")
	b.awaitText("read only")
	g.WantReasons(`opened with the scope "read" by gatekit console`)
}

// attack is a page of another port of this machine that tries to read and to act. Its report is an
// object with what it got.
const attack = `<!doctype html><title>attack</title><body><script>
const target = new URL(location.href).searchParams.get("target");
const report = {};
async function attempt(name, f) {
  try { report[name] = String(await f()); } catch (error) { report[name] = "refused"; }
}
(async () => {
  await attempt("page", async () => (await fetch(target + "api/page/traffic")).text());
  await attempt("session", async () => (await fetch(target + "api/session",
    { method: "POST", body: new URLSearchParams({ code: "CODE" }) })).text());
  await attempt("blind", async () => (await fetch(target + "api/session", { method: "POST",
    mode: "no-cors", credentials: "include", body: new URLSearchParams({ code: "CODE" }) })).type);
  await attempt("header", async () => (await fetch(target + "api/badges",
    { headers: { Authorization: "Bearer x" } })).text());
  await attempt("module", () => import(target + "console.js"));
  document.title = "done";
})();
</script>`

func TestPageOfAnotherPortCanNeitherReadNorAct(t *testing.T) {
	g := start(t, t.TempDir(), harness.ScriptedServer("box"))
	running := browser(t)
	viewer := newTab(t, running)
	viewer.open(g)
	_, code, _ := strings.Cut(consoleURL(t, g), "#")
	target := strings.Trim(viewer.eval(`location.origin + "/console/"`), `"`)
	cookies := make(chan string, 100)
	origin := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookies <- r.Header.Get("Cookie") + r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, strings.ReplaceAll(attack, "CODE", code))
	}))
	// In the same browser context, so that a cookie of the console would be sent.
	ctx, cancel := chromedp.NewContext(viewer.ctx)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	evil := &tab{t: t, ctx: ctx}
	evil.run(chromedp.Navigate(origin + "/?target=" + url.QueryEscape(target)))
	evil.await(`document.title === "done"`)
	for _, name := range []string{"page", "session", "header", "module"} {
		if got := evil.eval("report." + name); got != `"refused"` {
			t.Errorf("%s: the page of another port got %s", name, got)
		}
	}
	for len(cookies) > 0 {
		if got := <-cookies; got != "" {
			t.Errorf("the other server got credentials: %q", got)
		}
	}
	// The code was not used: nobody has logged in with it.
	b := newTab(t, running)
	b.run(chromedp.Navigate(target + "#" + code))
	b.awaitText("Traffic")
}

func TestConsoleOffIsTheListenerAsBefore(t *testing.T) {
	address := peers.FreeAddress(t)
	for _, console := range []string{"", "console = \"off\"\n"} {
		t.Run("console "+console, func(t *testing.T) {
			g := harness.StartHTTP(t, fmt.Sprintf("[admin]\nhttp = %q\n%s", address, console)+
				harness.ScriptedServer("box"))
			const end = "Cache-Control: no-store\r\nContent-Type: text/plain; charset=utf-8\r\n" +
				"X-Content-Type-Options: nosniff\r\nDate: …\r\nContent-Length: 52\r\n" +
				"Connection: close\r\n\r\nno such page: try /metrics, /healthz or /readyz\n"
			want := "HTTP/1.1 404 Not Found\r\n" + strings.Replace(end, "52", "48", 1)
			for _, request := range []string{"GET /console/", "POST /console/api/session",
				"GET /console/api/page/traffic", "GET /console/console.js"} {
				if got := raw(t, address, request); got != want {
					t.Errorf("%s: got\n%q, want\n%q", request, got, want)
				}
			}
			if strings.Contains(g.Stderr.String(), "console ready") {
				t.Errorf("there is a console:\n%s", g.Stderr)
			}
			g.Stop()
		})
	}
}

// raw sends a request and returns the bytes of the answer, without the date.
func raw(t *testing.T, address, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
		request, address)
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`Date: [^\r]*`).ReplaceAllString(string(b), "Date: …")
}

func TestConsoleCommandExplainsItself(t *testing.T) {
	g := harness.StartHTTP(t, harness.ScriptedServer("box"))
	out, code := runConsole(t, g.Dir)
	if code == 0 || !strings.Contains(out, `console = "read" or "approve"`) {
		t.Errorf("without [admin] console: exit code %d, %s", code, out)
	}
	g.Stop()
	g.Configure(adminTable + harness.ScriptedServer("box"))
	out, code = runConsole(t, g.Dir)
	if code == 0 || !strings.Contains(out, "no running Gatekit writes the audit log") {
		t.Errorf("without a running gatekit: exit code %d, %s", code, out)
	}
}
