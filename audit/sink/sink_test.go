package sink_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/audit"
	"gatekit/audit/sink"
	"gatekit/core/pipeline"
)

// TestMain lets more tests run at the same time than there are processors: those that are parallel
// mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	m.Run()
}

// testLog holds a real audit log, and the log lines of the sinks that read the audit log.
type testLog struct {
	t           testing.TB
	file        string
	log         *audit.Log
	logOptions  audit.Options // open sets the field File
	operatorLog bytes.Buffer  // log lines of the sinks; complete when the sinks have ended
}

func newTestLog(t testing.TB) *testLog {
	t.Helper()
	j := &testLog{t: t, file: filepath.Join(t.TempDir(), "gatekit.jsonl")}
	j.open()
	return j
}

func (j *testLog) open() {
	j.t.Helper()
	o := j.logOptions
	o.File = j.file
	l, err := audit.Open(o)
	if err != nil {
		j.t.Fatal(err)
	}
	j.log = l
	j.t.Cleanup(func() { l.Close() })
}

// record adds records with these reasons.
func (j *testLog) record(reasons ...string) {
	j.t.Helper()
	for _, reason := range reasons {
		j.event("test", reason, nil)
	}
}

func (j *testLog) event(action, reason string, err error) {
	j.t.Helper()
	if _, failed := j.log.Record(context.Background(), pipeline.Outcome{Time: time.Now(),
		Action: action, Reason: reason, Err: err}); failed != nil {
		j.t.Error(failed)
	}
}

// recordMany adds n records.
func (j *testLog) recordMany(n int) {
	j.t.Helper()
	for i := range n {
		j.record(fmt.Sprint("reason ", i))
	}
}

// lines returns the seqs and reasons of the log's records.
func (j *testLog) lines() (all []string) {
	j.t.Helper()
	for r, err := range (&audit.Reader{File: j.file}).All(j.t.Context()) {
		if err != nil {
			j.t.Fatal(err)
		}
		all = append(all, line(&r))
	}
	return all
}

// sinkRecords returns the records that sinks have written.
func (j *testLog) sinkRecords() (all []string) {
	j.t.Helper()
	for r, err := range (&audit.Reader{File: j.file}).All(j.t.Context()) {
		if err != nil {
			j.t.Fatal(err)
		}
		if strings.HasPrefix(r.Action, "sink ") {
			all = append(all, strings.TrimSuffix(r.Action+": "+r.Reason+": "+r.Error, ": "))
		}
	}
	return all
}

func line(r *audit.Record) string { return fmt.Sprint(r.Seq, " ", r.Reason) }

// options returns the options of a sink that sends the log to the receiver.
func (j *testLog) options(receiver sink.Receiver) sink.Options {
	return sink.Options{
		Name: "siem", Receiver: receiver, LogFile: j.file, Committed: func() uint64 {
			return j.log.Committed()
		}, CursorFile: filepath.Join(filepath.Dir(j.file), "sinks", "siem.json"), Records: true,
		Logger: slog.New(slog.NewTextHandler(&j.operatorLog, nil)), RecordEvent: j.event,
	}
}

// start runs a sink. It returns the sink, and a function that stops the sink and returns the error
// of Run.
func start(t testing.TB, o sink.Options) (*sink.Sink, func() error) {
	t.Helper()
	s := sink.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, 5*time.Second) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	return s, stop
}

// fakeReceiver is a receiver with configurable behaviour.
type fakeReceiver struct {
	mu      sync.Mutex
	got     []string // seqs and reasons of records, and checkpoints
	numbers []uint64 // seqs of records
	largest int      // size of the largest batch
	tries   int      // calls of Send
	closed  int      // calls of Close

	// If one of these functions is set, Send returns its error. Otherwise Send accepts everything.
	tryError   func(try int) error
	batchError func(b sink.Batch) error
	stuck      bool // Send blocks until ctx ends
	taken      bool // the receiver keeps a batch although Send returns an error
}

