package pins

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/atomicfile"
	"gatekit/core/privatefiles"
)

// Bounds of what waits.
const (
	maxSeen         = 1000      // items of one server
	maxSeenBytes    = 256 << 10 // of one definition
	maxWaitingBytes = 16 << 20  // of the file
)

// Waiting holds the definitions that servers declared without an approval, by server.
type Waiting struct {
	Lock    string                    `json:"lock"`             // the path of the lock file
	Log     string                    `json:"log,omitzero"`     // the audit log of the last writer
	LogKey  string                    `json:"log_key,omitzero"` // of this log; "" for the default
	Servers map[string]*WaitingServer `json:"servers,omitempty"`
}

// WaitingServer is a server with definitions that wait for an approval.
type WaitingServer struct {
	Start   Start  `json:"launch,omitzero"`
	Package Source `json:"package,omitzero"`
	Moved   bool   `json:"moved,omitzero"`  // the launch or the package is not as approved
	Items   []Seen `json:"items,omitempty"` // sorted by kind and name
}

// Seen is a definition without an approval, as it was seen last.
type Seen struct {
	Kind       Kind           `json:"kind"`
	Name       string         `json:"name,omitzero"`
	Digest     string         `json:"digest"`
	Definition jsontext.Value `json:"definition"`
	Varies     []string       `json:"varies,omitempty"`
	Rejected   bool           `json:"rejected,omitzero"` // it stays held back, and no longer waits
}

// Item returns the definition. It returns an error if the digest does not match.
func (s *Seen) Item() (*Item, error) {
	return (&fileItem{s.Digest, s.Definition, s.Varies}).item(s.Kind, s.Name)
}

// seenItem returns i as it is kept. ok is false if it is too large to be kept.
func seenItem(i *Item) (seen Seen, ok bool) {
	seen = Seen{Kind: i.kind, Name: i.Name(), Digest: i.digest, Definition: i.Definition(),
		Varies: i.varies}
	return seen, len(seen.Definition) <= maxSeenBytes
}

// Find returns the item with a kind and a name, or nil.
func (s *WaitingServer) Find(kind Kind, name string) *Seen {
	i := slices.IndexFunc(s.Items, func(i Seen) bool { return i.Kind == kind && i.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Items[i]
}

// put adds or replaces an item. It adds nothing if the server has too many items.
func (s *WaitingServer) put(item Seen) {
	if old := s.Find(item.Kind, item.Name); old != nil {
		item.Rejected = old.Rejected && old.Digest == item.Digest
		*old = item
		return
	}
	if len(s.Items) < maxSeen {
		s.Items = append(s.Items, item)
	}
}

// Remove removes an item.
func (s *WaitingServer) Remove(kind Kind, name string) {
	s.Items = slices.DeleteFunc(s.Items, func(i Seen) bool {
		return i.Kind == kind && i.Name == name
	})
}

// Live returns what the server declares, as far as it is known: approved, with what was seen last
// and was not rejected, and with the launch and the package that were seen. approved may be nil.
func (s *WaitingServer) Live(approved *Server) (*Server, error) {
	live := &Server{Start: s.Start, Package: s.Package}
	if approved != nil {
		live.ServerInfo, live.Capabilities = approved.ServerInfo, approved.Capabilities
		live.Instructions = approved.Instructions
		for _, i := range approved.Items() {
			if s.Find(i.kind, i.Name()) == nil || s.Find(i.kind, i.Name()).Rejected {
				live.Add(i)
			}
		}
	}
	for _, seen := range s.Items {
		if seen.Rejected {
			continue
		}
		i, err := seen.Item()
		if err != nil {
			return nil, err
		}
		live.Add(i)
	}
	return live, nil
}

// WaitingStore is the file with what waits for one lock file. Only one user can read it. Several
// processes may use it at the same time.
type WaitingStore struct {
	Dir  string // created when it is first needed
	Name string // of the file in the folder
	Lock string // the path of the lock file
	// the audit log of this process, and its key; "" for a command that only reads
	Log, LogKey string
}

func (s *WaitingStore) folder() privatefiles.Folder {
	return privatefiles.Folder{Path: s.Dir, Danger: "approve what servers declare"}
}

// Read returns what waits. It is empty if there is no file.
func (s *WaitingStore) Read() (*Waiting, error) {
	w := &Waiting{Lock: s.Lock, Servers: map[string]*WaitingServer{}}
	err := s.folder().Check()
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	var b []byte
	if err == nil {
		b, err = s.folder().Read(s.Name, maxWaitingBytes+1)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return w, nil
	case err != nil:
		return nil, fmt.Errorf("read what waits for approval: %w", err)
	}
	if err := json.Unmarshal(b, w, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("read what waits for approval: %s: %w\nhint: remove the file; "+
			"Gatekit writes it again", filepath.Join(s.Dir, s.Name), err)
	}
	if w.Servers == nil {
		w.Servers = map[string]*WaitingServer{}
	}
	for name, server := range w.Servers {
		if server == nil {
			delete(w.Servers, name)
		}
	}
	return w, nil
}

// Update reads the file, calls change, and writes the file if it is not the same. A file that
// cannot be parsed is replaced: Gatekit sees again what waits.
func (s *WaitingStore) Update(change func(*Waiting)) error {
	if err := s.folder().Create(); err != nil {
		return fmt.Errorf("keep what waits for approval: %w", err)
	}
	folder, err := os.Open(s.Dir)
	if err != nil {
		return fmt.Errorf("keep what waits for approval: %w", err)
	}
	defer folder.Close()
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", s.Dir, err)
	}
	w, err := s.Read()
	if err != nil {
		w = &Waiting{Servers: map[string]*WaitingServer{}}
	}
	before, beforeErr := json.Marshal(w, json.Deterministic(true))
	change(w)
	w.Lock = s.Lock
	if s.Log != "" {
		w.Log, w.LogKey = s.Log, s.LogKey
	}
	for name, server := range w.Servers {
		slices.SortFunc(server.Items, func(a, b Seen) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
		if len(server.Items) == 0 && !server.Moved {
			delete(w.Servers, name)
		}
	}
	after, afterErr := json.Marshal(w, json.Deterministic(true))
	if err := errors.Join(beforeErr, afterErr); err != nil {
		return fmt.Errorf("keep what waits for approval: %w", err)
	}
	if bytes.Equal(before, after) && err == nil {
		return nil
	}
	if len(after) > maxWaitingBytes {
		return fmt.Errorf("keep what waits for approval: more than %d bytes", maxWaitingBytes)
	}
	if err := atomicfile.WriteUnsynced(filepath.Join(s.Dir, s.Name), after); err != nil {
		return fmt.Errorf("keep what waits for approval: %w", err)
	}
	return nil
}
