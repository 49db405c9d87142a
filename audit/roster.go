package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"

	"gatekit/core/atomicfile"
	"gatekit/core/pipeline"
)

// RosterEntry describes the log of one replica of a cluster.
type RosterEntry struct {
	Replica string `json:"replica"` // the replica's configured name
	// origin of the log; "" if the replica is known only from the configuration
	Origin string    `json:"origin,omitempty"`
	Key    string    `json:"key,omitempty"`  // public key of the log: NAME+ID+KEY
	Since  time.Time `json:"since,omitzero"` // when the replica's process opened the log
	// the newest checkpoint of the log that the writer of the entry knows, a signed note; "" in an
	// entry about the writer's own log
	Checkpoint string `json:"checkpoint,omitempty"`
}

const (
	maxRoster         = 256             // entries of a roster
	maxReplicaName    = 256             // bytes of a replica's name
	maxRosterNote     = 4 << 10         // bytes of a checkpoint in an entry
	maxOrigin         = 1 << 10         // bytes of an origin or a key in an entry
	rosterMinInterval = 5 * time.Minute // between two records about the growth of the same log
)

// open checks an entry that another replica sent. It returns the entry's checkpoint, or nil if the
// entry has none.
func (e *RosterEntry) open() (*Checkpoint, error) {
	if e.Replica == "" || len(e.Replica) > maxReplicaName || e.Origin == "" ||
		len(e.Origin) > maxOrigin || len(e.Key) > maxOrigin ||
		len(e.Checkpoint) > maxRosterNote {
		return nil, errors.New("the name, origin, key or checkpoint is missing or too long")
	}
	key, err := note.NewVerifier(e.Key)
	if err != nil {
		return nil, fmt.Errorf("its public key is invalid: %w", err)
	}
	if e.Checkpoint == "" {
		return nil, nil
	}
	c, err := OpenCheckpoint([]byte(e.Checkpoint), key)
	if err == nil && c.Origin != e.Origin {
		err = fmt.Errorf("its checkpoint is of the log %s, not of %s", c.Origin, e.Origin)
	}
	return c, err
}

// roster holds the entries of all replicas that a log knows. It is kept in a file, so that a
// replica still knows the others after a restart.
type roster struct {
	path string

	mu       sync.Mutex
	own      RosterEntry
	others   []RosterEntry // sorted by replica; at most one for each name
	recorded map[string]time.Time
}

// openRoster returns the roster of a log that belongs to the replica with this name. peers are the
// names of all replicas that the configuration has.
func openRoster(file, origin, replica string, peers []string) (*roster, error) {
	key, err := readFile(PublicKeyFile(file))
	if err != nil {
		return nil, err
	}
	r := &roster{path: rosterFile(file), recorded: map[string]time.Time{},
		own: RosterEntry{Replica: replica, Origin: origin, Since: time.Now().UTC(),
			Key: strings.TrimSpace(string(key))}}
	known, err := readRoster(r.path)
	if err != nil {
		return nil, err
	}
	for _, e := range known {
		if e.Replica != replica && e.Origin != "" { // the configuration may have changed
			r.put(e)
		}
	}
	for _, name := range peers {
		if _, found := r.find(name); name != replica && !found {
			r.put(RosterEntry{Replica: name})
		}
	}
	return r, r.save()
}

// rosterFile returns the path of the file that keeps the roster of a log.
func rosterFile(file string) string { return filepath.Join(file+".tree", "roster") }

// readRoster reads a roster file. A file that does not exist is an empty roster.
func readRoster(path string) (entries []RosterEntry, err error) {
	b, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &entries)
	}
	if err != nil {
		return nil, fmt.Errorf("read the roster of replicas %s: %w\nhint: remove the file; the "+
			"replica then learns again which others there are", path, err)
	}
	return entries, nil
}

// ReplicaName returns the name of the replica that writes a log, from a file beside the log. It
// returns "" if the log does not belong to a replica. Anybody who can write to the log's folder can
// change that file. The records with the action "roster" have the name, too.
func ReplicaName(file string) string {
	entries, err := readRoster(rosterFile(file))
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Replica
}

func (r *roster) find(replica string) (int, bool) {
	return slices.BinarySearchFunc(r.others, replica, func(e RosterEntry, name string) int {
		return strings.Compare(e.Replica, name)
	})
}

