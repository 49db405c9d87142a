package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"gatekit/audit"
	"gatekit/audit/fleet"
	"gatekit/audit/query"
)

// auditLog is an audit log that a command reads.
type auditLog struct {
	file   string
	anchor string // the anchor file that the configuration names, or ""
	// the name of the replica that writes the log, or ""; set if the command reads the logs of
	// several replicas
	replica string
}

// logSource finds the logs that a command reads.
type logSource struct {
	config string // the value of --config
	args   []string
	fleet  string // the value of --fleet
}

// logs returns the logs that the arguments name: files, folders and patterns. Without arguments, it
// returns the log that the configuration names. Without a configuration, it returns the logs of
// gatekit wrap in the state folder. With --fleet, it returns the logs of all replicas.
func (s *logSource) logs() ([]auditLog, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.fleet != "" {
		return fleetLogs(s.fleet)
	}
	if len(s.args) > 0 {
		return s.namedLogs()
	}
	c, err := loadConfig(s.config)
	if err == nil {
		return []auditLog{{file: c.Audit.File, anchor: c.Audit.Anchor}}, nil
	}
	if s.config != "" || !errors.Is(err, errNoConfig) {
		return nil, err
	}
	dir, stateErr := stateFolder()
	if stateErr != nil {
		return nil, err
	}
	logs, stateErr := logsIn(filepath.Join(dir, "audit"))
	if stateErr != nil && !errors.Is(stateErr, fs.ErrNotExist) {
		return nil, stateErr
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("there is no audit log: the folder %s contains none, and %w",
			filepath.Join(dir, "audit"), err)
	}
	return logs, nil
}

// check returns an error if the command line has both logs and a configuration. Without this check,
// the configuration would be ignored.
func (s *logSource) check() error {
	if s.fleet != "" && (s.config != "" || len(s.args) > 0) {
		return errors.New("--fleet names all logs, so it cannot be used with FILE or --config")
	}
	if s.config == "" || len(s.args) == 0 {
		return nil
	}
	return fmt.Errorf("--config %s names a log, and the command line names another: %s\n"+
		"hint: leave out one of the two", s.config, s.args[0])
}

// one returns the log of a command that reads exactly one log. If there are several logs, it
// returns an error.
func (s *logSource) one() (auditLog, error) {
	logs, err := s.logs()
	if err != nil {
		return auditLog{}, err
	}
	if len(logs) > 1 {
		return auditLog{}, fmt.Errorf("there are %d audit logs in %s\nhint: name one of them, "+
			"such as %s", len(logs), filepath.Dir(logs[0].file), logs[len(logs)-1].file)
	}
	return logs[0], nil
}

func (s *logSource) namedLogs() (logs []auditLog, err error) {
	add := func(more ...auditLog) {
		for _, l := range more {
			if !slices.Contains(logs, l) {
				logs = append(logs, l)
			}
		}
	}
	for _, arg := range s.args {
		info, err := os.Stat(arg)
		switch {
		case err == nil && info.IsDir():
			in, err := logsIn(arg)
			if err != nil {
				return nil, err
			}
			if len(in) == 0 {
				err := fmt.Errorf("there is no audit log in the folder %s", arg)
				if _, failed := fleetLogs(arg); failed == nil {
					err = fmt.Errorf("%w\nhint: its folders have logs: --fleet %s reads them", err,
						arg)
				}
				return nil, err
			}
			add(in...)
		case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(arg, "*?["):
			files, err := filepath.Glob(arg)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", arg, err)
			}
			in := logsOf(files)
			if len(in) == 0 {
				return nil, fmt.Errorf("no audit log matches %s", arg)
			}
			add(in...)
		case len(s.args) > 1:
			// The shell may have expanded a pattern. logsOf skips files that are not logs.
			add(logsOf([]string{arg})...)
		default:
			add(auditLog{file: arg}) // the file may be a single segment of a log
		}
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("none of the files is an audit log: %s", strings.Join(s.args, ", "))
	}
	nameReplicas(logs)
	return logs, nil
}

// nameReplicas sets the replica of each log if the logs are in several folders: then each folder is
// that of another replica.
func nameReplicas(logs []auditLog) {
	folders := map[string]bool{}
	for _, l := range logs {
		folders[filepath.Dir(l.file)] = true
	}
	if len(folders) < 2 {
		return
	}
	for i, l := range logs {
		folder := filepath.Base(filepath.Dir(l.file))
		logs[i].replica = cmp.Or(audit.ReplicaName(l.file), folder)
		for _, earlier := range logs[:i] {
			if earlier.replica == logs[i].replica { // copies of one log, or a mistake
				logs[i].replica = l.file
			}
		}
	}
}

