package stop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gatekit/core/privatefiles"

	"github.com/go-json-experiment/json"
)

// Bounds of the file.
const (
	maxStops     = 1000
	maxFileBytes = 1 << 24
	fileName     = "stops.json"
)

// document is the content of the file.
type document struct {
	Version int    `json:"version"`
	Stops   []Stop `json:"stops"`
}

// Keeper keeps the stops of one Gatekit in a file, and its Gate up to date. All methods may be
// called at the same time, in several processes. A process does not notice a change of another
// one, but keeps it: its own changes are added to the file.
type Keeper struct {
	Gate Gate

	folder privatefiles.Folder

	mu    sync.Mutex // held while the stops change
	stops []Stop
	fault error // why the file cannot be used; nil if it can
	// stops everything while the stops of other replicas are not known; nil while they are
	unknown *Stop
}

// Open reads the stops in a folder. Without a folder (""), the stops end with the process. A folder
// that does not exist has none. If the file cannot be
// read, or is missing in an existing folder, everything is stopped: see Fault.
func Open(folder string) *Keeper {
	k := &Keeper{folder: privatefiles.Folder{Path: folder, Danger: "end a stop"}}
	if k.stops, k.fault = k.read(); k.fault != nil {
		k.stops = []Stop{{By: "Gatekit", At: time.Now(), Reason: "the file of the stops cannot " +
			"be read"}}
	}
	k.Gate.Set(k.stops)
	return k
}

func (k *Keeper) read() ([]Stop, error) {
	if err := k.folder.Check(); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	b, err := k.folder.Read(fileName, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it was removed", err)
	}
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(b, &d, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if d.Version != 1 {
		return nil, fmt.Errorf("it has version %d, and this Gatekit knows version 1", d.Version)
	}
	for i := range d.Stops {
		if err := d.Stops[i].Validate(); err != nil {
			return nil, err
		}
	}
	return d.Stops, nil
}

// Fault returns why everything is stopped although nobody stopped it, or nil. Resume with all ends
// this.
func (k *Keeper) Fault() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault
}

// List returns the stops in force, the oldest first. The stop of SetUnknown comes before them.
func (k *Keeper) List() []Stop {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inForce()
}

// inForce returns what the Gate refuses. k.mu must be held.
func (k *Keeper) inForce() []Stop {
	if k.unknown == nil {
		return k.stops
	}
	return append([]Stop{*k.unknown}, k.stops...)
}

// SetUnknown stops everything because other stops, which would be in force as well, are not known;
// nil ends this. It is not stored, and Resume does not end it. drained is as for Stop.
func (k *Keeper) SetUnknown(s *Stop) (drained <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown = s
	return k.Gate.Set(k.inForce())
}

// Unknown returns the stop of SetUnknown, or nil. The caller must not change it.
func (k *Keeper) Unknown() *Stop {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unknown
}

// Stop puts a stop in force, in place of an earlier one of the same scope. drained is closed when
// no message that s covers is being written. If the error is not nil and drained is not nil either,
// the stop is in force, but not on disk.
func (k *Keeper) Stop(s Stop) (drained <-chan struct{}, err error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	unlock, err := k.lock()
	if err != nil { // then it cannot be stored either; the stop holds in this process
		err = fmt.Errorf("store the stops: %w", err)
	} else {
		defer unlock()
	}
	next := slices.DeleteFunc(k.merged(), func(x Stop) bool { return x.Scope == s.Scope })
	if len(next) >= maxStops {
		return nil, fmt.Errorf("%d stops are in force already\nhint: stop everything instead",
			maxStops)
	}
	next = append(next, s)
	// on disk first: what has been refused once stays refused after a crash
	if k.fault == nil && err == nil {
		err = k.write(next)
	} // otherwise the file stays unreadable, which stops everything
	k.stops = next
	return k.Gate.Set(k.inForce()), err
}

// lock creates the folder, and keeps other processes from changing the file.
func (k *Keeper) lock() (unlock func(), err error) {
	if k.folder.Path == "" {
		return func() {}, nil
	}
	if err := k.folder.Create(); err != nil {
		return nil, err
	}
	f, err := os.Open(k.folder.Path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// merged returns the stops of this process and those that another process has stored since. If the
// file cannot be read now, these are only the stops of this process.
func (k *Keeper) merged() []Stop {
	all := slices.Clone(k.stops)
	stored, _ := k.read()
	for _, s := range stored {
		if !slices.ContainsFunc(all, func(x Stop) bool { return x.Scope == s.Scope }) {
			all = append(all, s)
		}
	}
	return all
}

// NotStopped is the error of Resume if there is no stop of the scope.
type NotStopped struct {
	Scope   Scope
	InForce []Stop
}

func (e *NotStopped) Error() string {
	if len(e.InForce) == 0 {
		return "nothing is stopped"
	}
	var scopes []string
	for i := range e.InForce[:min(len(e.InForce), 10)] {
		scopes = append(scopes, e.InForce[i].Scope.String())
	}
	return fmt.Sprintf("there is no stop of %s; stopped: %s\nhint: name one of these scopes, or "+
		"give --all", e.Scope, strings.Join(scopes, "; "))
}

// Resume ends the stop of exactly this scope, or every stop if all is true. It calls record with
// the stops that will end, before anything else changes; an error of record leaves the stops in
// force. When Resume returns nil, the file no longer has these stops. If the file cannot be
// written, the stops stay in force.
func (k *Keeper) Resume(scope Scope, all bool, record func([]Stop) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.folder.Check(); len(k.stops) == 0 && errors.Is(err, fs.ErrNotExist) {
		return &NotStopped{Scope: scope} // a folder without a file would mean a stop
	}
	unlock, err := k.lock()
	if err != nil {
		return fmt.Errorf("store the stops: %w", err)
	}
	defer unlock()
	var next, ended []Stop
	for _, s := range k.merged() {
		if all || s.Scope == scope {
			ended = append(ended, s)
		} else {
			next = append(next, s)
		}
	}
	switch {
	case len(ended) == 0:
		return &NotStopped{scope, k.stops}
	case k.fault != nil && !all:
		return fmt.Errorf("the file of the stops cannot be read, so it is not known what else was "+
			"stopped: %w\nhint: gatekit resume --all ends every stop", k.fault)
	}
	if err := record(ended); err != nil {
		return fmt.Errorf("record the end of the stop: %w", err)
	}
	if err := k.write(next); err != nil {
		return err
	}
	k.stops, k.fault = next, nil
	k.Gate.Set(k.inForce())
	return nil
}

func (k *Keeper) write(stops []Stop) error {
	if k.folder.Path == "" {
		return nil
	}
	if stops == nil {
		stops = []Stop{} // [] in the file, not null
	}
	b, err := json.Marshal(document{1, stops})
	if err == nil {
		err = k.folder.Write(fileName, b)
	}
	if err != nil {
		return fmt.Errorf("store the stops: %w", err)
	}
	return nil
}
