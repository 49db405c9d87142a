package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"gatekit/core/privatefiles"
	"gatekit/core/shared"
)

// approvalStore keeps requests by their ids. All methods may be called at the same time.
type approvalStore interface {
	// list returns the valid requests. It may remove the others.
	list(valid func(PendingApproval) bool) ([]PendingApproval, error)
	// get returns a request. If there is none, the error is fs.ErrNotExist.
	get(id string) (PendingApproval, error)
	// put stores a request. If the shared value is no longer the one that list or get returned, the
	// error is shared.ErrChanged.
	put(p PendingApproval) error
	// take removes a valid request, and reports whether this call has removed it.
	take(id string, valid func(PendingApproval) bool) bool
}

// approvalFiles has a file for each request.
type approvalFiles struct{ folder privatefiles.Folder }

const (
	approvalSuffix  = ".json"
	maxApprovalFile = 1 << 20 // bytes
)

func (f approvalFiles) list(valid func(PendingApproval) bool) (all []PendingApproval, err error) {
	names, err := f.folder.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, approvalSuffix)
		if !ok || !approvalID.MatchString(id) {
			continue
		}
		p, err := f.read(name)
		p.ID = id
		switch {
		case errors.Is(err, fs.ErrNotExist): // taken meanwhile
		case err != nil || !valid(p):
			_ = f.folder.Remove(name)
		default:
			all = append(all, p)
		}
	}
	return all, nil
}

func (f approvalFiles) get(id string) (PendingApproval, error) {
	if err := f.folder.Check(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return PendingApproval{}, err
	}
	p, err := f.read(id + approvalSuffix)
	p.ID = id
	return p, err
}

// read reads the request in the file with this name.
func (f approvalFiles) read(name string) (p PendingApproval, err error) {
	b, err := f.folder.Read(name, maxApprovalFile)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

func (f approvalFiles) put(p PendingApproval) error {
	if err := f.folder.Create(); err != nil {
		return err
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return f.folder.Write(p.ID+approvalSuffix, b)
}

func (f approvalFiles) take(id string, valid func(PendingApproval) bool) bool {
	return f.folder.Take(id+approvalSuffix, func(name string) bool {
		p, err := f.read(name)
		return err == nil && valid(p)
	})
}

// sharedApprovals has the requests in the state that replicas share.
type sharedApprovals struct{ values shared.Values }

func approvalKey(id string) shared.Key {
	return shared.Key{Kind: "approval", Name: id, Listed: true}
}

func (s sharedApprovals) list(valid func(PendingApproval) bool) (all []PendingApproval, err error) {
	listing, err := s.values.List(context.Background(), approvalKey("").Kind, 0)
	if err != nil {
		return nil, err
	}
	for _, e := range listing.Entries {
		p, err := decodeApproval(e.Key.Name, e.Value, e.Generation)
		if err != nil {
			return nil, err
		}
		if valid(p) { // if not, the store removes it soon, by its own clock
			all = append(all, p)
		}
	}
	return all, nil
}

func (s sharedApprovals) get(id string) (PendingApproval, error) {
	b, generation, err := s.values.Get(context.Background(), approvalKey(id))
	switch {
	case err != nil:
		return PendingApproval{}, err
	case generation == 0:
		return PendingApproval{}, fs.ErrNotExist
	}
	return decodeApproval(id, b, generation)
}

func decodeApproval(id string, b []byte, generation uint64) (p PendingApproval, err error) {
	if err := json.Unmarshal(b, &p); err != nil {
		return PendingApproval{}, fmt.Errorf("shared approval %s: %w", id, err)
	}
	p.ID, p.generation = id, generation
	return p, nil
}

func (s sharedApprovals) put(p PendingApproval) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = s.values.Swap(context.Background(), approvalKey(p.ID), p.generation, b, pendingFor)
	return err
}

// take removes the request only if it is still the one that was found valid. If the store does not
// answer, the approval may be gone, and is not used.
func (s sharedApprovals) take(id string, valid func(PendingApproval) bool) bool {
	p, err := s.get(id)
	if err != nil || !valid(p) {
		return false
	}
	_, err = s.values.Swap(context.Background(), approvalKey(id), p.generation, nil, 0)
	return err == nil
}

// approvalAttempts is how often a change of a request is tried while others change it, too.
const approvalAttempts = 5

// retryChanged calls change again if it has changed nothing because others changed the request, or
// because the shared state was lost.
func retryChanged(change func() error) (err error) {
	for range approvalAttempts {
		err = change()
		if !errors.Is(err, shared.ErrChanged) && !errors.Is(err, shared.ErrLost) {
			return err
		}
	}
	return err
}