// fleetLogs returns the logs of all replicas in the folders below dir.
func fleetLogs(dir string) (logs []auditLog, err error) {
	all, err := fleet.Logs(dir)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.File != "" {
			logs = append(logs, auditLog{file: l.File, replica: l.Name})
		}
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("there is no audit log in the folders of %s", dir)
	}
	return logs, nil
}

// fleetFlag adds the flag --fleet to a command.
func fleetFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "fleet", "", "`folder` with one folder for each replica, each with "+
		"a log")
}

// recordRef is the number of a record, and the replica in whose log it is. The replica is "" if the
// command reads one log.
type recordRef struct {
	replica string
	seq     uint64
}

// parseRecordRef parses SEQ or REPLICA:SEQ.
func parseRecordRef(text string) (r recordRef, err error) {
	number := text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		r.replica, number = text[:i], text[i+1:]
	}
	if r.seq, err = strconv.ParseUint(number, 10, 63); err != nil || r.seq == 0 {
		return recordRef{}, fmt.Errorf("%q is not the number of a record (seq in the log): write "+
			"41, or gatekit-1:41 with --fleet", text)
	}
	return r, nil
}

// find returns the log in a fleet that has the record.
func (r recordRef) find(dir string) (auditLog, error) {
	all, err := fleet.Logs(dir)
	if err != nil {
		return auditLog{}, err
	}
	l, err := fleet.Find(all, r.replica)
	if err != nil && r.replica == "" {
		err = fmt.Errorf("each replica has a record %d\nhint: name the replica, such as %s:%d",
			r.seq, all[0].Name, r.seq)
	}
	return auditLog{file: l.File, replica: l.Name}, err
}

// checkFleet returns an error if the record names a replica, and there is no --fleet.
func (r recordRef) checkFleet(dir string) error {
	if r.replica != "" && dir == "" {
		return fmt.Errorf("%s:%d names a replica\nhint: name the folder with the logs of all "+
			"replicas with --fleet, or the log of the replica and only %d", r.replica, r.seq,
			r.seq)
	}
	return nil
}

// logsIn returns the logs in a folder, sorted by name.
func logsIn(dir string) ([]auditLog, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the audit logs: %w", err)
	}
	files := make([]string, len(entries))
	for i, e := range entries {
		files[i] = filepath.Join(dir, e.Name())
	}
	return logsOf(files), nil
}

var (
	segmentSuffix = regexp.MustCompile(`-[0-9]{20}(\.[^.]*)?$`)
	besideLog     = regexp.MustCompile(`\.(key|pub|lock|next|tree|sinks|tmp)$`)
)

// logsOf returns the logs that the files belong to. It skips keys, locks and other files beside a
// log.
func logsOf(files []string) (logs []auditLog) {
	for _, file := range files {
		if besideLog.MatchString(file) {
			continue
		}
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
			continue
		}
		if filepath.Ext(file) != ".jsonl" {
			if _, err := os.Stat(file + ".tree"); err != nil {
				continue
			}
		}
		log := auditLog{file: segmentSuffix.ReplaceAllString(file, "$1")}
		if !slices.Contains(logs, log) {
			logs = append(logs, log)
		}
	}
	return logs
}

// mergedLog is one of the logs that the function merge reads.
type mergedLog[T any] struct {
	start time.Time           // time of the first record; zero if it is unknown
	read  iter.Seq2[T, error] // yields the calls or records of the log

	next  func() (T, error, bool) // nil before the log is opened
	stop  func()
	value T // the next call or record
	err   error
}

// merge returns the calls or records of all logs, sorted by time. The parameter read is a function
// that returns the calls or records of one log. First, merge reads the first record of each log.
// It opens a log again only when the first record of the log is due, because there may be a log for
// each process that ever ran. An error ends only the log in which it occurs.
func merge[T any](ctx context.Context, logs []auditLog, timeOf func(T) time.Time,
	read func(log *audit.Reader, replica string) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var closed []*mergedLog[T]
		for _, l := range logs {
			closed = append(closed, &mergedLog[T]{start: startOf(ctx, l.file),
				read: read(&audit.Reader{File: l.file}, l.replica)})
		}
		slices.SortStableFunc(closed, func(a, b *mergedLog[T]) int {
			return a.start.Compare(b.start)
		})
		var open []*mergedLog[T]
		defer func() {
			for _, l := range open {
				l.stop()
			}
		}()
		// advance reads the next value of a log, and reports whether there is one.
		advance := func(l *mergedLog[T]) (more bool) {
			l.value, l.err, more = l.next()
			return more
		}
		for {
			var first *mergedLog[T]
			for _, l := range open {
				if first == nil || l.err != nil || first.err == nil &&
					timeOf(l.value).Before(timeOf(first.value)) {
					first = l
				}
			}
			if len(closed) > 0 && (first == nil || first.err == nil &&
				!closed[0].start.After(timeOf(first.value))) {
				l := closed[0]
				closed = closed[1:]
				if l.next, l.stop = iter.Pull2(l.read); advance(l) {
					open = append(open, l)
				}
				continue
			}
			if first == nil || !yield(first.value, first.err) {
				return
			}
			if first.err != nil || !advance(first) {
				first.stop()
				open = slices.DeleteFunc(open, func(l *mergedLog[T]) bool { return l == first })
			}
		}
	}
}

