package pins

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gatekit/test/harness"
)

// TestItemsAreNotTrustedWithoutARecord has an audit log that cannot grow when the server lists its
// tools. Gatekit must not write a tool into the lock file that it cannot record: a reload of the
// file would approve the tool.
func TestItemsAreNotTrustedWithoutARecord(t *testing.T) {
	p := newPinTestWith(t, "first = \"trust\"\n", false, "2025-11-25", "2025-11-25")
	file := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(p.g.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	before := file("gatekit.lock") // with the instructions
	for range 20 {                 // the log becomes larger than the lock file would be
		harness.CallTool(t, p.c, "box__add", `{}`)
	}
	limit := func(bytes uint64) error {
		return unix.Prlimit(p.g.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes,
			Max: unix.RLIM_INFINITY}, nil)
	}
	var size int
	var limitErr error
	fill := func() {
		size = len(file("audit.jsonl"))
		limitErr = limit(uint64(size))
	}
	p.whileListed.Store(&fill)
	m := harness.Request(t, p.c, "tools/list", `{}`)
	p.whileListed.Store(nil)
	switch now := file("gatekit.lock"); {
	case limitErr != nil:
		t.Skip(limitErr)
	case size == 0 || m.Error == nil:
		t.Errorf("a list that cannot be recorded got %s, want an error", m.Raw)
	case !bytes.Equal(now, before):
		t.Errorf("the lock file is now %s, want it as before", now)
	}
	if err := limit(unix.RLIM_INFINITY); err != nil {
		t.Fatal(err)
	}
	p.wantTools("box__add", "box__read")
	if now := file("gatekit.lock"); bytes.Equal(now, before) || len(now) > size {
		t.Fatalf("the lock file has %d bytes, want the tools, and less than the %d of the log",
			len(now), size)
	}
	p.g.WantRecords("- - - box - pin", "to_client response tools/list box - pass")
}
