package fleet

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
)

// Log is the log of one replica: one folder of a fleet.
type Log struct {
	Name string // the replica's name, or the folder's name if the log has no roster
	File string // path of the active file; "" if the folder has no log
	Dir  string // path of the folder
}

// Logs returns the logs in the folders below dir, sorted by name. Each folder must have exactly one
// log. A folder without a log has an empty File.
func Logs(dir string) ([]Log, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the logs of the fleet: %w\nhint: name a folder that has one "+
			"folder for each replica, with its log and all files beside the log", err)
	}
	var logs []Log
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path) // follows links
		if err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") ||
			strings.HasSuffix(e.Name(), ".tree") {
			continue
		}
		file, err := logIn(path)
		if err != nil {
			return nil, err
		}
		log := Log{Name: e.Name(), File: file, Dir: path}
		if file != "" {
			log.Name = cmp.Or(audit.ReplicaName(file), log.Name)
		}
		logs = append(logs, log)
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("there is no folder with a log in %s\nhint: name a folder that has "+
			"one folder for each replica", dir)
	}
	slices.SortStableFunc(logs, func(a, b Log) int { return cmp.Compare(a.Name, b.Name) })
	nameAlike(logs)
	return logs, nil
}

// nameAlike adds the name of the folder to the names that several logs have, so that each name is
// unique.
func nameAlike(logs []Log) {
	count := map[string]int{}
	for _, l := range logs {
		count[l.Name]++
	}
	for i := range logs {
		if folder := filepath.Base(logs[i].Dir); count[logs[i].Name] > 1 {
			logs[i].Name += " (" + folder + ")"
		}
	}
}

// logIn returns the log in a folder, or "" if there is none. The tree of a log is named after the
// log, and stays when the log is removed.
func logIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("list the logs of the fleet: %w", err)
	}
	var found []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".tree"); ok && e.IsDir() {
			found = append(found, filepath.Join(dir, name))
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("the folder %s has %d logs: %s\nhint: a fleet has one folder for each "+
		"log", dir, len(found), strings.Join(found, ", "))
}

// Bounds of what is kept of one log.
const (
	maxNamed = 10_000 // logs that its rosters name
	maxVias  = 10_000 // replicas that forwarded requests to it
)

// statement is an entry in a roster, with the record that has it.
type statement struct {
	audit.RosterEntry
	by  string // name of the log with the record
	seq uint64
}

// statements hold the entries and names of other replicas in one log.
type statements struct {
	named []statement       // newest for each origin and for each root
	vias  map[string]uint64 // seq of the first record that the replica forwarded, by its name
	full  bool              // there were more than maxNamed or maxVias
}

// read reads what a log says about others. It ends at the first line that cannot be read, which
// verification reports.
func read(ctx context.Context, log Log) (s statements) {
	s.vias = map[string]uint64{}
	index := map[string]int{}         // of named, by replica, origin, key and history
	own := ""                         // origin of the log, as its first roster says
	configured := map[string]uint64{} // replicas that are not met, with the record that names them
	defer func() {
		for name, seq := range configured {
			s.named = append(s.named, statement{audit.RosterEntry{Replica: name}, log.Name, seq})
		}
	}()
	roster, via := []byte(`"action":"roster"`), []byte(`,"via":"`)
	for line, err := range (&audit.Reader{File: log.File}).Lines(ctx) {
		if err != nil {
			return s
		}
		isRoster := bytes.Contains(line, roster)
		if !isRoster && !bytes.Contains(line, via) {
			continue
		}
		r, err := audit.ParseSummary(line)
		if err == nil && isRoster {
			r, err = audit.ParseRecord(bytes.Clone(line))
		}
		if err != nil {
			return s
		}
		if _, known := s.vias[r.Via]; r.Via != "" && !known {
			if s.full = s.full || len(s.vias) >= maxVias; !s.full {
				s.vias[r.Via] = r.Seq
			}
		}
		if r.Action != "roster" || len(r.Roster) == 0 {
			continue
		}
		if own = cmp.Or(own, r.Roster[0].Origin); r.Roster[0].Origin == own {
			clear(configured) // the process has started anew, maybe with another configuration
		}
		for i, e := range r.Roster {
			if e.Origin == "" {
				if s.full = s.full || len(configured) >= maxNamed; !s.full {
					configured[e.Replica] = r.Seq
				}
				continue
			}
			// Two entries of one record are two histories of one log, and both are kept.
			key := fmt.Sprintf("%s\n%s\n%s\n%t", e.Replica, e.Origin, e.Key,
				i > 0 && r.Roster[i-1].Origin == e.Origin)
			at, known := index[key]
			switch {
			case known && cmp.Compare(sizeOf(e), sizeOf(s.named[at].RosterEntry)) >= 0:
				s.named[at] = statement{e, log.Name, r.Seq}
			case known:
			case len(s.named) >= maxNamed:
				s.full = true
			default:
				index[key] = len(s.named)
				s.named = append(s.named, statement{e, log.Name, r.Seq})
			}
		}
	}
	return s
}

// open returns the checkpoint of an entry. It returns nil if there is none, or if it is not signed
// with the key of the entry.
func open(e audit.RosterEntry) *audit.Checkpoint {
	key, err := note.NewVerifier(e.Key)
	if err != nil || e.Checkpoint == "" {
		return nil
	}
	c, err := audit.OpenCheckpoint([]byte(e.Checkpoint), key)
	if err != nil || c.Origin != e.Origin {
		return nil
	}
	return c
}

// sizeOf returns the number of records that the checkpoint of an entry covers.
func sizeOf(e audit.RosterEntry) int64 {
	if c := open(e); c != nil {
		return c.Size
	}
	return 0
}