func (in *fakeReceiver) Send(ctx context.Context, b sink.Batch) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.tries++
	in.largest = max(in.largest, len(b.Records))
	var err error
	if in.stuck {
		in.mu.Unlock()
		<-ctx.Done()
		in.mu.Lock()
		err = ctx.Err()
	} else if in.tryError != nil {
		err = in.tryError(in.tries)
	} else if in.batchError != nil {
		err = in.batchError(b)
	}
	if err != nil && !in.taken {
		return err
	}
	for _, r := range b.Records {
		in.got, in.numbers = append(in.got, line(&r)), append(in.numbers, r.Seq)
	}
	if b.Checkpoint != nil {
		in.got = append(in.got, string(b.Checkpoint))
	}
	return err
}

func (in *fakeReceiver) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed++
	return nil
}

func (in *fakeReceiver) set(stuck bool, tryError func(int) error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stuck, in.tryError = stuck, tryError
}

func (in *fakeReceiver) all() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.got)
}

func (in *fakeReceiver) seqs() []uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.numbers)
}

func (in *fakeReceiver) tried() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.tries
}

// want compares two lists. It reports only the first difference, because a list may have thousands
// of entries.
func want(t testing.TB, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	t.Errorf("%s: got %d entries, want %d; from entry %d on got %.200q, want %.200q", what,
		len(got), len(want), i, got[i:min(len(got), i+3)], want[i:min(len(want), i+3)])
}

func TestRunSendsOldNewAndLastRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{}
		j.recordMany(1200)
		s, stop := start(t, j.options(in))
		time.Sleep(time.Second)
		want(t, "the records from before the start", in.all(), j.lines())
		j.record("later")
		if got := s.Backlog(); got != 1 {
			t.Errorf("the backlog is %d records, want 1", got)
		}
		time.Sleep(time.Second)
		want(t, "all records after a second", in.all(), j.lines())
		if got := s.Backlog(); got != 0 {
			t.Errorf("the backlog is %d records, want 0", got)
		}
		j.record("last")
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(t, "the received records", in.all(), j.lines())
		if in.largest > 512 || in.closed != 1 {
			t.Errorf("the largest batch had %d records, and the receiver was closed %d times; "+
				"want at most 512, and once", in.largest, in.closed)
		}
	})
}

func TestRestartContinuesAtCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{}
		for _, reason := range []string{"a", "b", "c"} {
			j.record(reason)
			_, stop := start(t, j.options(in))
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		want(t, "all, each once", in.all(), []string{"1 a", "2 b", "3 c"})
		for _, file := range []string{j.options(in).CursorFile,
			filepath.Dir(j.options(in).CursorFile)} {
			if i, err := os.Stat(file); err != nil || i.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v, error %v; want that others may not access it", file,
					i.Mode(), err)
			}
		}
	})
}

func TestReceiverDownForADayGetsEverythingInOrder(t *testing.T) {
	for _, c := range []struct {
		name         string
		stuck, taken bool
	}{
		{name: "it refuses"}, {name: "it accepts all and returns an error", taken: true},
		{name: "it hangs", stuck: true}, {name: "it accepts all and never responds", stuck: true,
			taken: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{stuck: c.stuck, taken: c.taken,
					tryError: func(int) error { return errors.New("it is down") }}
				s, stop := start(t, j.options(in))
				for range 24 {
					j.recordMany(40)
					time.Sleep(time.Hour)
				}
				// the sink has added one record, "sink lost"
				if got, want := s.Backlog(), uint64(24*40+1); got != want {
					t.Errorf("the backlog is %d records, want %d", got, want)
				}
				if n := in.tried(); n < 24*20 || n > 24*130 {
					t.Errorf("got %d tries in a day, want %d to %d", n, 24*20, 24*130)
				}
				in.set(false, nil)
				time.Sleep(2 * time.Minute)
				j.record("after")
				if err := stop(); err != nil {
					t.Error(err)
				}
				got := in.all()
				// the receiver also kept the batches of failed tries, which come first
				if c.taken {
					got = got[len(got)-len(j.lines()):]
				}
				want(t, "the received records", got, j.lines())
				records := j.sinkRecords()
				if len(records) != 2 ||
					!strings.HasPrefix(records[0], `sink lost: sink "siem": `) ||
					records[1] != `sink back: sink "siem"` {
					t.Errorf("the sink's records are %q, want \"sink lost\" and \"sink back\"",
						records)
				}
				if text := j.operatorLog.String(); strings.Count(text, "level=ERROR") != 1 ||
					strings.Count(text, "works again") != 1 {
					t.Errorf("the operator's log has\n%swant one error and one recovery", text)
				}
			})
		})
	}
}

func TestOccasionalFailureIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{tryError: func(try int) error {
			if try%3 != 0 {
				return errors.New("busy")
			}
			return nil
		}}
		_, stop := start(t, j.options(in))
		for range 100 {
			j.record("x")
			time.Sleep(5 * time.Second)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(t, "the received records", in.all(), j.lines())
		if len(j.lines()) != 100 || j.operatorLog.Len() > 0 {
			t.Errorf("the log has %d records, and the operator's log is %q; want 100, and nothing",
				len(j.lines()), &j.operatorLog)
		}
	})
}

func TestStopWaitsForDeadReceiverUntilDrainEnds(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		t.Run(fmt.Sprintf("the receiver hangs: %v", stuck), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{stuck: stuck, tryError: func(int) error {
					return errors.New("it is down")
				}}
				j.recordMany(3)
				_, stop := start(t, j.options(in))
				time.Sleep(10 * time.Second)
				began := time.Now()
				err := stop()
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("the stop took %v, want at most 6s", took)
				}
				if err == nil || !strings.Contains(err.Error(),
					"records were not sent; they will be sent after the next start") {
					t.Errorf("stop: error %v, want that records were not sent", err)
				}
				in.set(false, nil)
				_, stop = start(t, j.options(in))
				if err := stop(); err != nil {
					t.Error(err)
				}
				want(t, "after the next start", in.all(), j.lines())
			})
		})
	}
}

func TestStopDoesNotWaitForFailingReceiver(t *testing.T) {
	for _, c := range []struct {
		name string
		down time.Duration // time that the receiver is down before the stop
		most time.Duration // longest duration of the stop
	}{{"it is down for a minute", time.Minute, 0}, {"it has just gone down", 0, 5 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{tryError: func(int) error {
					return errors.New("it is down")
				}}
				_, stop := start(t, j.options(in))
				j.record("a")
				time.Sleep(c.down)
				// the log is closed before the sink ends, so the sink must not write an event
				if err := j.log.Close(); err != nil {
					t.Error(err)
				}
				began := time.Now()
				if err := stop(); err == nil {
					t.Error("stop returned no error, although a record was not sent")
				}
				if took := time.Since(began); took > c.most {
					t.Errorf("the stop took %v, want at most %v", took, c.most)
				}
				in.set(false, nil)
				_, stop = start(t, j.options(in))
				if err := stop(); err != nil {
					t.Error(err)
				}
				want(t, "after the next start", in.all(), j.lines())
			})
		})
	}
}

func TestRecordsAfterSavedCursorAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{}
		j.record("a", "b")
		_, stop := start(t, j.options(in))
		if err := stop(); err != nil {
			t.Error(err)
		}
		cursor := j.options(in).CursorFile
		kept, err := os.ReadFile(cursor)
		if err != nil {
			t.Fatal(err)
		}
		j.record("c")
		_, stop = start(t, j.options(in))
		stop()
		if err := os.WriteFile(cursor, kept, 0o600); err != nil { // as a crash would have left it
			t.Fatal(err)
		}
		_, stop = start(t, j.options(in))
		stop()
		want(t, "all, the last twice", in.all(), []string{"1 a", "2 b", "3 c", "3 c"})
	})
}

func TestCursorIsNotSavedBeforeLogIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{}
		o := j.options(in)
		j.record("a", "b")
		_, stop := start(t, o)
		synctest.Wait() // the records were sent, the cursor will be saved in a second
		aside := j.file + ".aside"
		// replace the log by a link to itself, which cannot be synced
		if err := errors.Join(os.Rename(j.file, aside), os.Symlink(j.file, j.file)); err != nil {
			t.Fatal(err)
		}
		if err := stop(); err == nil || !strings.Contains(err.Error(),
			"sync the audit log") {
			t.Errorf("stop: error %v, want that the log could not be synced", err)
		}
		if text, err := os.ReadFile(o.CursorFile); err == nil {
			t.Errorf("the cursor file is %s, want none", text)
		}
		want(t, "the received records", in.all(), []string{"1 a", "2 b"})
		if err := errors.Join(os.Remove(j.file), os.Rename(aside, j.file)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestUnreadableCursorSendsAllAgain(t *testing.T) {
	for _, text := range []string{"", "{", `{"seq":"x"}`, `{"seq":-1}`, "null x"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{}
				j.record("a", "b")
				o := j.options(in)
				if err := errors.Join(os.MkdirAll(filepath.Dir(o.CursorFile), 0o700),
					os.WriteFile(o.CursorFile, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
				_, stop := start(t, o)
				if err := stop(); err != nil {
					t.Error(err)
				}
				want(t, "the received records", in.all(), j.lines())
				if !strings.Contains(j.operatorLog.String(), "level=WARN") {
					t.Errorf("the operator's log is %q, want a warning", &j.operatorLog)
				}
			})
		})
	}
}

// rejecting returns a function that rejects each batch that has a record with one of the seqs. If
// onlyInFull is set, the function accepts the short form of these batches.
func rejecting(onlyInFull bool, seqs ...uint64) func(sink.Batch) error {
	return func(b sink.Batch) error {
		if slices.ContainsFunc(b.Records, func(r audit.Record) bool {
			return slices.Contains(seqs, r.Seq)
		}) && !(onlyInFull && b.Short) {
			return &sink.RejectedError{Err: errors.New("413 too large")}
		}
		return nil
	}
}

func TestRejectedRecordDoesNotStopSink(t *testing.T) {
	skipped := func(seq int) string {
		return fmt.Sprintf(`sink gap: sink "siem": record %d was skipped: the receiver rejected `+
			"its full form and its short form: 413 too large", seq)
	}
	for _, c := range []struct {
		name    string
		rejects func(sink.Batch) error
		missing []uint64 // seqs of the records that the receiver does not get
		records []string // records that the sink must write
	}{
		{"the short form is accepted", rejecting(true, 6), nil, nil},
		{"the short form is rejected, too", rejecting(false, 6), []uint64{6},
			[]string{skipped(6)}},
		{"two records in a row are rejected", rejecting(false, 6, 7), []uint64{6, 7}, []string{
			skipped(6),
			skipped(7)}},
		{"the sink gap record is rejected, too", rejecting(false, 6, 21), []uint64{6, 21},
			[]string{skipped(6)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{batchError: c.rejects}
				j.recordMany(20)
				s, stop := start(t, j.options(in))
				time.Sleep(5 * time.Minute)
				if got := s.Backlog(); got != 0 {
					t.Errorf("the backlog is %d records, want 0", got)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				var all []uint64
				for n := range j.log.Committed() {
					if !slices.Contains(c.missing, n+1) {
						all = append(all, n+1)
					}
				}
				if got := in.seqs(); !slices.Equal(got, all) {
					t.Errorf("the receiver got the records %v, want each of %v once", got, all)
				}
				want(t, "the sink's records", j.sinkRecords(), c.records)
			})
		})
	}
}

