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

// denyingBundle returns a signed bundle whose policy denies a tool and hides it from lists.
func denyingBundle(t *testing.T, revision, tool string, key *bundles.Key) []byte {
	t.Helper()
	rego := "package gatekit.acme\n\ndeny contains \"no\" if { input.method == \"tools/call\"; " +
		"input.name in data.acme.refused }\n\nhide contains item.name if { some item in " +
		"input.items; item.name in data.acme.refused }\n"
	return bundles.Build(t, revision, map[string]string{"acme.rego": rego,
		"data.json": fmt.Sprintf(`{"acme":{"refused":[%q]}}`, tool)}, &bundles.Signature{Key: key,
		ID: "acme"})
}

// isAllowed reports whether a call of the tool gets a result.
func isAllowed(t *testing.T, c *mcptest.Client, tool string) bool {
	t.Helper()
	return harness.Request(t, c, "tools/call", fmt.Sprintf(`{"name":%q}`, tool)).Error == nil
}

// TestSignedBundleFileIsEnforcedAndReplaced activates a signed bundle and replaces it by another
// revision. Bundles with an invalid signature or digest are rejected, and the audit log names the
// active revision.
func TestSignedBundleFileIsEnforcedAndReplaced(t *testing.T) {
	harness.Long(t, "waits for reloads")
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "acme.tar.gz")
			harness.ReplaceFile(t, file, denyingBundle(t, "one", "log", key))
			config := harness.ScriptedServer("box") +
				fmt.Sprintf("[policy]\nfiles = [%q]\n"+
					"[policy.key.acme]\nkey = '''%s'''\nalgorithm = %q\n",
					file, key.Public, bundles.Algorithm)
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				c *mcptest.Client) {
				// The test of the next transport starts with the first revision again.
				t.Cleanup(func() {
					harness.ReplaceFile(t, file,
						denyingBundle(t, "one", "log", key))
				})
				harness.Handshake(t, c)
				if isAllowed(t, c, "box__log") || !isAllowed(t, c, "box__echo") {
					t.Error("the first bundle is not enforced")
				}
				list := string(harness.Request(t, c, "tools/list", `{}`).Raw)
				if strings.Contains(list, "box__log") || !strings.Contains(list, "box__echo") {
					t.Errorf("the tool list is %s, want box__echo without box__log", list)
				}
				for _, invalid := range []struct {
					wantLog string
					bundle  []byte
				}{
					{"failed to verify JWT signature", denyingBundle(t, "two", "echo", other)},
					{"digest mismatch", bundles.Rewrite(t, denyingBundle(t, "two", "log", key),
						func(name, text string) (string, string) {
							return name, strings.Replace(text, `"no"`, `"on"`, 1)
						})},
					{"not a bundle", []byte("garbage")},
				} {
					harness.ReplaceFile(t, file, invalid.bundle)
					g.WaitForLog(invalid.wantLog, 1)
					if isAllowed(t, c, "box__log") || !isAllowed(t, c, "box__echo") {
						t.Errorf("%s: the previous bundle is not enforced", invalid.wantLog)
					}
				}
				harness.ReplaceFile(t, file, denyingBundle(t, "two", "echo", key))
				g.WaitForLog("configuration reloaded", 1)
				// A tool that a list hid stays hidden until the next list.
				harness.Request(t, c, "tools/list", `{}`)
				if !isAllowed(t, c, "box__log") || isAllowed(t, c, "box__echo") {
					t.Error("the second bundle is not enforced")
				}
				g.WantRecords("to_server request tools/call box log deny",
					"to_client response tools/list box - hide",
					"to_server request tools/call box echo pass",
					"to_server request tools/call box echo deny",
					"to_server request tools/call box log pass")
				var events []string // the start and the reloads, each with revision or reason
				for _, r := range g.Records() {
					if r.Action == "start" || r.Action == "reload" {
						_, detail, _ := strings.Cut(r.Reason,
							fmt.Sprintf(", bundle %q revision ", file))
						if detail == "" {
							detail = r.Reason
						} else if !strings.Contains(r.Reason, ", policies ") {
							t.Errorf("the record has no digest of the policies: %s", r.Reason)
						}
						events = append(events, r.Action+" "+detail)
					}
				}
				want := []string{`start "one"`, "reload refused", "reload refused",
					"reload refused", `reload "two"`}
				if !slices.Equal(events, want) {
					t.Errorf("the audit log has the events %q, want %q", events, want)
				}
			})
		})
	}
}

// bundleServer serves a policy bundle and receives decision logs and status. Every request needs
// the token.
type bundleServer struct {
	*httptest.Server

	mu      sync.Mutex
	bundle  []byte
	reports strings.Builder // paths and bodies of decision logs and status
}

const bundleServerToken = "the-secret-of-the-bundle-server"

