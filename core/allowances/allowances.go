// Package allowances stores what an operator has allowed: denials, edits and hidden items of stages
// that have no effect for a while. Store implements pipeline.Allowances.
//
// Each allowance is a file in a folder that only its owner can enter. All Gatekit processes of this
// user share the folder, and an allowance holds in each process whose audit log has the same key:
// the id of an intervention is an HMAC with a key that is derived from the key of the log. Replicas
// have their allowances in the state that they share instead ([Shared]), and one key.
//
// # Why the id is keyed
//
// The id covers the content that a stage has denied, redacted or hidden, and it is in the audit
// log. With a plain hash, a reader of the log could guess a short secret that was redacted. And a
// server could search for two texts with the same id: one that an operator allows, and another one.
// Without the key, it cannot compute any id.
package allowances

import (
	"crypto/hmac"
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
	"unicode"
	"unicode/utf8"

	"gatekit/core/privatefiles"
)

// Bounds of allowances.
const (
	DefaultFor = time.Hour
	MaxFor     = 30 * 24 * time.Hour
	maxStored  = 1000
	maxReason  = 500     // bytes
	maxFile    = 1 << 20 // bytes
	suffix     = ".json"
)

// Allowance is one intervention that an operator has allowed. The members that describe the
// intervention are copies of members of its audit record. They are for people: only ID decides what
// is allowed.
type Allowance struct {
	ID        string    `json:"id"`
	Reason    string    `json:"reason"` // why the operator allows it
	Once      bool      `json:"once,omitempty"`
	Made      time.Time `json:"made"`
	Until     time.Time `json:"until"`
	User      int       `json:"user"` // id of the user who made it
	Principal string    `json:"principal,omitempty"`
	Server    string    `json:"server,omitempty"`
	Method    string    `json:"method,omitempty"`
	Name      string    `json:"name,omitempty"`   // of the tool, the prompt or the resource
	Stage     string    `json:"stage,omitempty"`  // the stage that intervened
	Action    string    `json:"action,omitempty"` // deny, modify or hide
	Cause     string    `json:"cause,omitempty"`  // the reason of the stage
	Record    uint64    `json:"record,omitempty"` // number of the record of the intervention
	// the audit log with that record, in which changes of the allowance are recorded; and the key
	// of that log, "" for the default key
	Log    string `json:"log"`
	LogKey string `json:"log_key,omitempty"`
	// Replica names the replica that made it, if replicas share it. Log is on its machine.
	Replica string `json:"replica,omitempty"`
}

// Store has the allowances: in a folder, or in the state that replicas share.
type Store struct {
	Dir    string  // created when it is first needed
	Shared *Shared // if not nil, it has the allowances, and Dir is not used
	Key    []byte  // secret key of the ids; only ID needs it
	// the identity (URL or command) of each server, by the server's name; it is a part of each id,
	// because two Gatekits may use one name for different servers
	Servers map[string]string
	Now     func() time.Time // nil means time.Now
}

var isID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// IsID reports whether a text has the form of an id.
func IsID(text string) bool { return isID.MatchString(text) }

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Store) folder() privatefiles.Folder {
	return privatefiles.Folder{Path: s.Dir, Danger: "allow what Gatekit denies"}
}

// ID implements pipeline.Allowances.
func (s *Store) ID(server string, description []byte) string {
	if len(s.Key) == 0 {
		return ""
	}
	h := hmac.New(sha256.New, s.Key)
	identity := s.Servers[server]
	fmt.Fprintf(h, "%d:%s", len(identity), identity)
	h.Write(description)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(
		h.Sum(nil)[:16]))
}

// Holds implements pipeline.Allowances.
func (s *Store) Holds(id string) bool {
	if s.Shared != nil {
		return IsID(id) && s.Shared.holds(id)
	}
	if !IsID(id) || s.folder().Check() != nil {
		return false
	}
	a, err := s.read(id + suffix)
	return err == nil && s.isValid(a, id)
}

// Use implements pipeline.Allowances. If several messages use an allowance that is valid once, in
// one or more processes, only one of the calls returns true.
func (s *Store) Use(id string) bool {
	if s.Shared != nil {
		return IsID(id) && s.Shared.use(id)
	}
	if !s.Holds(id) {
		return false
	}
	if a, err := s.read(id + suffix); err != nil || !a.Once {
		return err == nil && s.isValid(a, id)
	}
	return s.folder().Take(id+suffix, func(name string) bool {
		a, err := s.read(name)
		return err == nil && s.isValid(a, id)
	})
}

func (s *Store) isValid(a Allowance, id string) bool {
	return a.ID == id && s.now().Before(a.Until)
}

