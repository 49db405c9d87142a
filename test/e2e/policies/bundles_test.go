package policies

import (
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/test/bundles"
	"gatekit/test/harness"
	"gatekit/test/mcptest"
	"gatekit/test/peers"
)

// denying is the bundle of a policy that refuses a tool.
func denying(t *testing.T, revision, tool string, by *bundles.Key) []byte {
	t.Helper()
	rego := "package gatekit.acme\n\ndeny contains \"no\" if { input.method == \"tools/call\"; " +
		"input.name in data.acme.refused }\n\nhide contains item.name if { some item in " +
		"input.items; item.name in data.acme.refused }\n"
	return bundles.Build(t, revision, map[string]string{"acme.rego": rego,
		"data.json": fmt.Sprintf(`{"acme":{"refused":[%q]}}`, tool)}, &bundles.Signature{Key: by,
		ID: "acme"})
}

// passes says whether a tool can be called.
func passes(t *testing.T, c *mcptest.Client, tool string) bool {
	t.Helper()
	return harness.Request(t, c, "tools/call", fmt.Sprintf(`{"name":%q}`, tool)).Error == nil
}

// A signed bundle is in force, another revision takes its place, and what is not signed as it has
// to be does not. The record says which one was.
func TestASignedBundleInAFile(t *testing.T) {
	harness.Long(t, "waits for reloads")
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "acme.tar.gz")
			harness.ReplaceFile(t, file, denying(t, "one", "log", key))
			config := harness.ScriptedServer("box") +
				fmt.Sprintf("[policy]\nfiles = [%q]\n[policy.key.acme]\nkey "+
					"= '''%s'''\nalgorithm = %q\n", file, key.Public, bundles.Algorithm)
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				// for the next front
				t.Cleanup(func() { harness.ReplaceFile(t, file, denying(t, "one", "log", key)) })
				harness.Handshake(t, c)
				if passes(t, c, "box__log") || !passes(t, c, "box__echo") {
					t.Error("the bundle is not in force")
				}
				if list := string(harness.Request(t, c,
					"tools/list", `{}`).Raw); strings.Contains(list,
					"box__log") || !strings.Contains(list, "box__echo") {
					t.Errorf("the list is %s", list)
				}
				for _, bad := range []struct {
					why    string
					bundle []byte
				}{
					{"failed to verify JWT signature", denying(t, "two", "echo", other)},
					{"digest mismatch", bundles.Rewrite(t, denying(t, "two", "log", key),
						func(name, text string) (string, string) {
							return name, strings.Replace(text, `"no"`, `"on"`, 1)
						})},
					{"not a bundle", []byte("garbage")},
				} {
					harness.ReplaceFile(t, file, bad.bundle)
					g.WaitForLog(bad.why, 1)
					if passes(t, c, "box__log") || !passes(t, c, "box__echo") {
						t.Errorf("%s: the bundle before it is not in force", bad.why)
					}
				}
				harness.ReplaceFile(t, file, denying(t, "two", "echo", key))
				g.WaitForLog("configuration reloaded", 1)
				if !passes(t, c, "box__log") || passes(t, c, "box__echo") {
					t.Error("the second bundle is not in force")
				}
				g.WantRecords("to_server request tools/call box log deny",
					"to_client response tools/list box - hide",
					"to_server request tools/call box echo pass",
					"to_server request tools/call box echo deny",
					"to_server request tools/call box log pass")
				var story []string
				for _, r := range g.Records() {
					if r.Action == "start" || r.Action == "reload" {
						_, which, _ := strings.Cut(r.Reason, fmt.Sprintf(", bundle %q revision ",
							file))
						if which == "" {
							which = r.Reason
						} else if !strings.Contains(r.Reason, ", policies ") {
							t.Errorf("the record does not have the digest of the policies: %s",
								r.Reason)
						}
						story = append(story, r.Action+" "+which)
					}
				}
				if got, want := strings.Join(story,
					", "), `start "one", reload refused, reload refused, reload refused, reload "two"`; got != want {
					t.Errorf("the record says %s, want %s", got, want)
				}
			})
		})
	}
}

// control is a bundle server, which wants to be told a secret.
type control struct {
	*httptest.Server

	mu     sync.Mutex
	bundle []byte
	told   strings.Builder // what decision logs and status say
}

const controlToken = "the-secret-of-the-bundle-server"

