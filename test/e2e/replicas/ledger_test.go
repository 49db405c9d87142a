package replicas

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// ledger knows which calls servers have run. Each call has an id. A server tells the ledger the id
// before it answers, and the ledger appends the id to a file and syncs the file. The ledger also
// looks for the record of the call in the audit logs of the replicas at this moment: the record
// must have been made before the call ran.
type ledger struct {
	mu         sync.Mutex
	file       *os.File
	runs       map[string]int // by id
	logs       []*logTail
	recorded   map[string]bool // ids of the calls that the logs have sent to a server
	unrecorded []string        // ids that ran without a record
}

// openLedger returns a ledger in a new folder. logs are the audit logs, which need not exist yet.
func openLedger(t *testing.T, logs ...string) *ledger {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "ran"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{file: file, runs: map[string]int{}, recorded: map[string]bool{}}
	for _, name := range logs {
		l.logs = append(l.logs, &logTail{name: name})
	}
	t.Cleanup(func() {
		file.Close()
		for _, tail := range l.logs {
			tail.close()
		}
	})
	return l
}

// ran notes that the call with this id was run.
func (l *ledger) ran(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[id]++
	if _, err := fmt.Fprintln(l.file, id); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	err := l.readLogs()
	if !l.recorded[id] {
		l.unrecorded = append(l.unrecorded, id)
	}
	return err
}

// readLogs reads what was appended to the logs. l.mu is held.
func (l *ledger) readLogs() error {
	for _, tail := range l.logs {
		err := tail.read(func(line []byte) {
			if id := sentID(line); id != "" {
				l.recorded[id] = true
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// count returns how often the call with this id was run.
func (l *ledger) count(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[id]
}

// check fails the test if a call was run twice, or before its record was made. It returns the
// number of calls that were run.
func (l *ledger) check(t *testing.T) int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, n := range l.runs {
		if n > 1 {
			t.Errorf("the call %s was run %d times", id, n)
		}
	}
	if len(l.unrecorded) > 0 {
		t.Errorf("%d calls were run before a log had their record: %v", len(l.unrecorded),
			l.unrecorded[:min(len(l.unrecorded), 20)])
	}
	return len(l.runs)
}

// ServeHTTP serves the ledger to servers in other processes: POST with the id as the body.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := io.ReadAll(r.Body)
	if err == nil {
		err = l.ran(string(id))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// remoteLedger notes an id in the ledger at a URL.
func remoteLedger(url string) func(id string) error {
	return func(id string) error {
		answer, err := http.Post(url, "text/plain", strings.NewReader(id))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}
}

// sentID returns the id of the call if a line of an audit log is the record of a call that was sent
// to a server; otherwise "".
func sentID(line []byte) string {
	if !bytes.Contains(line, []byte(`"tools/call"`)) {
		return ""
	}
	var r struct {
		Direction, Kind, Method, Action string
		After                           struct {
			Body struct{ Arguments struct{ ID string } } // the params of the request
		}
	}
	if json.Unmarshal(line, &r) != nil || r.Direction != "to_server" || r.Kind != "request" ||
		r.Method != "tools/call" || r.Action != "pass" {
		return ""
	}
	return r.After.Body.Arguments.ID
}

// logTail reads a file that grows.
type logTail struct {
	name string
	file *os.File // nil until the file exists
	rest []byte   // of a line that is not complete yet
}

// read calls line for each line that was appended since the last read.
func (l *logTail) read(line func([]byte)) error {
	if l.file == nil {
		file, err := os.Open(l.name)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		l.file = file
	}
	r := bufio.NewReaderSize(l.file, 64<<10)
	for {
		part, err := r.ReadBytes('\n')
		l.rest = append(l.rest, part...)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line(l.rest)
		l.rest = l.rest[:0]
	}
}

func (l *logTail) close() {
	if l.file != nil {
		l.file.Close()
	}
}
