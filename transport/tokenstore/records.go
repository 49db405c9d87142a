// Package tokenstore keeps the tokens that authorization servers issued for MCP servers. A [Folder]
// is the store of one machine, and a [Shared] that of several replicas.
//
//   - The tokens of a record are encrypted. The encryption binds the principal, the server and, in
//     a Folder, all other members of the record. So a changed byte, or a record in the place of
//     another one, is an error.
//   - A record that was written with another key is an error: in a Folder a *KeyError, for example
//     after the folder was copied to another machine.
//   - Save returns after the record is on the disk, or in the shared state.
//   - Several processes may use a store. A process that refreshes a token holds the lock of the
//     record, so that no two processes use one refresh token.
//
// # Why one file or value for each record
//
// With one for all records, each refresh would write the tokens of all principals again.
package tokenstore

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"
)

// Store keeps records. Its methods may be called from many goroutines. The errors of a Shared match
// those of core/shared: after shared.ErrUnavailable, nobody knows whether the call was carried out.
type Store interface {
	// Load returns the record. If there is none, the error matches fs.ErrNotExist.
	Load(id ID) (*Record, error)
	// Save writes a record, in place of the one with the same ID. It sets r.Saved.
	Save(r *Record) error
	// Delete removes a record. If there is none, Delete does nothing.
	Delete(id ID) error
	// Records returns all records without their secrets, each with its error if it cannot be read.
	Records() iter.Seq2[Record, error]
	// Lock waits until no other process or goroutine has the record's lock, and takes it. It does
	// not prevent Load. The lock is held until unlock is called or the context held ends. unlock
	// may be called again, if the state was away.
	Lock(ctx context.Context, id ID) (held context.Context, unlock func(), err error)
	// BeginRefresh notes that the refresh token of a record, which Load returned under the lock, is
	// about to be used. The caller must then call Replace with r, also if the lock is lost
	// meanwhile, or giveUp.
	BeginRefresh(r *Record) (giveUp func(), err error)
	// Replace writes next in place of was, or removes was if next is nil. It fails with
	// shared.ErrChanged if another process has changed the record, except if its refresh token is
	// still that of was: this one is used up.
	Replace(was, next *Record) error
	// FreshFor returns how long a token is used before Load has to be asked again, because another
	// process may have removed it.
	FreshFor() time.Duration
}

// All returns the records of a store that can be read, and the errors of the others.
func All(s Store) (records []Record, err error) {
	var errs []error
	for r, err := range s.Records() {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		records = append(records, r)
	}
	return records, errors.Join(errs...)
}

// Kinds of records.
const (
	Login        = "login"        // the tokens of a principal for a server
	Registration = "registration" // Gatekit's client id and secret at an authorization server
	// the same, for logins that begin at Gatekit's own pages
	PageRegistration = "page-registration"
)

// ID names a record.
type ID struct {
	Kind      string `json:"kind"`
	Server    string `json:"server"`              // configured name
	Principal string `json:"principal,omitempty"` // "" for a record of Gatekit itself
	Issuer    string `json:"issuer,omitempty"`    // set for a registration: the issuer it is for
}

// Record holds tokens or a client secret that an authorization server issued. All members but
// Secrets are readable in the file.
type Record struct {
	ID
	// AuthorizationServer is the issuer of the tokens.
	AuthorizationServer string `json:"authorization_server"`
	ClientID            string `json:"client_id"`
	// AuthMethod is how the client authenticates at the token endpoint, as the registration says;
	// "" for a client of the configuration.
	AuthMethod string    `json:"auth_method,omitempty"`
	Redirect   string    `json:"redirect,omitempty"` // of a registration: its redirect URI
	Resource   string    `json:"resource,omitempty"`
	Scopes     []string  `json:"scopes,omitempty"`
	Wanted     []string  `json:"wanted,omitempty"` // scopes that the next login asks for
	Expiry     time.Time `json:"expiry,omitzero"`  // of the token or client secret; zero: unknown
	Saved      time.Time `json:"saved"`
	Secrets    Secrets   `json:"-"`

	generation uint64 // of the value that replicas share
	usedUp     bool   // BeginRefresh was called, and neither Replace nor giveUp
}

// stamp sets r.Saved. The times of records have whole seconds.
func (r *Record) stamp() {
	r.Saved = time.Now().UTC().Truncate(time.Second)
	r.Expiry = r.Expiry.UTC().Truncate(time.Second)
}

// Secrets are the encrypted members of a record. They print as a placeholder.
type Secrets struct {
	Access       string `json:"access,omitempty"`
	Refresh      string `json:"refresh,omitempty"`
	ClientSecret string `json:"client_secret,omitempty"`
}

// String returns a placeholder.
func (Secrets) String() string { return "(secrets)" }

// GoString returns a placeholder.
func (s Secrets) GoString() string { return s.String() }

// LogValue returns a placeholder.
func (s Secrets) LogValue() slog.Value { return slog.StringValue(s.String()) }
