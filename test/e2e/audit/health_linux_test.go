package audit

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/test/harness"

	"golang.org/x/sys/unix"
)

// TestHealthReflectsWhetherTheAuditLogIsWritable limits the size of gatekit's files, so that the
// audit log cannot grow. Calls fail, and /healthz reports the failure of the audit log. After the
// limit is lifted, /healthz reports success again, even if no call is made.
func TestHealthReflectsWhetherTheAuditLogIsWritable(t *testing.T) {
	harness.Long(t, "waits for health checks")
	admin, url := adminEndpoint(t, "")
	g, c := harness.StartStdio(t, admin+harness.ScriptedServer("box"), "2025-11-25")
	awaitStatus := func(want int) (page string) {
		t.Helper()
		// Gatekit checks at intervals, not at each request.
		for deadline := time.Now().Add(harness.Patience); ; time.Sleep(100 * time.Millisecond) {
			status, page := get(t, url+"/healthz")
			if status == want {
				return page
			}
			if time.Now().After(deadline) {
				t.Fatalf("/healthz: got %d, want %d\n%s", status, want, page)
			}
		}
	}
	awaitStatus(http.StatusOK)
	log, err := os.Stat(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	limitFileSize := func(bytes uint64) {
		t.Helper()
		if err := unix.Prlimit(g.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes,
			Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Skip(err)
		}
	}
	limitFileSize(uint64(log.Size()))
	if m := harness.Request(t, c, "tools/call", `{"name":"box__echo"}`); m.Error == nil {
		t.Errorf("a call that cannot be recorded got %s, want an error", m.Raw)
	}
	page := awaitStatus(http.StatusServiceUnavailable)
	if !strings.HasPrefix(page, "FAIL  audit: ") || !strings.Contains(page, "file too large") {
		t.Errorf("/healthz: got %s, want the failure of the audit log", page)
	}
	if n := seriesValues(scrape(t, url)["gatekit_audit_failures_total"])[""]; n == 0 {
		t.Error("gatekit_audit_failures_total is 0, want 1 or more")
	}
	limitFileSize(unix.RLIM_INFINITY)
	awaitStatus(http.StatusOK)
	harness.CallTool(t, c, "box__echo", ``)
	if r := g.Records(); r[len(r)-1].Action != "pass" {
		t.Errorf("the last record is %v, want the action pass in it", r[len(r)-1])
	}
}