// startOf returns the time of the first record of a log. It returns the zero time if this record
// cannot be read.
func startOf(ctx context.Context, file string) time.Time {
	for line, err := range (&audit.Reader{File: file}).Lines(ctx) {
		if err != nil {
			break
		}
		if r, err := audit.ParseSummary(line); err == nil {
			return r.Time
		}
		break
	}
	return time.Time{}
}

// mergedCalls returns the calls in the logs, in the order of their starts.
func mergedCalls(ctx context.Context, logs []auditLog, f *query.Filter,
	o query.Options) iter.Seq2[*query.Call, error] {
	o.ByStart = true
	return merge(ctx, logs, func(c *query.Call) time.Time { return c.Start },
		func(log *audit.Reader, replica string) iter.Seq2[*query.Call, error] {
			return callsOf(query.Calls(ctx, log, f, o), replica)
		})
}

// callsOf sets the replica of the calls.
func callsOf(calls iter.Seq2[*query.Call, error], replica string) iter.Seq2[*query.Call, error] {
	return func(yield func(*query.Call, error) bool) {
		for c, err := range calls {
			if c != nil {
				c.Replica = replica
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// replicaRecord is a record, and the replica in whose log it is; "" if one log is read.
type replicaRecord struct {
	audit.Record
	replica string
}

// mergedRecords returns the records in the logs, by time.
func mergedRecords(ctx context.Context, logs []auditLog,
	f *query.Filter) iter.Seq2[replicaRecord, error] {
	return merge(ctx, logs, func(r replicaRecord) time.Time { return r.Time },
		func(log *audit.Reader, replica string) iter.Seq2[replicaRecord, error] {
			return func(yield func(replicaRecord, error) bool) {
				for r, err := range query.Records(ctx, log, f) {
					if !yield(replicaRecord{r, replica}, err) {
						return
					}
				}
			}
		})
}

// newLogsInterval is how often followCalls looks for new logs.
const newLogsInterval = time.Second

// followCalls returns the calls in the logs of a source. First it returns the calls that have
// ended, in the order of their starts. Then it returns each further call when it ends. It also
// reads logs that appear later, such as the logs of new processes of gatekit wrap.
func followCalls(ctx context.Context, source *logSource, logs []auditLog, f *query.Filter,
	o query.Options) iter.Seq2[*query.Call, error] {
	type result struct {
		log  auditLog
		call *query.Call
		err  error
		idle bool // the log was read to its end
	}
	return func(yield func(*query.Call, error) bool) {
		var reading sync.WaitGroup
		defer reading.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		results := make(chan result)
		known := map[string]bool{}
		follow := func(l auditLog) {
			known[l.file] = true
			o := o
			o.Follow = true
			send := func(r result) bool {
				select {
				case results <- r:
					return true
				case <-ctx.Done():
					return false
				}
			}
			first := true
			o.Idle = func() {
				if first {
					first = false
					send(result{log: l, idle: true})
				}
			}
			reading.Go(func() {
				for c, err := range callsOf(query.Calls(ctx, &audit.Reader{File: l.file}, f, o),
					l.replica) {
					if !send(result{log: l, call: c, err: err}) {
						return
					}
				}
			})
		}
		// The logs that have not been read to their end. Logs that appear later do not count.
		unread := map[auditLog]bool{}
		for _, l := range logs {
			unread[l] = true
			follow(l)
		}
		look := time.NewTicker(newLogsInterval)
		defer look.Stop()
		var existing []*query.Call // calls that were read before unread was empty
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				if now, err := source.logs(); err == nil {
					for _, l := range now {
						if !known[l.file] {
							follow(l)
						}
					}
				}
			case r := <-results:
				switch {
				case r.err != nil:
					if !yield(nil, r.err) {
						return
					}
					delete(unread, r.log)
				case r.idle:
					delete(unread, r.log)
				case len(unread) > 0:
					existing = append(existing, r.call)
				case !yield(r.call, nil):
					return
				}
				if len(unread) > 0 && len(existing) < maxExisting {
					continue
				}
				slices.SortStableFunc(existing, func(a, b *query.Call) int {
					return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.FirstSeq, b.FirstSeq))
				})
				for _, c := range existing {
					if !yield(c, nil) {
						return
					}
				}
				existing = nil
			}
		}
	}
}

// maxExisting bounds the calls that followCalls sorts before it returns them.
const maxExisting = 50_000
