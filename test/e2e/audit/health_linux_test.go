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

// While the audit log cannot be written nothing moves, and that is not health. When it can be
// again, nobody has to send a message for that to be seen.
func TestHealthIsThatTheAuditLogCanBeWritten(t *testing.T) {
	harness.Long(t, "waits for health checks")
	admin, url := operators(t, "")
	g, c := harness.StartStdio(t, admin+harness.ScriptedServer("box"), "2025-11-25")
	is := func(want int) string {
		t.Helper()
		// nobody looks at each question
		for deadline := time.Now().Add(harness.Patience); ; time.Sleep(100 * time.Millisecond) {
			status, page := get(t, url+"/healthz")
			if status == want {
				return page
			}
			if time.Now().After(deadline) {
				t.Fatalf("/healthz: %d, want %d\n%s", status, want, page)
			}
		}
	}
	is(http.StatusOK)
	log, err := os.Stat(filepath.Join(g.Dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	limit := func(bytes uint64) {
		t.Helper()
		if err := unix.Prlimit(g.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes,
			Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Skip(err)
		}
	}
	limit(uint64(log.Size()))
	if m := harness.Request(t, c, "tools/call", `{"name":"box__echo"}`); m.Error == nil {
		t.Errorf("a call went through unrecorded: %s", m.Raw)
	}
	if page := is(http.StatusServiceUnavailable); !strings.HasPrefix(page, "FAIL  audit: ") ||
		!strings.Contains(page, "file too large") {
		t.Errorf("it says %s", page)
	}
	if n := values(scrape(t, url)["gatekit_audit_failures_total"])[""]; n == 0 {
		t.Error("no failure is counted")
	}
	limit(unix.RLIM_INFINITY)
	is(http.StatusOK)
	harness.CallTool(t, c, "box__echo", ``)
	if r := g.Records(); r[len(r)-1].Action != "pass" {
		t.Errorf("the last record is %v", r[len(r)-1])
	}
}
