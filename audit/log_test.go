package audit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

var (
	recordTime = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	errFull    = errors.New("no space left on device")
)

func parse(t testing.TB, text string) *mcp.Message {
	t.Helper()
	m, err := mcp.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m.Direction, m.Session, m.Exchange, m.Principal, m.Server, m.Name = mcp.ToServer,
		"s1", "e1", identity.FromID("ann"),
		"files", "read"
	return m
}

func event(reason string) pipeline.Outcome {
	return pipeline.Outcome{Time: recordTime, Before: &mcp.Message{}, Action: "test",
		Reason: reason}
}

func open(t testing.TB, o audit.Options) *audit.Log {
	t.Helper()
	l, err := audit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func record(t testing.TB, l *audit.Log, o pipeline.Outcome) uint64 {
	t.Helper()
	seq, err := l.Record(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func verify(t testing.TB, log []byte) {
	t.Helper()
	if err := audit.Verify(bytes.NewReader(log)); err != nil {
		t.Fatalf("verify: %v in\n%s", err, log)
	}
}

// reasons returns the reasons of the lines of a log.
func reasons(t testing.TB, log []byte) []string {
	t.Helper()
	var all []string
	for line := range bytes.Lines(log) {
		var r struct{ Reason string }
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, r.Reason)
	}
	return all
}

// splitGaps returns the reasons that do not belong to "gap" records, and the number of records that
// the "gap" records count as missing.
func splitGaps(t testing.TB, reasons []string) (others []string, missed int) {
	t.Helper()
	for _, r := range reasons {
		var n int
		if _, err := fmt.Sscanf(r, "%d records could not be written since", &n); err == nil {
			missed += n
			continue
		}
		others = append(others, r)
	}
	return others, missed
}

// disk is a file in memory with configurable failures.
type disk struct {
	mu       sync.Mutex
	data     []byte
	writes   int
	syncs    int
	write    func(b []byte) (kept, reported int, err error) // nil: every write succeeds
	sync     func() error
	truncate func() error
}

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	write := d.write
	d.writes++
	d.mu.Unlock()
	kept, reported, err := len(b), len(b), error(nil)
	if write != nil {
		kept, reported, err = write(b)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data = append(d.data, b[:kept]...)
	return reported, err
}

func (d *disk) Sync() error {
	d.mu.Lock()
	sync := d.sync
	d.syncs++
	d.mu.Unlock()
	if sync != nil {
		return sync()
	}
	return nil
}

func (d *disk) Truncate(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.truncate != nil {
		if err := d.truncate(); err != nil {
			return err
		}
	}
	d.data = d.data[:size]
	return nil
}

func (d *disk) locked(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

var hmacMember = regexp.MustCompile(`"hmac":"[0-9a-f]{64}"`)

func TestRecordWritesLine(t *testing.T) {
	m := parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read"}}`)
	changed, err := m.Edit(mcp.Set("/x", []byte("[1,\r\n2]")))
	if err != nil {
		t.Fatal(err)
	}
	failed := mcp.NewError("7", -32602, "unknown tool", nil)
	isError := mcp.NewResponse("7", []byte(`{"content":[],"isError":true}`))
	isError.Method = "tools/call"
	bare := parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
	size := func(m *mcp.Message) string { return fmt.Sprintf(`"size":%d`, len(m.Body())) }
	// keyed and digest return how a record describes a body: its size, and its keyed or plain hash.
	keyed := func(m *mcp.Message) string { return size(m) + `,"hmac":"…"` }
	digest := func(m *mcp.Message) string {
		return fmt.Sprintf(`%s,"sha256":"%x"`, size(m), sha256.Sum256(m.Body()))
	}
	const (
		start  = `{"seq":1,"time":"2026-11-21T11:00:00.123456Z","prev":"0000000000000000000000000000000000000000000000000000000000000000"`
		fields = `,"session":"s1","exchange":"e1","principal":"ann","direction":"to_server","kind":"request","method":"tools/call","server":"files","name":"read"`
	)
	tests := []struct {
		name   string
		bodies audit.Bodies
		o      pipeline.Outcome
		want   string
	}{
		{"a message that is forwarded unchanged", "", pipeline.Outcome{Time: recordTime, Before: m,
			After:  m,
			Action: "pass"},
			start + fields + `,"action":"pass","before":{` + digest(m) + `},"after":{` + digest(m) +
				`}}`},
		{"a message that is changed", audit.BodiesDigest, pipeline.Outcome{Time: recordTime,
			Before: m,
			After:  changed,
			Action: "modify", Reason: "key", Duration: 1500 * time.Microsecond,
			Steps: []pipeline.Step{{Stage: "a", Action: "pass", Duration: 10},
				{Stage: "b", Action: "modify", Reason: "key", Duration: time.Millisecond,
					Findings: []pipeline.Finding{{Type: "aws", Pointer: "/x"}, {Type: "jwt"}}}}},
			start + fields + `,"action":"modify","reason":"key","steps":[{"stage":"a","action":"pass"},` +
				`{"stage":"b","action":"modify","reason":"key","micros":1000,"findings":[{"type":"aws","pointer":"/x"},{"type":"jwt"}]}],` +
				`"before":{` + keyed(m) + `},"after":{` + digest(changed) + `},"micros":1500}`},
		{"the body of a denied message is not kept", audit.BodiesRedacted,
			pipeline.Outcome{Time: recordTime,
				Before: m,
				Action: "deny", Err: errors.New(`stage "a": broken`)},
			start + fields + `,"action":"deny","before":{` + keyed(m) +
				`},"error":"stage \"a\": broken"}`},
		{"BodiesNone keeps only sizes", audit.BodiesNone, pipeline.Outcome{Time: recordTime,
			Before: m, After: changed,
			Action: "modify"},
			start + fields + `,"action":"modify","before":{` + size(m) + `},"after":{` +
				size(changed) + `}}`},
		{"BodiesRedacted keeps the forwarded body on one line", audit.BodiesRedacted,
			pipeline.Outcome{Time: recordTime, Before: m, After: changed, Action: "modify"},
			start + fields + `,"action":"modify","before":{` + keyed(m) + `},"after":{` +
				digest(changed) + `,"body":{"name":"read","x":[1,  2]}}}`},
		{"a message without a body", audit.BodiesRedacted, pipeline.Outcome{Time: recordTime,
			Before: bare,
			After:  bare, Action: "pass"},
			start + strings.Replace(fields, "call", "list", 1) + `,"action":"pass"}`},
		{"an error of a server", audit.BodiesNone, pipeline.Outcome{Time: recordTime,
			Before: failed,
			After:  failed, Action: "pass"},
			start + `,"kind":"error","action":"pass","before":{` + size(failed) + `},"after":{` +
				size(failed) + `},"code":-32602}`},
		{"a tool that failed", audit.BodiesNone, pipeline.Outcome{Time: recordTime, Before: isError,
			After: isError, Action: "pass"},
			start + `,"kind":"response","method":"tools/call","action":"pass","before":{` +
				size(isError) + `},"after":{` + size(isError) + `},"failed":true}`},
		{"a microsecond", "", pipeline.Outcome{Time: recordTime, Action: "stop",
			Duration: time.Microsecond}, start + `,"action":"stop","micros":1}`},
		{"an event", "", event("why"), start + `,"action":"test","reason":"why"}`},
		{"an event without a message", "", pipeline.Outcome{Time: recordTime, Action: "stop"},
			start + `,"action":"stop"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			l := open(t, audit.Options{Writer: &log, Bodies: tt.bodies})
			if seq := record(t, l, tt.o); seq != 1 {
				t.Errorf("seq %d, want 1", seq)
			}
			if got := hmacMember.ReplaceAllString(log.String(), `"hmac":"…"`); got != tt.want+"\n" {
				t.Errorf("the line is\n%swant\n%s", got, tt.want)
			}
			record(t, l, tt.o)
			verify(t, log.Bytes())
		})
	}
}

// TestFailedWriteIsTakenBack injects faults of write and sync. A faulty write writes nothing, a
// part, or everything, and reports an error or too few bytes.
func TestFailedWriteIsTakenBack(t *testing.T) {
	writeResult := func(kept, reported func(b []byte) int,
		err error) func(b []byte) (int, int, error) {
		return func(b []byte) (int, int, error) { return kept(b), reported(b), err }
	}
	none := func([]byte) int { return 0 }
	half := func(b []byte) int { return len(b) / 2 }
	all := func(b []byte) int { return len(b) }
	tests := []struct {
		name       string
		durability audit.Durability
		fault      func(d *disk)
	}{
		{"nothing was written", audit.DurabilityWrite, func(d *disk) {
			d.write = writeResult(none, none,
				errFull)
		}},
		{"half was written", audit.DurabilityWrite, func(d *disk) {
			d.write = writeResult(half, half,
				errFull)
		}},
		{"half was written, and nothing reported", audit.DurabilityWrite, func(d *disk) {
			d.write = writeResult(half,
				none, errFull)
		}},
		{"all was written, and an error reported", audit.DurabilityWrite, func(d *disk) {
			d.write = writeResult(all,
				all, errFull)
		}},
		{"all was written, and nothing reported", audit.DurabilityWrite,
			func(d *disk) { d.write = writeResult(all, none, errFull) }},
		{"half was written, and too few bytes reported", audit.DurabilityWrite, func(d *disk) {
			d.write = writeResult(half,
				half, nil)
		}},
		{"all was written, and sync failed", audit.DurabilityFsync, func(d *disk) {
			d.sync = func() error {
				return errFull
			}
		}},
		{"half was written, before the sync", audit.DurabilityFsync,
			func(d *disk) { d.write = writeResult(half, half, errFull) }},
	}
	for _, tt := range tests {
		for _, cut := range []string{"truncate works", "truncate fails at first"} {
			t.Run(tt.name+", "+cut, func(t *testing.T) {
				d := &disk{}
				var logged bytes.Buffer
				l := open(t, audit.Options{Writer: d, Durability: tt.durability,
					Logger: slog.New(slog.NewTextHandler(&logged, nil))})
				record(t, l, event("first"))
				good := string(d.data)

				tt.fault(d)
				if cut != "truncate works" {
					d.truncate = func() error { return errors.New("read-only") }
				}
				refused := 2
				for range refused {
					if seq, err := l.Record(t.Context(), event("refused")); err == nil || seq != 0 {
						t.Fatalf("Record returned seq %d, error %v; want 0 and an error", seq, err)
					}
				}
				d.write, d.sync = nil, nil
				if d.truncate != nil {
					if _, err := l.Record(t.Context(), event("refused")); err == nil {
						t.Fatal("a record was written after an incomplete line")
					}
					refused++
					d.truncate = nil
				} else if string(d.data) != good {
					t.Errorf("the log holds\n%s, want only the lines from before the failure",
						d.data)
				}

				if seq := record(t, l, event("second")); seq != 3 {
					t.Errorf("seq %d, want 3: failed records get no seq, and seq 2 is the gap "+
						"record", seq)
				}
				record(t, l, event("third"))
				verify(t, d.data)
				if got, missed := splitGaps(t,
					reasons(t, d.data)); fmt.Sprint(got) != "[first second third]" ||
					missed != refused {
					t.Errorf("the log holds %s, and its gap records count %d; want [first second "+
						"third] and %d", got, missed, refused)
				}
				if !bytes.Contains(d.data, []byte(`,"action":"gap","reason":"`)) {
					t.Error("no record has the action gap")
				}
				if err := l.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				if n := strings.Count(logged.String(), "write failed"); n != 1 {
					t.Errorf("the failure was reported %d times, want once:\n%s", n, &logged)
				}
				if !strings.Contains(logged.String(), "written again") {
					t.Errorf("the recovery was not reported:\n%s", &logged)
				}
			})
		}
	}
}

