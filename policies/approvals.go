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

// Approvals stores the requests that wait for a human's approval, and those that were approved.
// Each request is a file in a folder that only its owner can enter. `gatekit approve` and a running
// Gatekit both use this folder. A file contains the facts that a human needs to decide: the
// principal, the server, the method, the name and the reason, even if the audit log redacts them. A
// file expires after ten minutes, and the next Submit or List removes it. The arguments of a
// request are not stored: only a digest of them is part of the file's name. Approvals implements
// proxy.Approvals.
type Approvals struct {
	Dir string // created when it is first needed
	// the identity (URL or command) of each server by its name: if two Gatekits share the folder
	// and use one name for different servers, an approval is for one of these servers only
	Servers map[string]string
	Now     func() time.Time // nil means time.Now
}

// PendingApproval is a request that waits for approval, or was approved.
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
	// the time for a human to approve, and then for the client to retry
	pendingFor            = 10 * time.Minute
	maxPending            = 1000
	maxPendingOfPrincipal = 100 // so that no principal can use up all of maxPending
	approvalSuffix        = ".json"
)

var approvalID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// id returns the id of a request, which is also the name of its file: a digest of the principal,
// the server, the method, the name and the params without _meta.
func (a *Approvals) id(m *mcp.Message) (string, error) {
	withoutMeta := m
	if _, ok := m.Get("/_meta"); ok {
		var err error
		if withoutMeta, err = m.Edit(mcp.Remove("/_meta")); err != nil {
			return "", err
		}
	}
	paramsDigest, err := mcp.CanonicalDigest(withoutMeta.Body())
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, part := range []string{m.Principal, m.Server, a.Servers[m.Server], m.Method, m.Name,
		string(paramsDigest)} {
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

func (a *Approvals) file(id string) string { return filepath.Join(a.Dir, id+approvalSuffix) }

// Consume implements proxy.Approvals. It succeeds only if it has removed the file, so that only one
// of two concurrent calls succeeds.
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

// Submit implements proxy.Approvals. instruction tells the client's user what to do next.
func (a *Approvals) Submit(m *mcp.Message, reason string) (instruction string, err error) {
	id, err := a.id(m)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return "", err
	}
	all, err := a.List() // removes the expired ones
	if err != nil {
		return "", err
	}
	submitted, own := false, 0
	for _, p := range all {
		if p.ID == id && p.Approved { // after Consume returned false
			return "approved in the meantime: retry", nil
		}
		submitted = submitted || p.ID == id
		if p.Principal == m.Principal {
			own++
		}
	}
	if !submitted && (len(all) >= maxPending || own >= maxPendingOfPrincipal) {
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

// List returns the requests that wait or are approved, by their time of expiry. It removes expired
// files.
func (a *Approvals) List() (all []PendingApproval, err error) {
	entries, err := os.ReadDir(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), approvalSuffix)
		if !ok || !approvalID.MatchString(id) {
			continue
		}
		p, err := a.read(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // consumed meanwhile
		case err != nil || a.now().After(p.Expires):
			os.Remove(a.file(id))
		default:
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b PendingApproval) int { return a.Expires.Compare(b.Expires) })
	return all, err
}

// Approve approves a waiting request for one call, and returns it.
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
