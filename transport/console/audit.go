package console

import (
	"context"
	"time"
)

// AuditLog has the state of the audit log.
type AuditLog interface {
	// State returns the state. It verifies a further part of the log, in at most a second.
	State(ctx context.Context) (*AuditState, error)
}

// AuditState is the state of an audit log.
type AuditState struct {
	File       string
	Bodies     string // "none", "digest" or "redacted"
	Durability string
	Committed  uint64 // seq of the last record
	Files      int
	Size       int64  // bytes of all files
	Health     string // why background work of the log fails; "" if it works

	First, Verified uint64    // the records that were verified; 0 for none yet
	VerifiedAt      time.Time // when the last of them was verified
	Complete        bool      // all records that the checkpoint covers were verified
	Failure         string    // why verification failed; "" if it did not
	FailureAt       time.Time
	Covered         int64  // records that the checkpoint covers
	Key             string // the name and the hash of the key that signs it
	Recovered       []string

	Anchor        string // the path of the anchor; "" if there is none
	AnchorCovered int64  // records that its newest checkpoint covers
	AnchorAt      time.Time
	AnchorError   string

	Sinks []SinkState
}

// Unsigned returns the number of records after the checkpoint.
func (s *AuditState) Unsigned() int64 { return max(0, int64(s.Committed)-s.Covered) }

// SinkState is the state of one sink.
type SinkState struct {
	Name, Description string
	Backlog           uint64 // records that were not sent yet
}

// AuditPage returns the page with the state of the audit log.
func AuditPage(l AuditLog) Page {
	return Page{Name: "audit", Title: "Audit", Refresh: 5 * time.Second,
		Data: func(ctx context.Context, _ Request) (any, error) { return l.State(ctx) }}
}
