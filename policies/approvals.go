package policies

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/privatefiles"
)

// Approvals stores the requests that wait for a human's approval, and the approved requests.
// Each request is a file in a folder that only the folder's owner can enter. `gatekit approve` and
// a running Gatekit both use this folder. A file contains the facts that a human needs to decide:
// the principal, the server, the method, the name and the reason, even if the audit log redacts
// them. A file expires after ten minutes, and the next Submit or List removes it. The arguments of
// a request are not stored: only a digest of them is part of the file's name. Approvals implements
// proxy.Approvals.
type Approvals struct {
	Dir string // created when it is first needed
	// the identity (URL or command) of each server, by the server's name; it is part of a request's
	// id, because two Gatekits that share the folder may use one name for different servers
	Servers map[string]string
	// the audit log of this process, in which approvals are recorded, and the key of that log
	Log, LogKey string
	Now         func() time.Time // nil means time.Now
}

// PendingApproval is a request that waits for approval, or was approved.
type PendingApproval struct {
	ID        string    `json:"-"`
	Principal string    `json:"principal,omitempty"`
	Server    string    `json:"server"`
	Method    string    `json:"method"`
	Name      string    `json:"name,omitempty"`
	Reason    string    `json:"reason"`
	Values    string    `json:"values,omitempty"` // the params; without secrets, and bounded
	Expires   time.Time `json:"until"`
	Approved  bool      `json:"approved"`
	// the audit log of the process that received the request, and the key of that log; LogKey is ""
	// for the default key
	Log    string `json:"log,omitempty"`
	LogKey string `json:"log_key,omitempty"`
}

// Bounds of approvals.
const (
	// the time in which a human must approve, and then the time in which the client must retry
	pendingFor            = 10 * time.Minute
	maxPending            = 1000
	maxPendingOfPrincipal = 100 // so that no principal can use up all of maxPending
	approvalSuffix        = ".json"
	maxApprovalFile       = 1 << 20 // bytes
)

var approvalID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// id returns the id of a request, which is also the name of the request's file. The id is a digest
// of the principal, the server, the method, the name and the params. It does not cover the progress
// token and the trace parent in _meta, because a client sends new ones when it makes the same
// request again.
func (a *Approvals) id(m *mcp.Message) (string, error) {
	paramsDigest, err := mcp.RetryDigest(m)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, part := range []string{m.Principal.ID(), m.Server, a.Servers[m.Server], m.Method, m.Name,
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

func (a *Approvals) folder() privatefiles.Folder {
	return privatefiles.Folder{Path: a.Dir, Danger: "approve requests"}
}

// Consume implements proxy.Approvals. If several callers in one or more processes consume an
// approval at the same time, only one of the calls returns true.
func (a *Approvals) Consume(m *mcp.Message) bool {
	id, err := a.id(m)
	if err != nil {
		return false
	}
	return a.folder().Take(id+approvalSuffix, func(name string) bool {
		p, err := a.read(name)
		return err == nil && p.Approved && !a.now().After(p.Expires)
	})
}

// Submit implements proxy.Approvals. instruction tells the client's user what to do next.
func (a *Approvals) Submit(m *mcp.Message, reason, values string) (instruction string,
	err error) {
	id, err := a.id(m)
	if err != nil {
		return "", err
	}
	if err := a.folder().Create(); err != nil {
		return "", err
	}
	all, err := a.List() // also removes the expired files
	if err != nil {
		return "", err
	}
	submitted, own := false, 0
	for _, p := range all {
		if p.ID == id && p.Approved { // approved after Consume returned false
			return "approved in the meantime: retry", nil
		}
		submitted = submitted || p.ID == id
		if p.Principal == m.Principal.ID() {
			own++
		}
	}
	if !submitted && (len(all) >= maxPending || own >= maxPendingOfPrincipal) {
		return "", errors.New("too many requests wait for approval\nhint: `gatekit approve` " +
			"lists them; each expires after ten minutes")
	}
	err = a.write(PendingApproval{ID: id, Principal: m.Principal.ID(), Server: m.Server,
		Method: m.Method,
		Name:   m.Name, Reason: reason, Values: values, Expires: a.now().Add(pendingFor),
		Log: a.Log, LogKey: a.LogKey})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("needs approval: run `gatekit approve %s` within %d minutes, then retry", id,
		pendingFor/time.Minute), nil
}

// List returns the waiting and the approved requests, in the order of their expiry. It removes
// expired files.
func (a *Approvals) List() (all []PendingApproval, err error) {
	names, err := a.folder().Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, approvalSuffix)
		if !ok || !approvalID.MatchString(id) {
			continue
		}
		p, err := a.read(id + approvalSuffix)
		p.ID = id
		switch {
		case errors.Is(err, fs.ErrNotExist): // consumed meanwhile
		case err != nil || a.now().After(p.Expires):
			_ = a.folder().Remove(name)
		default:
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b PendingApproval) int { return a.Expires.Compare(b.Expires) })
	return all, nil
}

// Approve approves a waiting request for one call, and returns the request. The caller must have
// recorded the approval before.
func (a *Approvals) Approve(id string) (PendingApproval, error) {
	p, err := a.Pending(id)
	if err != nil {
		return PendingApproval{}, err
	}
	p.Approved, p.Expires = true, a.now().Add(pendingFor)
	return p, a.write(p)
}

// Pending returns a request that waits for approval, or was approved.
func (a *Approvals) Pending(id string) (PendingApproval, error) {
	if !approvalID.MatchString(id) {
		return PendingApproval{},
			fmt.Errorf("%q is not the id of a request: the id is in the error "+
				"that the client got, and `gatekit approve` lists the requests that wait", id)
	}
	if err := a.folder().Check(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return PendingApproval{}, err
	}
	p, err := a.read(id + approvalSuffix)
	p.ID = id
	if errors.Is(err, fs.ErrNotExist) || err == nil && a.now().After(p.Expires) {
		return PendingApproval{}, fmt.Errorf("no request %s waits for approval: it expired after "+
			"%d minutes, or was retried\nhint: `gatekit approve` lists the requests that wait",
			id, pendingFor/time.Minute)
	}
	return p, err
}

// read reads the approval in the file with this name.
func (a *Approvals) read(name string) (p PendingApproval, err error) {
	b, err := a.folder().Read(name, maxApprovalFile)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

// write writes an approval to its file, atomically.
func (a *Approvals) write(p PendingApproval) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return a.folder().Write(p.ID+approvalSuffix, b)
}
