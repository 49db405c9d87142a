package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gatekit/audit"
	"gatekit/audit/fleet"
	"gatekit/policies"
	"gatekit/transport/console"
)

// maxConsoleLogs is the number of logs that a console shows. A position in all of them fits into a
// URL.
const maxConsoleLogs = 100

// consoleFleet has the logs in the folders below dir, for all pages of gatekit console --fleet. It
// writes nothing. The logs may grow, and folders may come and go.
type consoleFleet struct {
	dir string
	// policies loads the policies that explain records
	policies  func(context.Context) (*policies.Stage, error)
	explainer chan struct{} // as in consoleRecordDetails

	mu   sync.Mutex
	at   time.Time // when the folders were listed
	logs []*fleetLog
}

// fleetLog is the log of one replica.
type fleetLog struct {
	fleet.Log
	id      string // in positions
	end     *logEnd
	traffic *consoleTraffic

	// of consoleFleetAudit, which guards them
	verified audit.ResumableVerification
	state    console.AuditState
}

func newConsoleFleet(dir string,
	load func(context.Context) (*policies.Stage, error)) *consoleFleet {
	return &consoleFleet{dir: dir, policies: load, explainer: make(chan struct{}, 1)}
}

// list returns the logs that are there, as they were at most newLogsInterval ago.
func (f *consoleFleet) list() ([]*fleetLog, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.at.IsZero() && time.Since(f.at) < newLogsInterval {
		return f.logs, nil
	}
	found, err := fleet.Logs(f.dir)
	if err != nil {
		return nil, err
	}
	if len(found) > maxConsoleLogs {
		return nil, fmt.Errorf("there are %d folders in %s, and the console shows the logs of at "+
			"most %d\nhint: link some of them into another folder", len(found), f.dir,
			maxConsoleLogs)
	}
	logs := make([]*fleetLog, len(found))
	for i, l := range found {
		if known := slices.IndexFunc(f.logs, func(k *fleetLog) bool {
			return k.Log == l
		}); known >= 0 {
			logs[i] = f.logs[known]
		} else {
			logs[i] = newFleetLog(l)
		}
	}
	f.logs, f.at = logs, time.Now()
	return logs, nil
}

func newFleetLog(l fleet.Log) *fleetLog {
	hash := sha256.Sum256([]byte(filepath.Base(l.Dir)))
	end := &logEnd{file: l.File}
	traffic := newConsoleTraffic(l.File, end.committed)
	traffic.replica = l.Name
	return &fleetLog{Log: l, id: hex.EncodeToString(hash[:4]), end: end, traffic: traffic,
		verified: audit.ResumableVerification{Verification: audit.Verification{File: l.File}}}
}

// find returns the log of a replica.
func (f *consoleFleet) find(replica string) (*fleetLog, error) {
	logs, err := f.list()
	if err != nil {
		return nil, err
	}
	all := make([]fleet.Log, len(logs))
	for i, l := range logs {
		all[i] = l.Log
	}
	found, err := fleet.Find(all, replica)
	if err != nil {
		return nil, err
	}
	return logs[slices.Index(all, found)], nil
}

// selected returns the logs of one replica or, if the replica is "", of all.
func (f *consoleFleet) selected(replica string) ([]*fleetLog, error) {
	if replica == "" {
		return f.list()
	}
	l, err := f.find(replica)
	if err != nil {
		return nil, err
	}
	return []*fleetLog{l}, nil
}

// Records implements console.FleetRecords.
func (f *consoleFleet) Records(replica string) (console.Records, error) {
	l, err := f.find(replica)
	if err != nil {
		return nil, err
	}
	return &consoleRecordDetails{file: l.File, committed: l.end.committed,
		policies: f.policies, explainer: f.explainer}, nil
}

// stats returns what consoleStats counts.
func (f *consoleFleet) stats() (statsSource, error) {
	logs, err := f.list()
	if err != nil {
		return statsSource{}, err
	}
	s, through := statsSource{}, positions{}
	for _, l := range logs {
		if through[l.id], err = l.end.read(); err != nil {
			s.failures = append(s.failures, l.failure(err))
			continue
		}
		s.logs = append(s.logs, auditLog{file: l.File, replica: l.Name})
	}
	s.through = through.String()
	return s, nil
}

// failure describes why a log cannot be read.
func (l *fleetLog) failure(err error) string {
	return fmt.Sprintf("The log of %s cannot be read: %v", l.Name, err)
}

// logEnd finds the end of a log that another process writes, or that is a copy. It is safe for
// concurrent use.
type logEnd struct {
	file string // "" if the folder has no log

	mu   sync.Mutex
	info os.FileInfo // of the active file when seq was read; nil if it was not there
	seq  uint64
}

// read returns the seq of the last complete record. It reads the log only if the active file has
// changed.
func (e *logEnd) read() (uint64, error) {
	if e.file == "" {
		return 0, errors.New("its folder has no audit log\nhint: copy the log with all files " +
			"beside it: gatekit.jsonl, its segments, gatekit.jsonl.tree and gatekit.jsonl.pub")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	info, err := os.Stat(e.file)
	if err != nil {
		info = nil
	}
	if info != nil && e.info != nil && os.SameFile(info, e.info) &&
		info.Size() == e.info.Size() && info.ModTime().Equal(e.info.ModTime()) {
		return e.seq, nil
	}
	seq, err := audit.LastSeq(e.file)
	if err != nil {
		return 0, err
	}
	e.seq, e.info = seq, info
	return seq, nil
}

// committed returns the seq of the last complete record. If it cannot be read now, committed
// returns the last one that was read.
func (e *logEnd) committed() uint64 {
	if seq, err := e.read(); err == nil {
		return seq
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seq
}

// positions are positions in several logs, by fleetLog.id.
type positions map[string]uint64

// String returns the positions as parsePositions parses them. It needs no escapes in a URL.
func (p positions) String() string {
	texts := make([]string, 0, len(p))
	for id, seq := range p {
		texts = append(texts, fmt.Sprintf("%s-%d", id, seq))
	}
	slices.Sort(texts)
	return strings.Join(texts, ".")
}

func parsePositions(text string) (positions, error) {
	p := positions{}
	if text == "" {
		return p, nil
	}
	for one := range strings.SplitSeq(text, ".") {
		id, number, _ := strings.Cut(one, "-")
		seq, err := strconv.ParseUint(number, 10, 63)
		if err != nil || len(p) == maxConsoleLogs {
			return nil, fmt.Errorf("the position %q in the address of this page is wrong\n"+
				"hint: open the page Traffic again", one)
		}
		p[id] = seq
	}
	return p, nil
}