func newBundleServer(t *testing.T, bundle []byte) *bundleServer {
	s := &bundleServer{bundle: bundle}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		bundle := s.bundle
		s.mu.Unlock()
		etag := fmt.Sprintf("\"%x\"", sha256.Sum256(bundle))
		authorized := r.Header.Get("Authorization") == "Bearer "+bundleServerToken
		switch {
		case r.Method == http.MethodPost && authorized:
			body := io.Reader(r.Body)
			if r.Header.Get("Content-Encoding") == "gzip" {
				var err error
				if body, err = gzip.NewReader(r.Body); err != nil {
					t.Error(err)
					return
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			fmt.Fprintf(&s.reports, "%s ", r.URL.Path)
			if _, err := io.Copy(&s.reports, body); err != nil {
				t.Error(err)
			}
		case !authorized || r.URL.Path != "/v1/bundles/acme":
			http.Error(w, "forbidden", http.StatusForbidden)
		case r.Header.Get("If-None-Match") == etag:
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", etag)
			w.Write(bundle)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// serve replaces the bundle that the server serves.
func (s *bundleServer) serve(bundle []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bundle = bundle
}

// config returns the configuration of a gatekit that polls the server every second.
func (s *bundleServer) config(key *bundles.Key, persist string) string {
	return fmt.Sprintf("[policy]\n[policy.key.acme]\nkey = \"\"\"%s\"\"\"\nalgorithm = %q\n"+
		"[policy.service.control]\nurl = %q\n"+
		"headers = { Authorization = \"Bearer ${env:CONTROL_TOKEN}\" }\n"+
		"[policy.bundle.acme]\npersist = %q\nmin_delay = \"1s\"\nmax_delay = \"1s\"\n",
		key.Public, bundles.Algorithm, s.URL+"/v1", persist)
}

// wantTokenNotWritten fails the test if the audit log or the process log has the server's token.
func wantTokenNotWritten(t *testing.T, g *harness.Gatekit) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(string(b), bundleServerToken) ||
		strings.Contains(g.Stderr.String(), bundleServerToken) {
		t.Error("the token of the bundle server is in the audit log or the process log")
	}
}

// TestServedBundlesAreReplacedWithoutLosingACall changes the bundle of a bundle server to invalid
// bundles and to a valid one, while clients make calls. No call is lost, the active bundle decides
// every call, and the audit log names its revision.
func TestServedBundlesAreReplacedWithoutLosingACall(t *testing.T) {
	harness.Long(t, "makes calls while bundles are replaced")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("CONTROL_TOKEN", bundleServerToken)
	key, other := bundles.NewKey(t), bundles.NewKey(t)
	s := newBundleServer(t, denyingBundle(t, "one", "log", key))
	g := harness.StartHTTP(t, harness.ScriptedServer("box")+s.config(key, "kept.tar.gz"))
	var calls atomic.Int64
	defer g.CallRepeatedly(4, harness.EchoAndDeniedLog(t, &calls))()
	client := g.Client("2025-11-25")
	// The replacement denies "log", as the first bundle does, and "self".
	replacement := bundles.Build(t, "three", map[string]string{
		"acme.rego": "package gatekit.acme\n\ndeny contains \"no\" if { input.method == " +
			"\"tools/call\"; input.name in {\"log\", \"self\"} }\n",
	}, &bundles.Signature{Key: key, ID: "acme"})
	for _, invalid := range []struct {
		wantLog string
		bundle  []byte
	}{
		{"failed to verify JWT signature", denyingBundle(t, "two", "echo", other)},
		{"not a bundle", []byte("<html>")},
		{"undefined ref: input.nmae",
			bundles.Build(t, "two", map[string]string{"acme.rego": "package gatekit.acme\n\ndeny " +
				"contains \"no\" if input.nmae == \"log\"\n"}, &bundles.Signature{Key: key,
				ID: "acme"})},
	} {
		s.serve(invalid.bundle)
		g.WaitForLog(invalid.wantLog, 1)
		if !isAllowed(t, client, "box__self") {
			t.Errorf("%s: the previous bundle is not enforced", invalid.wantLog)
		}
	}
	s.serve(replacement)
	g.WaitForLog("policy bundles updated", 1)
	if isAllowed(t, client, "box__self") {
		t.Error("the replacement bundle is not enforced")
	}
	s.Close()
	g.WaitForLog("connection refused", 1)
	if isAllowed(t, client, "box__self") {
		t.Error("without the bundle server, the replacement bundle is not enforced")
	}
	harness.WaitUntilAtMost(t, "missing calls of 100", 0, func() int {
		return int(max(0, 100-calls.Load()))
	})
	var events []string // the start and the reloads, each with revision or reason
	for _, r := range g.Records() {
		if _, revision, ok := strings.Cut(r.Reason, `, bundle "acme" revision `); ok {
			events = append(events, r.Action+" "+revision)
		} else if r.Action == "reload" {
			events = append(events, r.Action+" "+r.Reason)
		}
	}
	const refused = `reload refused: bundle "acme"`
	want := []string{`start "one"`, refused, refused, refused, `reload "three"`}
	if !slices.Equal(events, want) {
		t.Errorf("the audit log has the events\n%q, want\n%q", events, want)
	}
	g.WantRecords("to_server request tools/call box self pass",
		"to_server request tools/call box self deny", "to_server request tools/call box log deny")
	wantTokenNotWritten(t, g)
}

// TestStartWithoutBundleServerUsesPersistedBundle starts gatekit while the bundle server is down.
// Gatekit enforces the persisted bundle. When that bundle has been modified, Gatekit does not trust
// it: the start fails, and the stdio client gets the reason.
func TestStartWithoutBundleServerUsesPersistedBundle(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	harness.Long(t, "waits for a bundle server")
	t.Setenv("CONTROL_TOKEN", bundleServerToken)
	key := bundles.NewKey(t)
	persisted := filepath.Join(t.TempDir(), "kept.tar.gz")
	s := newBundleServer(t, denyingBundle(t, "one", "log", key))
	config := harness.ScriptedServer("box") + s.config(key, persisted)
	g := harness.StartHTTP(t, config)
	if isAllowed(t, g.Client("2025-11-25"), "box__log") {
		t.Error("the bundle is not enforced")
	}
	runCheck := func() string {
		check := exec.Command(peers.Gatekit(t), "check")
		check.Dir = g.Dir
		out, _ := check.CombinedOutput() // it fails: the scripted server does not start here
		return string(out)
	}
	want := `; bundle acme revision "one" of service control`
	if out := runCheck(); !strings.Contains(out, want) {
		t.Errorf("gatekit check printed\n%s\nwant %s", out, want)
	}
	g.Stop()
	s.Close()
	want = `bundle "acme": service 127.0.0.1`
	if out := runCheck(); !strings.Contains(out, want) {
		t.Errorf("without the bundle server, gatekit check printed\n%s\nwant %s", out, want)
	}
	harness.EachTransport(t, config, mcptest.Modern, func(t *testing.T, g *harness.Gatekit,
		c *mcptest.Client) {
		harness.Handshake(t, c)
		if isAllowed(t, c, "box__log") || !isAllowed(t, c, "box__echo") {
			t.Error("the persisted bundle is not enforced")
		}
		g.WantRecords("to_server request tools/call box log deny")
		wantTokenNotWritten(t, g)
	})
	b, err := os.ReadFile(persisted)
	if err != nil {
		t.Fatal(err)
	}
	modified := bundles.Rewrite(t, b, func(name, text string) (string, string) {
		return name, strings.Replace(text, `"log"`, `"xxx"`, 1)
	})
	harness.ReplaceFile(t, persisted, modified)
	g, client := harness.SpawnStdio(t, config, "2025-11-25")
	g.Killed = true // gatekit must end with an error
	m, err := client.Open(harness.Context(t))
	message := mcptest.Text(m.Error, "message")
	if err != nil || !strings.Contains(message, `bundle "acme": service 127.0.0.1`) ||
		!strings.Contains(message, "did not provide the bundle") {
		t.Errorf("the handshake got %s, %v, want an error that names the bundle", m.Raw, err)
	}
	client.Close()
	<-g.Exited
	if !strings.Contains(g.Stderr.String(), "digest mismatch") {
		t.Errorf("stderr has no \"digest mismatch\" for the persisted bundle:\n%s", g.Stderr)
	}
	wantTokenNotWritten(t, g)
}

// TestDecisionLogsAndStatusAreReported checks that the service gets decision logs and the status of
// the bundle, without any content of messages.
func TestDecisionLogsAndStatusAreReported(t *testing.T) {
	harness.Long(t, "waits for reports")
	t.Setenv("CONTROL_TOKEN", bundleServerToken)
	key := bundles.NewKey(t)
	const argument = "sk-planted-in-an-argument"
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			s := newBundleServer(t, denyingBundle(t, "one", "log", key))
			config := harness.ScriptedServer("box") + s.config(key, "kept.tar.gz") +
				"[policy.status]\n" +
				"[policy.decision_logs]\nmin_delay = \"1s\"\nmax_delay = \"1s\"\n"
			harness.EachTransport(t, config, revision, func(t *testing.T, g *harness.Gatekit,
				client *mcptest.Client) {
				reports := func() string {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.reports.String()
				}
				t.Cleanup(func() { s.mu.Lock(); s.reports.Reset(); s.mu.Unlock() })
				harness.Handshake(t, client)
				harness.CallTool(t, client, "box__echo", `{"tag":"`+argument+`"}`)
				harness.Request(t, client, "tools/call",
					`{"name":"box__log","arguments":{"x":"`+argument+`"}}`)
				for _, text := range []string{`"active_revision":"one"`, `"name":"echo"`,
					`"result":{"action":"pass"}`,
					`"name":"log"`, `"result":{"action":"deny","rule":"acme"}`, `"revision":"one"`,
					"/v1/status ", "/v1/logs "} {
					harness.WaitUntilAtMost(t, "missing reports with "+text, 0, func() int {
						return 1 - min(1, strings.Count(reports(), text))
					})
				}
				if strings.Contains(reports(), argument) ||
					strings.Contains(reports(), bundleServerToken) {
					t.Errorf("the reports have the content of a message or the token: %s",
						reports())
				}
				g.WantRecords("to_server request tools/call box echo pass",
					"to_server request tools/call box log deny")
				wantTokenNotWritten(t, g)
			})
		})
	}
}
