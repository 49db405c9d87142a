package sink_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatekit/audit/sink"
)

// TestHangingDiskBlocksNobody takes a lease on the file: the kernel blocks a process that opens the
// file for writing until the lease is released.
func TestHangingDiskBlocksNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.csv")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lease, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(lease)
	if _, err := unix.FcntlInt(uintptr(lease), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skip("no leases here:", err)
	}
	f := sink.NewFile(sink.FileOptions{Path: path, Encoder: newEncoder(t, "csv", 0)})
	b := batch(t, "a")
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		if err := f.Send(ctx, b); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) > 20*time.Second {
			t.Errorf("Send returned after %v with error %v, want DeadlineExceeded after 50ms",
				time.Since(began), err)
		}
		cancel()
	}
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "has not returned") {
		t.Errorf("close: error %v, want that the last write has not returned", err)
	}
	if _, err := unix.FcntlInt(uintptr(lease), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	send(t, f, b)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// the abandoned batch, and the same batch again
	if text := read(t, path); strings.Count(text, "timestamp,") != 1 || strings.Count(text,
		"\r\n") != 3 {
		t.Errorf("the file holds %q, want one header and two records", text)
	}
}