func newControl(t *testing.T, bundle []byte) *control {
	c := &control{bundle: bundle}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		now := c.bundle
		c.mu.Unlock()
		etag := fmt.Sprintf("\"%x\"", sha256.Sum256(now))
		switch {
		case r.Method == http.MethodPost && r.Header.Get("Authorization") == "Bearer "+controlToken:
			body := io.Reader(r.Body)
			if r.Header.Get("Content-Encoding") == "gzip" {
				var err error
				if body, err = gzip.NewReader(r.Body); err != nil {
					t.Error(err)
					return
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			fmt.Fprintf(&c.told, "%s ", r.URL.Path)
			if _, err := io.Copy(&c.told, body); err != nil {
				t.Error(err)
			}
		case r.Header.Get("Authorization") != "Bearer "+controlToken ||
			r.URL.Path != "/v1/bundles/acme":
			http.Error(w, "who are you?", http.StatusForbidden)
		case r.Header.Get("If-None-Match") == etag:
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", etag)
			w.Write(now)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *control) has(bundle []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bundle = bundle
}

// config polls the server each second.
func (c *control) config(key *bundles.Key, persist string) string {
	return fmt.Sprintf("[policy]\n[policy.key.acme]\nkey = \"\"\"%s\"\"\"\nalgorithm = "+
		"%q\n[policy.service.control]\nurl = %q\nheaders = { Authorization = \"Bearer "+
		"${env:CONTROL_TOKEN}\" }\n"+
		"[policy.bundle.acme]\npersist = %q\nmin_delay = \"1s\"\nmax_delay = \"1s\"\n", key.Public,
		bundles.Algorithm, c.URL+"/v1", persist)
}

// secretFree wants the server's secret in nothing that gatekit wrote.
func secretFree(t *testing.T, g *harness.Gatekit) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(string(b), controlToken) || strings.Contains(g.Stderr.String(),
		controlToken) {
		t.Error("the secret of the bundle server is in the record or the log")
	}
}

// Bundles come from a server and change under load, to good ones and to some that cannot be used:
// no call is lost, none passes that the bundle in force refuses, and the record says which that
// was.
func TestBundlesOfAServerAreSwappedWithoutLosingACall(t *testing.T) {
	t.Setenv("CONTROL_TOKEN", controlToken)
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	c := newControl(t, denying(t, "one", "log", key))
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+c.config(key, "kept.tar.gz"))
	var calls atomic.Int64
	defer g.CallRepeatedly(4, harness.EchoAndDeniedLog(t, &calls))()
	client := g.Client("2025-11-25")
	both := func(revision string) []byte { // the second refuses what the first does, and more
		return bundles.Build(t, revision, map[string]string{
			"acme.rego": "package gatekit.acme\n\ndeny contains \"no\" if { input.method == " +
				"\"tools/call\"; input.name in {\"log\", \"self\"} }\n",
		}, &bundles.Signature{Key: key, ID: "acme"})
	}
	for _, bad := range []struct {
		why    string
		bundle []byte
	}{
		{"failed to verify JWT signature", denying(t, "two", "echo", other)},
		{"not a bundle", []byte("<html>")},
		{"undefined ref: input.nmae",
			bundles.Build(t, "two", map[string]string{"acme.rego": "package gatekit.acme\n\ndeny " +
				"contains \"no\" if input.nmae == \"log\"\n"}, &bundles.Signature{Key: key,
				ID: "acme"})},
	} {
		c.has(bad.bundle)
		g.WaitForLog(bad.why, 1)
		if !passes(t, client, "box__self") {
			t.Errorf("%s: the bundle before it is not in force", bad.why)
		}
	}
	c.has(both("three"))
	g.WaitForLog("policy bundles updated", 1)
	if passes(t, client, "box__self") {
		t.Error("the changed bundle is not in force")
	}
	c.Close()
	g.WaitForLog("connection refused", 1)
	if passes(t, client, "box__self") {
		t.Error("without the server the bundle is not in force")
	}
	harness.WaitUntilAtMost(t, "calls are not made yet", 0, func() int {
		return int(max(0, 100-calls.Load()))
	})
	var story []string
	for _, r := range g.Records() {
		if _, which, ok := strings.Cut(r.Reason, `, bundle "acme" revision `); ok {
			story = append(story, r.Action+" "+which)
		} else if r.Action == "reload" {
			story = append(story, r.Action+" "+r.Reason)
		}
	}
	const refused = `reload refused: bundle "acme"`
	if want := []string{`start "one"`, refused, refused, refused,
		`reload "three"`}; !slices.Equal(story, want) {
		t.Errorf("the record says\n%q, want\n%q", story, want)
	}
	g.WantRecords("to_server request tools/call box self pass",
		"to_server request tools/call box self deny", "to_server request tools/call box log deny")
	secretFree(t, g)
}

// A start without the server takes what was kept, and fails where nothing was, or what cannot be
// trusted. Over stdio the client is told.
func TestAStartWithoutTheBundleServer(t *testing.T) {
	harness.Long(t, "waits for a bundle server")
	t.Setenv("CONTROL_TOKEN", controlToken)
	key := bundles.NewKey(t)
	kept := filepath.Join(t.TempDir(), "kept.tar.gz")
	c := newControl(t, denying(t, "one", "log", key))
	config := harness.ScriptedServer("box") + c.config(key, kept)
	g := harness.StartHTTP(t, config)
	if passes(t, g.Client("2025-11-25"), "box__log") {
		t.Error("the bundle is not in force")
	}
	checked := func() string {
		check := exec.Command(peers.Gatekit(t), "check")
		check.Dir = g.Dir
		out, _ := check.CombinedOutput() // the box is not started as it should be
		return string(out)
	}
	if out := checked(); !strings.Contains(out, `; bundle acme revision "one" of service control`) {
		t.Errorf("gatekit check says\n%s", out)
	}
	g.Stop()
	c.Close()
	if out := checked(); !strings.Contains(out,
		`FAIL  policy  bundle "acme": service 127.0.0.1`) {
		t.Errorf("without the server, gatekit check says\n%s", out)
	}
	harness.EachTransport(t, config, mcptest.Modern, func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		if passes(t, c, "box__log") || !passes(t, c, "box__echo") {
			t.Error("what was kept is not in force")
		}
		g.WantRecords("to_server request tools/call box log deny")
		secretFree(t, g)
	})
	b, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	harness.ReplaceFile(t, kept, bundles.Rewrite(t, b, func(name, text string) (string, string) {
		return name, strings.Replace(text, `"log"`, `"xxx"`, 1)
	}))
	g, client := harness.SpawnStdio(t, config, "2025-11-25")
	g.Killed = true // it ends with an error, as it should
	m, err := client.Open(harness.Context(t))
	if err != nil || !strings.Contains(mcptest.Text(m.Error, "message"),
		`bundle "acme": none came`) {
		t.Errorf("it answered %s, %v", m.Raw, err)
	}
	client.Close()
	<-g.Exited
	if !strings.Contains(g.Stderr.String(), "digest mismatch") {
		t.Errorf("nothing says why what was kept is not used:\n%s", g.Stderr)
	}
	secretFree(t, g)
}