func (s *Store) read(name string) (a Allowance, err error) {
	b, err := s.folder().Read(name, maxFile)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}

// Validate returns an error if a cannot be stored.
func (a *Allowance) Validate(now time.Time) error {
	switch {
	case !IsID(a.ID):
		return fmt.Errorf("%q is not the id of a denial, a redaction or a hidden item\nhint: the "+
			"ids are in the audit log: gatekit audit show --steps", a.ID)
	case strings.TrimSpace(a.Reason) == "":
		return errors.New("an allowance needs a reason\nhint: --reason \"why this is no attack\"")
	case len(a.Reason) > maxReason:
		return fmt.Errorf("the reason has %d bytes; at most %d are stored", len(a.Reason),
			maxReason)
	case !utf8.ValidString(a.Reason) || strings.ContainsFunc(a.Reason, unicode.IsControl):
		return errors.New("the reason must be one line of text without control characters")
	case !a.Until.After(now):
		return errors.New("the allowance would have expired already\nhint: --for 1h")
	case a.Until.Sub(now) > MaxFor:
		return fmt.Errorf("an allowance can hold for at most %d hours\nhint: change the "+
			"configuration of the plugin or the policy instead", MaxFor/time.Hour)
	}
	return nil
}

// CanAdd returns an error if a cannot be stored now.
func (s *Store) CanAdd(a Allowance) error {
	if err := a.Validate(s.now()); err != nil {
		return err
	}
	ids, err := s.ids()
	if err != nil {
		return err
	}
	if len(ids) >= maxStored && !slices.Contains(ids, a.ID) {
		return fmt.Errorf("%d allowances are stored already\nhint: gatekit allow lists them, and "+
			"gatekit allow remove ID removes one", maxStored)
	}
	return nil
}

// ids returns the ids of what is stored.
func (s *Store) ids() (ids []string, err error) {
	if s.Shared != nil {
		all, err := s.Shared.list()
		for _, a := range all {
			ids = append(ids, a.ID)
		}
		return ids, err
	}
	if err := s.folder().Create(); err != nil {
		return nil, err
	}
	names, err := s.folder().Names()
	for _, name := range names {
		ids = append(ids, strings.TrimSuffix(name, suffix))
	}
	return ids, err
}

// Add stores an allowance. It replaces the allowance with the same id. The caller must have
// recorded the allowance before.
func (s *Store) Add(a Allowance) error {
	if err := s.CanAdd(a); err != nil {
		return err
	}
	if s.Shared != nil {
		return s.Shared.add(a, s.now())
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return s.folder().Write(a.ID+suffix, b)
}

// Get returns the stored allowance with an id, even if it has expired.
func (s *Store) Get(id string) (Allowance, error) {
	if !IsID(id) {
		return Allowance{}, fmt.Errorf("%q is not the id of an allowance\nhint: gatekit allow "+
			"lists the allowances", id)
	}
	if s.Shared != nil {
		return s.Shared.get(id)
	}
	if err := s.folder().Check(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Allowance{}, err
	}
	a, err := s.read(id + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return a, noAllowance(id)
	}
	return a, err
}

// ErrNone is matched by the error of Get and Remove if no allowance has the id.
var ErrNone = errors.New("there is no allowance with this id")

func noAllowance(id string) error {
	return fmt.Errorf("%w, %s: it was removed or has expired, or it was used and was valid once\n"+
		"hint: gatekit allow lists the allowances", ErrNone, id)
}

// Remove removes an allowance.
func (s *Store) Remove(id string) error {
	if _, err := s.Get(id); err != nil {
		return err
	}
	if s.Shared != nil {
		return s.Shared.remove(id)
	}
	return s.folder().Remove(id + suffix)
}

// List returns the stored allowances in the order of their expiry: those that hold, and those that
// have expired and were not removed yet. It skips files that cannot be read.
func (s *Store) List() (valid, expired []Allowance, err error) {
	if s.Shared != nil {
		all, err := s.Shared.list()
		for _, a := range all {
			if s.isValid(a, a.ID) { // if not, the store removes it soon
				valid = append(valid, a)
			}
		}
		sortByExpiry(valid)
		return valid, nil, err
	}
	names, err := s.folder().Names()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, suffix)
		if !ok || !IsID(id) {
			continue
		}
		a, err := s.read(name)
		switch {
		case err != nil || a.ID != id:
		case s.isValid(a, id):
			valid = append(valid, a)
		default:
			expired = append(expired, a)
		}
	}
	sortByExpiry(valid)
	sortByExpiry(expired)
	return valid, expired, nil
}