// put replaces the entry with the same name. If there is none, it adds the entry if there is room.
func (r *roster) put(e RosterEntry) {
	if i, found := r.find(e.Replica); found {
		r.others[i] = e
	} else if r.hasRoom() {
		r.others = slices.Insert(r.others, i, e)
	}
}

func (r *roster) hasRoom() bool { return len(r.others) < maxRoster-1 }

// entries returns the whole roster, the log's own entry first.
func (r *roster) entries() []RosterEntry {
	return append([]RosterEntry{r.own}, r.others...)
}

func (r *roster) save() error {
	b, err := json.Marshal(r.entries())
	if err != nil {
		return err
	}
	return atomicfile.Write(r.path, append(b, '\n'))
}

// recordRoster writes a record with the entries.
func (l *Log) recordRoster(reason string, entries []RosterEntry) error {
	members, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	e := l.encode(pipeline.Outcome{Time: time.Now(), Action: "roster", Reason: reason})
	e.rest = append(append(append(e.rest[:len(e.rest)-1], `,"roster":`...), members...), '}')
	_, err = l.record(e)
	return err
}

// startRoster opens the roster and records it.
func (l *Log) startRoster(o Options) (err error) {
	if o.Replica == "" {
		return nil
	}
	if l.roster, err = openRoster(o.File, l.maintenance.origin, o.Replica, o.Peers); err != nil {
		return err
	}
	return l.recordRoster("the replicas that this one knows at its start", l.roster.entries())
}

// RosterEntry returns the entry of this log for the rosters of other replicas, with the last
// checkpoint. ok is false if the log does not belong to a replica, or its checkpoint cannot be
// read.
func (l *Log) RosterEntry() (e RosterEntry, ok bool) {
	if l.roster == nil {
		return RosterEntry{}, false
	}
	e = l.roster.own
	signed, err := readFile(filepath.Join(l.maintenance.dir, "checkpoint"))
	e.Checkpoint = string(signed)
	return e, err == nil
}

// Meet adds the log of another replica to the roster. It writes a record with the action "roster"
// if the log, its key or its process is new, or if the log has grown and the last such record is
// at least five minutes old. If the checkpoint in e contradicts the known one, because both cover
// equally many records and have different roots, Meet always writes a record. The record then has
// both checkpoints, which prove that the other log was forked. An entry that is not signed with its
// own key is refused. Meet is safe for concurrent use.
func (l *Log) Meet(e RosterEntry) error {
	r := l.roster
	if r == nil {
		return errors.New("this audit log does not belong to a replica")
	}
	c, err := e.open()
	if err != nil {
		return fmt.Errorf("the log of replica %q: %w", e.Replica, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Replica == r.own.Replica || e.Origin == r.own.Origin {
		return fmt.Errorf("replica %q has the name or the log of this one, %q\nhint: each replica "+
			"needs its own name in [cluster] and its own log", e.Replica, r.own.Replica)
	}
	var known RosterEntry
	if i, found := r.find(e.Replica); found {
		known = r.others[i]
	}
	var before *Checkpoint
	if known.Origin == e.Origin {
		if known.Key != e.Key {
			return fmt.Errorf("the log %s of replica %q had the key %s before, and now has %s",
				e.Origin, e.Replica, known.Key, e.Key)
		}
		if before, err = known.open(); err != nil {
			return fmt.Errorf("the roster's entry of replica %q: %w", e.Replica, err)
		}
	}
	reason := fmt.Sprintf("the log of replica %q", e.Replica)
	now := time.Now()
	switch {
	case before != nil && c != nil && c.Size == before.Size && c.Root != before.Root:
		return l.recordRoster(reason+" has two different histories: it was forked",
			[]RosterEntry{known, e})
	case known.Origin != e.Origin || !known.Since.Equal(e.Since):
	case c == nil || before != nil && c.Size <= before.Size,
		now.Sub(r.recorded[e.Replica]) < rosterMinInterval:
		return nil
	}
	if _, found := r.find(e.Replica); !found && !r.hasRoom() {
		return fmt.Errorf("replica %q is not added to the roster, which has %d replicas already",
			e.Replica, maxRoster)
	}
	if err := l.recordRoster(reason, []RosterEntry{e}); err != nil {
		return err
	}
	if before != nil && (c == nil || c.Size < before.Size) {
		e.Checkpoint = known.Checkpoint // an older state proves less
	}
	r.put(e)
	r.recorded[e.Replica] = now
	return r.save()
}
