package cluster

import (
	"encoding/base64"
	"net/http"
	"sync"
	"time"
)

// headerAbout is the header of an answer in which the owner describes itself. The connection has
// proved that the owner is a replica. Forward removes the header.
const headerAbout = "Gatekit-About"

// Two replicas tell each other about themselves at most once in aboutInterval.
const aboutInterval = 5 * time.Minute

// Bounds of what replicas tell each other.
const (
	maxAbout = 16 << 10 // bytes
	maxTold  = 1024     // replicas
)

// toldReplicas remembers when this replica has told others about itself. The zero value is empty.
type toldReplicas struct {
	mu   sync.Mutex
	last map[string]time.Time // by address
}

// isDue reports whether the replica at the address has not been told for aboutInterval.
func (t *toldReplicas) isDue(address string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.last[address]
	return !ok || now.Sub(last) >= aboutInterval
}

// add remembers that the replica at the address was told.
func (t *toldReplicas) add(address string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last) >= maxTold {
		t.last = map[string]time.Time{}
	}
	t.last[address] = now
}

// about returns what the owner is told with the next request, or nil.
func (r *Replica) about(owner string) []byte {
	if r.o.Describe == nil || !r.told.isDue(owner, time.Now()) {
		return nil
	}
	return r.o.Describe()
}

// answerAbout keeps what the replica that forwards tells about itself, and tells it about this one.
// So the record of what was told comes before the records of the forwarded request.
func (r *Replica) answerAbout(w http.ResponseWriter, about []byte) {
	if len(about) == 0 || len(about) > maxAbout || r.o.Meet == nil {
		return
	}
	r.o.Meet(about)
	if own := r.o.Describe(); own != nil {
		w.Header().Set(headerAbout, base64.StdEncoding.EncodeToString(own))
	}
}

// meetOwner takes what the owner tells about itself out of its answer. told reports whether this
// replica has told the owner about itself.
func (r *Replica) meetOwner(owner string, told bool, answer http.Header) {
	value := answer.Get(headerAbout)
	answer.Del(headerAbout)
	if !told {
		return
	}
	r.told.add(owner, time.Now())
	about, err := base64.StdEncoding.DecodeString(value)
	if err == nil && len(about) > 0 && len(about) <= maxAbout {
		r.o.Meet(about)
	}
}