func TestReceiverThatRejectsEverythingIsRetried(t *testing.T) {
	for _, c := range []struct {
		name   string
		before int // records that the receiver accepts before it rejects everything
		lost   int // records that the sink skips
	}{{"it never accepted a record", 0, 0}, {"it accepted records before", 10, 8}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{}
				_, stop := start(t, j.options(in))
				j.recordMany(c.before)
				time.Sleep(time.Minute)
				in.set(false, func(int) error {
					return &sink.RejectedError{Err: errors.New("400 Bad Request")}
				})
				j.recordMany(100)
				time.Sleep(24 * time.Hour)
				in.set(false, nil)
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got, want := len(in.all()), len(j.lines())-c.lost; got != want {
					t.Errorf("the receiver got %d of %d records, want %d", got, len(j.lines()),
						want)
				}
				gaps := 0
				for _, record := range j.sinkRecords() {
					if strings.HasPrefix(record, "sink gap") {
						gaps++
					}
				}
				if gaps != c.lost || !slices.Contains(j.sinkRecords(),
					`sink lost: sink "siem": 400 Bad Request`) {
					t.Errorf("the sink's records are %q, want %d \"sink gap\" and a \"sink lost\"",
						j.sinkRecords(), c.lost)
				}
			})
		})
	}
}

func TestAcceptedRecordsOfRejectedBatchAreNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{batchError: rejecting(false, 6)}
		j.recordMany(20)
		_, stop := start(t, j.options(in))
		time.Sleep(2 * time.Second)
		if err := stop(); err == nil {
			t.Error("stop returned no error, although records were not sent")
		}
		in.mu.Lock()
		in.batchError = nil
		in.mu.Unlock()
		_, stop = start(t, j.options(in))
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(t, "all, each once", in.all(), j.lines())
	})
}

func TestRecordsRemovedBeforeSendingAreReported(t *testing.T) {
	for _, c := range []struct {
		name string
		runs bool // the sink runs while records are removed, but the receiver is down
	}{{"while Gatekit did not run the sink", false}, {"while the receiver was down", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{}
				j.log.Close()
				j.logOptions = audit.Options{SegmentBytes: 40_000, Keep: audit.Retention{Files: 1}}
				j.open()
				j.record("a", "b")
				_, stop := start(t, j.options(in))
				if err := stop(); err != nil {
					t.Error(err)
				}
				if c.runs {
					in.set(false, func(int) error { return errors.New("it is down") })
					_, stop = start(t, j.options(in))
				}
				for range 20 {
					j.recordMany(100)
					time.Sleep(2 * time.Minute)
				}
				in.set(false, nil)
				if !c.runs {
					_, stop = start(t, j.options(in))
				}
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				_, stop = start(t, j.options(in))
				if err := stop(); err != nil {
					t.Error(err)
				}
				gaps := 0
				got := in.seqs()
				for i := 1; i < len(got); i++ {
					if got[i] == got[i-1]+1 {
						continue
					}
					gaps++
					if want := fmt.Sprintf(
						`sink gap: sink "siem": records %d to %d were removed before they were sent`, got[i-1]+1, got[i]-1); !slices.Contains(j.sinkRecords(), want) {
						t.Errorf("the sink's records are %q, want %q", j.sinkRecords(), want)
					}
				}
				if last := got[len(got)-1]; gaps != 1 || last != j.log.Committed() {
					t.Errorf("the receiver has records up to %d, with %d gaps; want up to %d, "+
						"with one gap", last, gaps, j.log.Committed())
				}
			})
		})
	}
}

