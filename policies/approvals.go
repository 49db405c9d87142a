package policies

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/privatefiles"
	"gatekit/core/shared"
)

// Approvals stores the requests that wait for a human's approval, and the approved requests: in
// files, or in the state that replicas share. `gatekit approve` and a running Gatekit both use
// them. What is stored has the facts that a human needs to decide: the principal, the server, the
// method, the name and the reason, even if the audit log redacts them. It expires after ten
// minutes. The arguments of a request are not stored: only a digest of them is part of the
// request's id. Approvals implements proxy.Approvals.
type Approvals struct {
	// a folder that only its owner can enter, with a file for each request; created when it is
	// first needed
	Dir string
	// Shared has the requests instead, if it is not nil. Then any replica can approve a request and
	// use the approval, and Log is not stored.
	Shared shared.Values
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
	// for the default key. Both are "" in shared state.
	Log    string `json:"log,omitempty"`
	LogKey string `json:"log_key,omitempty"`

	generation uint64 // of the shared value
}

// Bounds of approvals.
const (
	// the time in which a human must approve, and then the time in which the client must retry
	pendingFor            = 10 * time.Minute
	maxPending            = 1000
	maxPendingOfPrincipal = 100 // so that no principal can use up all of maxPending
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

// store returns where the requests are.
func (a *Approvals) store() approvalStore {
	if a.Shared != nil {
		return sharedApprovals{a.Shared}
	}
	return approvalFiles{privatefiles.Folder{Path: a.Dir, Danger: "approve requests"}}
}

// Consume implements proxy.Approvals. If several callers in one or more processes consume an
// approval at the same time, only one of the calls returns true.
func (a *Approvals) Consume(m *mcp.Message) bool {
	id, err := a.id(m)
	if err != nil {
		return false
	}
	return a.store().take(id, func(p PendingApproval) bool {
		return p.Approved && !a.now().After(p.Expires)
	})
}

// Submit implements proxy.Approvals. instruction tells the client's user what to do next.
func (a *Approvals) Submit(m *mcp.Message, reason, values string) (instruction string,
	err error) {
	id, err := a.id(m)
	if err != nil {
		return "", err
	}
	p := PendingApproval{ID: id, Principal: m.Principal.ID(), Server: m.Server, Method: m.Method,
		Name: m.Name, Reason: reason, Values: values, Log: a.Log, LogKey: a.LogKey}
	if a.Shared != nil { // any replica may record the approval, in a log of its own
		p.Log, p.LogKey = "", ""
	}
	err = retryChanged(func() error {
		instruction, err = a.submit(p)
		return err
	})
	return instruction, err
}

func (a *Approvals) submit(p PendingApproval) (instruction string, err error) {
	all, err := a.List()
	if err != nil {
		return "", err
	}
	submitted, own := false, 0
	for _, other := range all {
		if other.ID == p.ID && other.Approved { // approved after Consume returned false
			return "approved in the meantime: retry", nil
		}
		if other.ID == p.ID {
			submitted, p.generation = true, other.generation
		}
		if other.Principal == p.Principal {
			own++
		}
	}
	if !submitted && (len(all) >= maxPending || own >= maxPendingOfPrincipal) {
		return "", errors.New("too many requests wait for approval\nhint: `gatekit approve` " +
			"lists them; each expires after ten minutes")
	}
	p.Expires = a.now().Add(pendingFor)
	if err := a.store().put(p); err != nil {
		return "", err
	}
	return fmt.Sprintf("needs approval: run `gatekit approve %s` within %d minutes, then retry",
		p.ID, pendingFor/time.Minute), nil
}

// List returns the waiting and the approved requests that have not expired, in the order of their
// expiry.
func (a *Approvals) List() (all []PendingApproval, err error) {
	all, err = a.store().list(func(p PendingApproval) bool { return !a.now().After(p.Expires) })
	slices.SortFunc(all, func(a, b PendingApproval) int { return a.Expires.Compare(b.Expires) })
	return all, err
}

// Approve approves a waiting request for one call, and returns the request. The caller must have
// recorded the approval before.
func (a *Approvals) Approve(id string) (approved PendingApproval, err error) {
	err = retryChanged(func() error {
		if approved, err = a.Pending(id); err != nil {
			return err
		}
		approved.Approved, approved.Expires = true, a.now().Add(pendingFor)
		return a.store().put(approved)
	})
	return approved, err
}

// Pending returns a request that waits for approval, or was approved.
func (a *Approvals) Pending(id string) (PendingApproval, error) {
	if !approvalID.MatchString(id) {
		return PendingApproval{},
			fmt.Errorf("%q is not the id of a request: the id is in the error "+
				"that the client got, and `gatekit approve` lists the requests that wait", id)
	}
	p, err := a.store().get(id)
	if errors.Is(err, fs.ErrNotExist) || err == nil && a.now().After(p.Expires) {
		return PendingApproval{}, fmt.Errorf("no request %s waits for approval: it expired after "+
			"%d minutes, or was retried\nhint: `gatekit approve` lists the requests that wait",
			id, pendingFor/time.Minute)
	}
	return p, err
}