// plainWriter hides Truncate and Sync of a disk by methods with other signatures.
type plainWriter struct{ *disk }

func (plainWriter) Truncate() {}
func (plainWriter) Sync()     {}

func TestLogStopsIfPartialWriteCannotBeCutOff(t *testing.T) {
	d := &disk{}
	l := open(t, audit.Options{Writer: plainWriter{d}, Durability: audit.DurabilityFsync})
	record(t, l, event("first"))
	d.write = func([]byte) (int, int, error) { return 0, 0, errFull }
	if _, err := l.Record(t.Context(), event("refused")); !errors.Is(err, errFull) {
		t.Fatalf("error %v, want %v", err, errFull)
	}
	d.write = nil
	record(t, l, event("second"))
	verify(t, d.data)
	d.write = func([]byte) (int, int, error) { return 3, 3, errFull }
	for range 2 {
		if _, err := l.Record(t.Context(), event("refused")); !errors.Is(err,
			errors.ErrUnsupported) {
			t.Fatalf("error %v, want errors.ErrUnsupported, because the write cannot be taken back",
				err)
		}
		d.write = nil
	}
}

func TestWaitingRecordsShareOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{sync: func() error { time.Sleep(time.Millisecond); return nil }}
		l := open(t, audit.Options{Writer: d, Durability: audit.DurabilityFsync})
		began := time.Now()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { record(t, l, event("")) })
		}
		wg.Wait()
		if took := time.Since(began); took > 3*time.Millisecond {
			t.Errorf("1000 records at once took %v, want at most 3 writes of 1 ms each", took)
		}
		verify(t, d.data)
	})
}

func TestLineChainedToFailedLineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		l := open(t, audit.Options{Writer: d})
		release := make(chan struct{})
		d.write = func([]byte) (int, int, error) {
			<-release
			return 0, 0, errFull
		}
		failed := make(chan error, 10)
		for range cap(failed) {
			go func() {
				_, err := l.Record(t.Context(), event("refused"))
				failed <- err
			}()
		}
		// one goroutine writes its line, and another waits to write the lines of all others
		synctest.Wait()
		close(release)
		for range cap(failed) {
			if err := <-failed; !errors.Is(err, errFull) {
				t.Errorf("error %v, want %v", err, errFull)
			}
		}
		if d.writes != 1 {
			t.Errorf("%d writes, want 1: the second batch is chained to the first", d.writes)
		}
		d.write = nil
		if seq := record(t, l, event("after")); seq != 2 {
			t.Errorf("seq %d, want 2, after the gap record", seq)
		}
		verify(t, d.data)
		if got, missed := splitGaps(t, reasons(t, d.data)); fmt.Sprint(got) != "[after]" ||
			missed != cap(failed) {
			t.Errorf("the log holds %s, and its gap records count %d; want [after] and %d", got,
				missed, cap(failed))
		}
	})
}

// TestLogHoldsExactlyTheRecordsThatSucceeded writes from many goroutines to a disk that sometimes
// fails.
func TestLogHoldsExactlyTheRecordsThatSucceeded(t *testing.T) {
	for _, durability := range []audit.Durability{audit.DurabilityWrite, audit.DurabilityFsync,
		audit.DurabilityAsync} {
		for _, flaky := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, flaky %v", durability, flaky), func(t *testing.T) {
				d := &disk{}
				if flaky {
					d.write = func(b []byte) (int, int, error) {
						switch rand.IntN(8) {
						case 0:
							return rand.IntN(len(b)), 0, errFull
						case 1:
							return len(b), len(b), errFull
						}
						return len(b), len(b), nil
					}
				}
				l := open(t, audit.Options{Writer: d, Durability: durability})
				var mu sync.Mutex
				kept := map[string]uint64{}
				refused := 0
				var wg sync.WaitGroup
				for g := range 32 {
					wg.Go(func() {
						for i := range 50 {
							name := fmt.Sprintf("%d/%d", g, i)
							seq, err := l.Record(t.Context(), event(name))
							if err != nil {
								if !flaky {
									t.Error(err)
								}
							}
							mu.Lock()
							if err == nil {
								kept[name] = seq
							} else {
								refused++
							}
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				d.locked(func() { d.write = nil })
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				verify(t, d.data)
				all := reasons(t, d.data)
				lines, missed := splitGaps(t, all)
				if len(lines) != len(kept) || missed != refused {
					t.Errorf("got %d lines, want one for each of %d accepted records; the gap "+
						"records count %d refused records, want %d", len(lines), len(kept), missed,
						refused)
				}
				for i, name := range all {
					if seq, ok := kept[name]; ok && seq != uint64(i+1) {
						t.Errorf("line %d is record %s, but Record returned seq %d for it", i+1,
							name, seq)
					}
				}
				if n := l.Committed(); n != uint64(len(all)) {
					t.Errorf("%d records are committed, want %d", n, len(all))
				}
			})
		}
	}
}

func TestAsyncQueueIsBoundedAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		l := open(t, audit.Options{Writer: d, Durability: audit.DurabilityAsync, QueueBytes: 500})
		release := make(chan struct{})
		d.write = func(b []byte) (int, int, error) { <-release; return len(b), len(b), nil }
		record(t, l, event("1"))
		synctest.Wait() // the write hangs
		record(t, l, event("2"))
		record(t, l, event("3"))
		if _, err := l.Record(t.Context(), event(strings.Repeat("x", 400))); err == nil ||
			!strings.Contains(err.Error(), "queue is full") {
			t.Errorf("error %v, want that the queue is full", err)
		}
		if n := l.Pending(); n != 3 {
			t.Errorf("%d records are pending, want 3: one is being written, two are queued", n)
		}
		close(release)
		synctest.Wait()
		record(t, l, event("4"))
		synctest.Wait()
		if n := l.Pending(); n != 0 {
			t.Errorf("%d records are pending, want 0: all are written", n)
		}
		if got, missed := splitGaps(t, reasons(t, d.data)); fmt.Sprint(got) != "[1 2 3 4]" ||
			missed != 1 {
			t.Errorf("the log holds %s, and its gap records count %d; want [1 2 3 4] and 1", got,
				missed)
		}

		release = make(chan struct{})
		d.locked(func() {
			d.write = func(b []byte) (int, int, error) {
				<-release
				return 10, 0,
					errFull
			}
		})
		record(t, l, event("5")) // accepted, but then not written
		synctest.Wait()
		record(t, l, event("6"))
		close(release)
		synctest.Wait()
		for range 2 {
			if _, err := l.Record(t.Context(), event("refused")); !errors.Is(err, errFull) {
				t.Errorf("error %v, want the error of the failed write", err)
			}
			synctest.Wait()
		}
		release = make(chan struct{})
		d.locked(func() {
			d.write = func(b []byte) (int, int, error) {
				<-release
				return len(b), len(b),
					nil
			}
		})
		// The first record starts another try to write. The second comes while that try runs.
		for range 2 {
			if _, err := l.Record(t.Context(), event("refused")); err == nil {
				t.Error("a record was accepted before a write succeeded")
			}
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		record(t, l, event("7"))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		verify(t, d.data)
		if got, missed := splitGaps(t, reasons(t, d.data)); fmt.Sprint(got) != "[1 2 3 4 5 6 7]" ||
			missed != 5 {
			t.Errorf("the log holds %s, and its gap records count %d; want [1 2 3 4 5 6 7] and 5",
				got, missed)
		}
	})
	t.Run("Close reports lost records", func(t *testing.T) {
		d := &disk{write: func(b []byte) (int, int, error) { return 0, 0, errFull }}
		l := open(t, audit.Options{Writer: d, Durability: audit.DurabilityAsync})
		record(t, l, event("1"))
		if err := l.Close(); !errors.Is(err, errFull) || !strings.Contains(err.Error(),
			"bytes of records are lost") {
			t.Errorf("close: %v, want the number of lost bytes and the cause", err)
		}
	})
	t.Run("Close reports no lost records if all were refused", func(t *testing.T) {
		d := &disk{write: func(b []byte) (int, int, error) { return 0, 0, errFull }}
		l := open(t, audit.Options{Writer: d})
		if _, err := l.Record(t.Context(), event("refused")); !errors.Is(err, errFull) {
			t.Errorf("error %v, want the error of the failed write", err)
		}
		if err := l.Close(); !errors.Is(err, errFull) || strings.Contains(err.Error(),
			"bytes of records are lost") {
			t.Errorf("close: %v, want only the cause, because the message was denied", err)
		}
	})
	t.Run("Close records the refused records", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := &disk{write: func(b []byte) (int, int, error) { return 0, 0, errFull }}
			l := open(t, audit.Options{Writer: d, Durability: audit.DurabilityAsync})
			record(t, l, event("1"))
			synctest.Wait()
			if _, err := l.Record(t.Context(), event("refused")); !errors.Is(err, errFull) {
				t.Errorf("error %v, want the error of the failed write", err)
			}
			synctest.Wait()
			d.locked(func() { d.write = nil })
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			verify(t, d.data)
			if got, missed := splitGaps(t, reasons(t, d.data)); fmt.Sprint(got) != "[1]" ||
				missed != 1 {
				t.Errorf("the log holds %s, and its gap records count %d; want [1] and 1", got,
					missed)
			}
		})
	})
}

func TestGapRecordHasTimeOfFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{write: func(b []byte) (int, int, error) { return 0, 0, errFull }}
		l := open(t, audit.Options{Writer: d})
		began := time.Now()
		for range 3 {
			if _, err := l.Record(t.Context(), event("refused")); err == nil {
				t.Error("a record was written to a full disk")
			}
			time.Sleep(time.Second)
		}
		d.write = nil
		record(t, l, event("after"))
		want := "3 records could not be written since " + began.UTC().Format(
			"2006-01-02T15:04:05.000000Z") + ": their messages were denied"
		if got := reasons(t, d.data); got[0] != want {
			t.Errorf("the gap record has the reason %q, want %q", got[0], want)
		}
	})
}

func TestCloseWaitsForRecordsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{sync: func() error { time.Sleep(time.Second); return nil }}
		l := open(t, audit.Options{Writer: d, Durability: audit.DurabilityFsync})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { record(t, l, event("under way")) })
		}
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if n := len(reasons(t, d.data)); n != 3 {
			t.Errorf("%d lines after Close, want 3", n)
		}
		if _, err := l.Record(t.Context(), event("late")); err == nil {
			t.Error("a record was written after Close")
		}
		if err := l.Close(); err != nil {
			t.Errorf("second Close: error %v, want none", err)
		}
		wg.Wait()
	})
}

func TestOpenRefusesInvalidOptions(t *testing.T) {
	tests := []struct {
		name string
		o    audit.Options
		want string
	}{
		{"neither File nor Writer", audit.Options{}, "either File or Writer"},
		{"File and Writer", audit.Options{File: "x", Writer: &bytes.Buffer{}},
			"either File or Writer"},
		{"unknown bodies", audit.Options{Writer: &bytes.Buffer{}, Bodies: "all"},
			`unknown bodies "all"`},
		{"unknown durability", audit.Options{Writer: &bytes.Buffer{}, Durability: "none"},
			`unknown durability "none"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := audit.Open(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}