func TestSinkFollowsManyFilesDuringConcurrentWrites(t *testing.T) {
	for _, durability := range []audit.Durability{audit.DurabilityWrite, audit.DurabilityFsync,
		audit.DurabilityAsync} {
		t.Run(string(durability), func(t *testing.T) {
			j, in := newTestLog(t), &fakeReceiver{}
			j.log.Close()
			j.logOptions = audit.Options{SegmentBytes: 20_000, Durability: durability}
			j.open()
			_, stop := start(t, j.options(in))
			var writers sync.WaitGroup
			for range 8 {
				writers.Go(func() { j.recordMany(250) })
			}
			writers.Wait()
			if err := j.log.Close(); err != nil { // the rest is sent from the closed log
				t.Error(err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			want(t, "the received records", in.all(), j.lines())
			segments, err := audit.Segments(j.file)
			// DurabilityAsync may write all records at once, to one file
			tooFew := len(segments) < 2 && durability != audit.DurabilityAsync
			if err != nil || tooFew || len(j.lines()) != 2000 {
				t.Errorf("the log has %d files and %d records, error %v; want several files and "+
					"2000 records", len(segments), len(j.lines()), err)
			}
		})
	}
}

func TestReplacedLogIsSentFromItsStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		new    []string // reasons of the records in the new log
		reason string   // part of the reason in the "sink reset" record
	}{
		{"the new log is shorter", []string{"x"},
			"record 2 was sent, but the log ends with record 1"},
		{"the new log is as long", []string{"x", "y"},
			"record 2 differs from the record 2 that was sent"},
		{"the new log is longer", []string{"x", "y", "z"},
			"record 2 differs from the record 2 that was sent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, in := newTestLog(t), &fakeReceiver{}
				j.record("a", "b")
				_, stop := start(t, j.options(in))
				stop()
				j.log.Close()
				// remove all files of the log
				for _, path := range []string{"", ".tree", ".key", ".pub"} {
					if err := os.RemoveAll(j.file + path); err != nil {
						t.Fatal(err)
					}
				}
				j.open()
				j.record(c.new...)
				_, stop = start(t, j.options(in))
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				want(t, "the received records", in.all(), append([]string{"1 a", "2 b"},
					j.lines()...))
				want(t, "the sink's records", j.sinkRecords(),
					[]string{`sink reset: sink "siem": another log has replaced the log: ` +
						c.reason + "; all records of the new log are sent"})
			})
		})
	}
}

func TestSinkWithoutCursorBeginsWithNextRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{}
		j.record("a", "b")
		o := j.options(in)
		o.CursorFile = ""
		_, stop := start(t, o)
		j.record("c")
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(t, "the records after the start", in.all(), []string{"3 c"})
	})
}

func TestOnlyNewestWaitingCheckpointIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestLog(t)
		in := &fakeReceiver{tryError: func(int) error { return errors.New("it is down") }}
		o := j.options(in)
		o.Records, o.Checkpoints = false, true
		j.record("a")
		s, stop := start(t, o)
		s.QueueCheckpoint([]byte("first"))
		time.Sleep(time.Minute)
		for i := range 1000 {
			s.QueueCheckpoint(fmt.Append(nil, "checkpoint ", i))
		}
		in.set(false, nil)
		time.Sleep(2 * time.Minute)
		s.QueueCheckpoint([]byte("last checkpoint"))
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(t, "the received records", in.all(), []string{"checkpoint 999", "last checkpoint"})
		if records := j.sinkRecords(); len(records) != 2 || !strings.Contains(records[0],
			`checkpoints to sink "siem"`) {
			t.Errorf("the sink's records are %q, want two, the first about checkpoints", records)
		}
	})
}

func TestSinkWithoutCheckpointsSendsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{}
		s, stop := start(t, j.options(in))
		s.QueueCheckpoint([]byte("none"))
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(t, "the received records", in.all(), nil)
	})
}

func TestUnreadableLogIsReportedAndReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, in := newTestLog(t), &fakeReceiver{}
		j.record("a", "b", "c")
		whole, err := os.ReadFile(j.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(j.file, bytes.Replace(whole, []byte(`{"seq":2,`),
			[]byte(`{"seq":x,`), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		o := j.options(in)
		o.RecordEvent = nil // an event would be written to a damaged file
		_, stop := start(t, o)
		time.Sleep(time.Minute)
		if err := os.WriteFile(j.file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(t, "the received records", in.all(), j.lines())
		if text := j.operatorLog.String(); strings.Count(text, "level=ERROR") != 1 ||
			!strings.Contains(text, "gatekit.jsonl:2:") {
			t.Errorf("the operator's log has\n%swant one error with the file and line", text)
		}
	})
}

func contextFor(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
