package cluster

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// headerState is the header of a forwarded answer with the owner's name and state. It never reaches
// a client.
const headerState = "Gatekit-Replica-State"

// Bounds of what is kept about other replicas.
const (
	maxPeers      = 256
	maxStateBytes = 256
)

// Peer is another replica, as its last message described it.
type Peer struct {
	Name string
	// Differs is true if the state of the replica is not that of this one: another configuration,
	// or other policies.
	Differs bool
}

// peers holds the states of the other replicas, by their names. The zero value is empty.
type peers struct {
	mu     sync.Mutex
	states map[string]string
}

// Peers returns the replicas that have forwarded requests here or served requests from here since
// the start, in the order of their names. At most 256 are kept.
func (r *Replica) Peers() []Peer {
	own := r.state()
	r.peers.mu.Lock()
	defer r.peers.mu.Unlock()
	all := make([]Peer, 0, len(r.peers.states))
	for name, state := range r.peers.states {
		all = append(all, Peer{name, state != own})
	}
	slices.SortFunc(all, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// state returns the state of this replica.
func (r *Replica) state() string {
	if r.o.State == nil {
		return ""
	}
	return r.o.State()
}

// notePeer keeps the state of another replica. It logs a state that is new and differs.
func (r *Replica) notePeer(name, state string) {
	if name == "" || len(name)+len(state) > maxStateBytes {
		return
	}
	own := r.state()
	r.peers.mu.Lock()
	if r.peers.states == nil {
		r.peers.states = map[string]string{}
	}
	was, known := r.peers.states[name]
	if known || len(r.peers.states) < maxPeers {
		r.peers.states[name] = state
	}
	r.peers.mu.Unlock()
	if known && was == state {
		return
	}
	LogState(r.log, name, state, own, known)
}

// LogState logs that the state of another replica is new or has changed: if it is not that of this
// one, and if it is so again. wasKnown is set if the replica had another state before.
func LogState(log *slog.Logger, name, state, own string, wasKnown bool) {
	switch {
	case state != own:
		log.Warn("a replica has another configuration or other policies", "replica", name,
			"its", state, "own", own, "hint", "give all replicas the same gatekit.toml and "+
				"policies, also after a change: restart or reload the one that has the older ones")
	case wasKnown:
		log.Info("a replica has the same configuration and policies again", "replica", name)
	}
}

// describe adds the name and the state of this replica to a forwarded answer.
func (r *Replica) describe(h http.Header) { h.Set(headerState, r.o.Name+" "+r.state()) }

// noteAnswer keeps the state of the replica that has answered, and removes it from the answer.
func (r *Replica) noteAnswer(answer *http.Response) {
	name, state, _ := strings.Cut(answer.Header.Get(headerState), " ")
	answer.Header.Del(headerState)
	r.notePeer(name, state)
}
