package stops

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

const adminToken = "01234567890123456789012345678901"

// post sends a command to the admin endpoint.
func post(t *testing.T, url, authorization, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

func page(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, _ := io.ReadAll(response.Body)
	return fmt.Sprint(response.StatusCode, " ", string(b))
}

// The admin endpoint stops and resumes, but only with its token.
func TestAdminEndpointStops(t *testing.T) {
	address := peers.FreeAddress(t)
	admin := "http://" + address
	config := harness.ScriptedServer("box") + fmt.Sprintf("[admin]\nhttp = %q\ntoken = %q\n",
		address, adminToken)
	g, c := start(t, config, "2025-11-25", "http")
	for name, authorization := range map[string]string{"no token": "", "a wrong token": "Bearer x",
		"no bearer token": "Basic " + adminToken, "an empty token": "Bearer "} {
		for _, command := range []string{"/stop", "/resume"} {
			if status, answer := post(t, admin+command, authorization,
				`{"reason":"r"}`); status != 401 {
				t.Errorf("%s with %s got status %d, %s", command, name, status, answer)
			}
		}
	}
	harness.CallTool(t, c, "box__echo", "{}")
	bearer := "Bearer " + adminToken
	for _, body := range []string{"{}", `{"reason":"r","x":1}`, `{"reason":""}`, "[]"} {
		if status, answer := post(t, admin+"/stop", bearer, body); status < 400 {
			t.Errorf("/stop with %s got status %d, %s", body, status, answer)
		}
	}
	if status, answer := post(t, admin+"/stop", bearer,
		`{"server":"box","reason":"an incident"}`); status != 200 ||
		!strings.Contains(answer, `server \"box\"`) {
		t.Errorf("/stop got status %d, %s", status, answer)
	}
	if got := page(t, admin+"/readyz"); !strings.HasPrefix(got, "503") ||
		!strings.Contains(got, `server box: stopped by the admin endpoint: an incident`) {
		t.Errorf("/readyz is %s", got)
	}
	if got := page(t, admin+"/metrics"); !strings.Contains(got, "gatekit_stops 1") &&
		!strings.Contains(got, "gatekit_stops{") {
		t.Errorf("the metrics have no gatekit_stops: %s", got)
	}
	if m := harness.Request(t, c, "tools/call",
		`{"name":"box__echo"}`); !strings.Contains(stopOf(m), "the admin endpoint") {
		t.Errorf("a call got %s", m.Raw)
	}
	if got := page(t, admin+"/stop"); !strings.HasPrefix(got, "405") {
		t.Errorf("GET /stop got %s", got)
	}
	if status, answer := post(t, admin+"/resume", bearer, ""); status != 409 ||
		!strings.Contains(answer, "--all") {
		t.Errorf("/resume of another scope got status %d, %s", status, answer)
	}
	if status, answer := post(t, admin+"/resume", bearer, `{"all":true}`); status != 200 {
		t.Errorf("/resume got status %d, %s", status, answer)
	}
	harness.CallTool(t, c, "box__echo", "{}")
	wantEvents(t, g, "stop_traffic by the admin endpoint", "resume_traffic by the admin endpoint")
}

// Without [admin] token, the endpoint has no commands.
func TestAdminEndpointWithoutToken(t *testing.T) {
	address := peers.FreeAddress(t)
	_, c := start(t, harness.ScriptedServer("box")+fmt.Sprintf("[admin]\nhttp = %q\n", address),
		"2025-11-25", "http")
	if status, answer := post(t, "http://"+address+"/stop", "Bearer ",
		`{"reason":"r"}`); status != 404 {
		t.Errorf("/stop got status %d, %s", status, answer)
	}
	harness.CallTool(t, c, "box__echo", "{}")
}

// wantEvents fails the test unless the log has exactly these stops and resumes, each as its action
// and a part of its reason.
func wantEvents(t *testing.T, g *harness.Gatekit, want ...string) {
	t.Helper()
	var got []record
	for _, r := range records(t, g) {
		if r.Action == "stop_traffic" || r.Action == "resume_traffic" {
			got = append(got, r)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("the log has the events %v, want %q", got, want)
	}
	for i, w := range want {
		action, reason, _ := strings.Cut(w, " ")
		if got[i].Action != action || !strings.Contains(got[i].Reason, reason) {
			t.Errorf("event %d is %s %q, want %s", i, got[i].Action, got[i].Reason, w)
		}
	}
}

// awaitStop waits until a call gets the error of a stop, and returns its message.
func awaitStop(t *testing.T, c *mcptest.Client) (text string) {
	t.Helper()
	harness.WaitUntilAtMost(t, "calls that are not stopped", 0, func() int {
		if text = stopOf(harness.Request(t, c, "tools/call", `{"name":"box__echo"}`)); text == "" {
			return 1
		}
		return 0
	})
	return text
}

func TestSignalStops(t *testing.T) {
	for _, front := range []string{"stdio", "http"} {
		t.Run(front, func(t *testing.T) {
			g, c := start(t, harness.ScriptedServer("box"), mcptest.Modern, front)
			harness.CallTool(t, c, "box__echo", "{}")
			g.Cmd.Process.Signal(syscall.SIGUSR1)
			if text := awaitStop(t, c); !strings.Contains(text, "SIGUSR1") {
				t.Errorf("the error is %s", text)
			}
			g.Cmd.Process.Signal(syscall.SIGUSR1) // does not resume
			harness.WaitUntilAtMost(t, "missing stops", 0, func() int {
				return 2 - strings.Count(g.Stderr.String(), `msg="traffic stopped"`)
			})
			awaitStop(t, c)
			mustGatekit(t, g, "resume")
			harness.CallTool(t, c, "box__echo", "{}")
			wantEvents(t, g, "stop_traffic SIGUSR1", "stop_traffic SIGUSR1",
				"resume_traffic user id")
		})
	}
}

// The file stops; its removal does not resume; while it exists, nothing resumes; and a Gatekit that
// starts while it exists is stopped from its first message.
func TestFileStops(t *testing.T) {
	file := filepath.Join(t.TempDir(), "STOP")
	g, c := start(t, harness.ScriptedServer("box")+fmt.Sprintf("[stop]\nfile = %q\n", file),
		"2025-11-25", "http")
	harness.CallTool(t, c, "box__echo", "{}")
	writeFile(t, file, "pager 17\nmore")
	awaitStop(t, c)
	if out, err := gatekit(t, g, "resume"); err == nil ||
		!strings.Contains(out, "remove it first") {
		t.Errorf("gatekit resume while the file exists: %v, %s", err, out)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	awaitStop(t, c)
	mustGatekit(t, g, "resume")
	harness.CallTool(t, c, "box__echo", "{}")
	wantEvents(t, g, "stop_traffic pager 17", "resume_traffic pager 17")

	writeFile(t, file, "")
	g2 := harness.StartHTTP(t, harness.ScriptedServer("box")+fmt.Sprintf("[stop]\nfile = %q\n",
		file)+audit)
	if m, err := g2.Connect("2025-11-25").Open(harness.Context(t)); err != nil || stopOf(m) == "" {
		t.Errorf("the first message got %s, %v", m.Raw, err)
	}
}

// Without a configuration, gatekit stop reaches the running processes of gatekit wrap, and those
// that clients start later.
func TestStopOfWrappedServers(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(peers.Gatekit(t), args...)
		cmd.Dir = t.TempDir()
		b, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("gatekit %s: %v\n%s", strings.Join(args, " "), err, b)
		}
		return string(b)
	}
	call := func(c *mcptest.Client) mcptest.Message {
		return harness.Request(t, c, "tools/call", `{"name":"echo"}`)
	}
	first, one := harness.WrapScripted(t, "2025-11-25")
	configured, other := harness.StartStdio(t, harness.ScriptedServer("box")+audit, "2025-11-25")
	if out := run("stop", "--reason", "all wrapped servers"); !strings.Contains(out,
		"in 1 running Gatekit") {
		t.Errorf("gatekit stop printed %s", out)
	}
	if m := call(one); stopOf(m) == "" {
		t.Errorf("the running process answers %s", m.Raw)
	}
	harness.CallTool(t, other, "box__echo", "{}") // it has a configuration of its own
	later, two := harness.Wrap(t, mcptest.Modern, nil, []string{os.Args[0]}, "MCPTEST_SERVE", "1")
	if m, err := two.Open(harness.Context(t)); err != nil || stopOf(m) == "" {
		t.Errorf("the process that started later answers %s, %v", m.Raw, err)
	}
	if out := run("stop", "status"); !strings.Contains(out, "everything, by user id") ||
		!strings.Contains(out, "all wrapped servers") {
		t.Errorf("gatekit stop status printed %s", out)
	}
	run("resume")
	for _, c := range []*mcptest.Client{one, two} {
		if m := call(c); m.Error != nil {
			t.Errorf("after the resume, a call got %s", m.Raw)
		}
	}
	if out := run("stop", "status", "--json"); out != "{\"stopped\":[]}\n" {
		t.Errorf("gatekit stop status --json printed %s", out)
	}
	wantEvents(t, first, "stop_traffic all wrapped", "resume_traffic all wrapped")
	wantEvents(t, later, "resume_traffic all wrapped")
	wantEvents(t, configured)
}

// Without a running process, the command itself stores and records the stop.
func TestStopWithoutAProcess(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir, config := t.TempDir(), harness.ScriptedServer("box")+audit
	g := harness.StartHTTPIn(t, dir, config)
	harness.CallTool(t, g.Client("2025-11-25"), "box__echo", "{}")
	g.Stop()
	if out := mustGatekit(t, g, "stop", "--reason", "r", "--json"); !strings.Contains(out,
		`"processes":0`) {
		t.Errorf("gatekit stop printed %s", out)
	}
	g = harness.StartHTTPIn(t, dir, config)
	c := g.Connect(mcptest.Modern)
	if m, err := c.Open(harness.Context(t)); err != nil || stopOf(m) == "" {
		t.Errorf("the first message got %s, %v", m.Raw, err)
	}
	g.Stop()
	mustGatekit(t, g, "resume")
	if out, err := gatekit(t, g, "resume"); err == nil ||
		!strings.Contains(out, "nothing is stopped") {
		t.Errorf("a second resume: %v, %s", err, out)
	}
	g = harness.StartHTTPIn(t, dir, config)
	harness.CallTool(t, g.Client(mcptest.Modern), "box__echo", "{}")
	wantEvents(t, g, "stop_traffic user id", "resume_traffic user id")
}

func TestStopNeedsAReason(t *testing.T) {
	g, c := start(t, harness.ScriptedServer("box"), "2025-11-25", "http")
	for _, args := range [][]string{{"stop"}, {"stop", "--reason", " "},
		{"resume", "--all", "--server", "box"}, {"resume"}} {
		if out, err := gatekit(t, g, args...); err == nil {
			t.Errorf("gatekit %s succeeds: %s", strings.Join(args, " "), out)
		}
	}
	harness.CallTool(t, c, "box__echo", "{}")
	wantEvents(t, g)
}
