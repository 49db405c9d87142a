package policies

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gatekit/core/atomicfile"
	"gatekit/core/mcp"
)

// Approvals are requests that wait for a human, and what humans approved: files in a folder that
// only its owner can enter, so that `gatekit approve` reaches the Gatekit that runs. A file holds
// what the request is about, by whom, and why it waits: all that a human has to see, whatever the
// audit log makes of it, until ten minutes have passed and somebody waits or looks again. Its
// arguments are in the name of the file, as a part of a digest, and nowhere else. It implements
// proxy.Approvals.
type Approvals struct {
	Dir string // made when it is first needed
	// what the servers are, by their names: those of two Gatekits that share the folder can have
	// one name, and an approval is good for one of them
	Servers map[string]string
	Now     func() time.Time // nil is the clock
}

// PendingApproval is a request that waits for a human, or was approved by one.
type PendingApproval struct {
	ID        string    `json:"-"`
	Principal string    `json:"principal,omitempty"`
	Server    string    `json:"server"`
	Method    string    `json:"method"`
	Name      string    `json:"name,omitempty"`
	Reason    string    `json:"reason"`
	Expires   time.Time `json:"until"`
	Approved  bool      `json:"approved"`
}

// Bounds of approvals.
const (
	// for a human to approve, and then for the request to be made again
	pendingFor  = 10 * time.Minute
	maxPending  = 1000
	maxOfOne    = 100 // of one principal, so that nobody keeps all others from being approved
	approvalEnd = ".json"
)

var approvalID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// id names a request: by whom, to whom, what, and what all that it says means, beside what is about
// the message itself.
func (a *Approvals) id(m *mcp.Message) (string, error) {
	said := m
	if _, ok := m.Get("/_meta"); ok {
		var err error
		if said, err = m.Edit(mcp.Remove("/_meta")); err != nil {
			return "", err
		}
	}
	meaning, err := mcp.CanonicalDigest(said.Body())
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, part := range []string{m.Principal, m.Server, a.Servers[m.Server], m.Method, m.Name,
		string(meaning)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(
		base32.NoPadding).EncodeToString(h.Sum(nil)[:16])), nil
}

func (a *Approvals) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}

func (a *Approvals) file(id string) string { return filepath.Join(a.Dir, id+approvalEnd) }

// Consume implements proxy.Approvals. The file is removed first: of two that take it, one has it.
func (a *Approvals) Consume(m *mcp.Message) bool {
	id, err := a.id(m)
	if err != nil {
		return false
	}
	p, err := a.read(id)
	if err != nil || !p.Approved || a.now().After(p.Expires) {
		return false
	}
	return os.Remove(a.file(id)) == nil
}

// Submit implements proxy.Approvals.
func (a *Approvals) Submit(m *mcp.Message, reason string) (how string, err error) {
	id, err := a.id(m)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return "", err
	}
	all, err := a.List() // which takes out those whose time is over
	if err != nil {
		return "", err
	}
	known, own := false, 0
	for _, p := range all {
		if p.ID == id && p.Approved { // since it was last asked whether it is
			return "approved in the meantime: retry", nil
		}
		known = known || p.ID == id
		if p.Principal == m.Principal {
			own++
		}
	}
	if !known && (len(all) >= maxPending || own >= maxOfOne) {
		return "", errors.New("too many requests wait for approval\nhint: `gatekit approve` " +
			"lists them; each expires after ten minutes")
	}
	err = a.write(PendingApproval{ID: id, Principal: m.Principal, Server: m.Server,
		Method: m.Method,
		Name:   m.Name, Reason: reason, Expires: a.now().Add(pendingFor)})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("needs approval: run `gatekit approve %s` within %d minutes, then retry", id,
		pendingFor/time.Minute), nil
}

// List answers the requests that wait or are approved, the oldest first.
func (a *Approvals) List() (all []PendingApproval, err error) {
	entries, err := os.ReadDir(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), approvalEnd)
		if !ok || !approvalID.MatchString(id) {
			continue
		}
		p, err := a.read(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // taken meanwhile
		case err != nil || a.now().After(p.Expires):
			os.Remove(a.file(id))
		default:
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b PendingApproval) int { return a.Expires.Compare(b.Expires) })
	return all, err
}

// Approve approves a request that waits, once. It answers what was approved.
func (a *Approvals) Approve(id string) (PendingApproval, error) {
	if !approvalID.MatchString(id) {
		return PendingApproval{},
			fmt.Errorf("%q is not the id of a request: the id is in the error "+
				"that the client got, and `gatekit approve` lists the requests that wait", id)
	}
	p, err := a.read(id)
	if errors.Is(err, fs.ErrNotExist) || err == nil && a.now().After(p.Expires) {
		return PendingApproval{}, fmt.Errorf("no request %s waits for approval: it expired after "+
			"%d minutes, or was retried\nhint: `gatekit approve` lists the requests that wait",
			id, pendingFor/time.Minute)
	}
	if err != nil {
		return PendingApproval{}, err
	}
	p.Approved, p.Expires = true, a.now().Add(pendingFor)
	return p, a.write(p)
}

func (a *Approvals) read(id string) (PendingApproval, error) {
	b, err := os.ReadFile(a.file(id))
	if err != nil {
		return PendingApproval{}, err
	}
	p := PendingApproval{ID: id}
	return p, json.Unmarshal(b, &p)
}

// write writes an approval to its file, atomically.
func (a *Approvals) write(p PendingApproval) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return atomicfile.Write(a.file(p.ID), b)
}
