package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"gatekit/core/identity"
	"gatekit/core/privatefiles"

	"github.com/go-json-experiment/json"
)

// Bounds of revocations.
const (
	maxRevocations      = 10_000
	maxRevocationReason = 500     // bytes
	maxRevocationFile   = 1 << 16 // bytes
	revocationSuffix    = ".json"
)

// Revocation refuses the tokens of a principal that were issued up to a time.
type Revocation struct {
	Principal string    `json:"principal"` // ID of the principal
	At        time.Time `json:"at"`
	Reason    string    `json:"reason"`
	User      int       `json:"user"` // id of the user who revoked
	// Shared is set if the other replicas know the revocation.
	Shared bool `json:"shared,omitzero"`
}

// Validate returns an error if r cannot be stored.
func (r *Revocation) Validate() error {
	switch {
	case r.Principal == "" || len(r.Principal) > identity.MaxIDBytes ||
		!utf8.ValidString(r.Principal) || strings.ContainsFunc(r.Principal, unicode.IsControl):
		return errors.New("this is not the id of a principal\nhint: gatekit audit show " +
			"prints the ids, such as https://login.example#ann or token:ci")
	case strings.TrimSpace(r.Reason) == "":
		return errors.New("a revocation needs a reason\nhint: --reason \"the laptop is lost\"")
	case len(r.Reason) > maxRevocationReason:
		return fmt.Errorf("the reason has %d bytes; at most %d are stored", len(r.Reason),
			maxRevocationReason)
	case r.At.IsZero(): // it would refuse no token with a time of issue
		return errors.New("a revocation needs its time")
	case !utf8.ValidString(r.Reason) || strings.ContainsFunc(r.Reason, unicode.IsControl):
		return errors.New("the reason must be one line of text without control characters")
	}
	return nil
}

// covers reports whether r refuses the principal. The clock of an issuer may be ahead by skew, so a
// token counts as new only if it was issued that much later. A static token, a certificate and a
// token without the time of its issue are refused, however new they are.
func (r *Revocation) covers(p *identity.Principal, skew time.Duration) bool {
	return p.Issued().IsZero() || !p.Issued().After(r.At.Add(skew))
}

// Revocations are the revoked principals of one Gatekit. Each is a file in a folder that only one
// user can enter. Other processes do not notice a change. All methods may be called at the same
// time.
type Revocations struct {
	folder privatefiles.Folder

	mu      sync.RWMutex
	all     map[string]Revocation // by the ID of the principal
	unknown error                 // why nobody knows who is revoked; nil if it is known
}

// OpenRevocations reads the revocations in a folder. The folder is created with the first of them.
// A file that cannot be read is an error: it may be a revocation.
func OpenRevocations(folder string) (*Revocations, error) {
	r := &Revocations{folder: privatefiles.Folder{Path: folder,
		Danger: "let revoked principals in"}, all: map[string]Revocation{}}
	names, err := r.folder.Names()
	if err != nil {
		return nil, fmt.Errorf("read the revocations: %w", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, revocationSuffix) {
			continue
		}
		var x Revocation
		b, err := r.folder.Read(name, maxRevocationFile)
		if err == nil {
			err = json.Unmarshal(b, &x, json.RejectUnknownMembers(true))
		}
		if err == nil && revocationFile(x.Principal) != name {
			err = errors.New("it is the file of another principal")
		}
		if err == nil {
			err = x.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("read the revocation %s: %w", name, err)
		}
		r.all[x.Principal] = x
	}
	return r, nil
}

// NewRevocations returns revocations that are in memory only. They must not be changed.
func NewRevocations(all []Revocation) *Revocations {
	r := &Revocations{all: map[string]Revocation{}}
	for _, x := range all {
		r.all[x.Principal] = x
	}
	return r
}

func revocationFile(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:]) + revocationSuffix
}

// Add stores a revocation, and replaces an earlier one of the principal. When Add returns nil, the
// revocation is on disk, and Authenticate refuses the principal.
func (r *Revocations) Add(x Revocation) error {
	if err := x.Validate(); err != nil {
		return err
	}
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.all[x.Principal]; !known && len(r.all) >= maxRevocations {
		return fmt.Errorf("%d principals are revoked already\nhint: gatekit auth revoke "+
			"remove PRINCIPAL removes one", maxRevocations)
	}
	if err := r.folder.Create(); err != nil {
		return err
	}
	if err := r.folder.Write(revocationFile(x.Principal), b); err != nil {
		return err
	}
	r.all[x.Principal] = x
	return nil
}

// Remove removes the revocation of a principal. No revocation is an error (fs.ErrNotExist).
func (r *Revocations) Remove(principal string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.all[principal]; !ok {
		return fmt.Errorf("the principal is not revoked: %w", fs.ErrNotExist)
	}
	if err := r.folder.Remove(revocationFile(principal)); err != nil {
		return err
	}
	delete(r.all, principal)
	return nil
}

// Has reports whether there is a revocation of a principal.
func (r *Revocations) Has(principal string) bool {
	_, ok := r.Get(principal)
	return ok
}

// Get returns the revocation of a principal, if there is one.
func (r *Revocations) Get(principal string) (Revocation, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	x, ok := r.all[principal]
	return x, ok
}

// SetUnknown makes Authenticate refuse all principals, because the revocations of other replicas
// are not known. With nil, they are known again.
func (r *Revocations) SetUnknown(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown = err
}

// All returns the revocations, the newest first.
func (r *Revocations) All() []Revocation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.all), func(a, b Revocation) int {
		if c := b.At.Compare(a.At); c != 0 {
			return c
		}
		return strings.Compare(a.Principal, b.Principal)
	})
}

// of returns the revocation that refuses a principal, or nil. It returns an error if nobody knows.
func (r *Revocations) of(p *identity.Principal, skew time.Duration) (*Revocation, error) {
	if r == nil {
		return nil, nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if x, ok := r.all[p.ID()]; ok && x.covers(p, skew) {
		return &x, nil
	}
	return nil, r.unknown
}