// A service is told which bundle is in force and what it decides, over both fronts, and nothing of
// what passes.
func TestDecisionsAndStatusAreTold(t *testing.T) {
	harness.Long(t, "waits for reports")
	t.Setenv("CONTROL_TOKEN", controlToken)
	key := bundles.NewKey(t)
	const planted = "sk-planted-in-an-argument"
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			c := newControl(t, denying(t, "one", "log", key))
			config := harness.ScriptedServer("box") + c.config(key,
				"kept.tar.gz") + "[policy.status]\n[policy.decision_logs]\nmin_delay = " +
				"\"1s\"\nmax_delay = \"1s\"\n"
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				client *mcptest.Client) {
				told := func() string {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.told.String()
				}
				t.Cleanup(func() { c.mu.Lock(); c.told.Reset(); c.mu.Unlock() })
				harness.Handshake(t, client)
				harness.CallTool(t, client, "box__echo", `{"tag":"`+planted+`"}`)
				harness.Request(t, client, "tools/call", `{"name":"box__log","arguments":{"x":"`+
					planted+`"}}`)
				for _, text := range []string{`"active_revision":"one"`, `"name":"echo"`,
					`"result":{"action":"pass"}`,
					`"name":"log"`, `"result":{"action":"deny","rule":"acme"}`, `"revision":"one"`,
					"/v1/status ", "/v1/logs "} {
					harness.WaitUntilAtMost(t, "texts like "+text+" are not told", 0, func() int {
						return 1 - min(1, strings.Count(told(), text))
					})
				}
				if strings.Contains(told(), planted) || strings.Contains(told(), controlToken) {
					t.Errorf("what passed was told: %s", told())
				}
				g.WantRecords("to_server request tools/call box echo pass",
					"to_server request tools/call box log deny")
				secretFree(t, g)
			})
		})
	}
}
