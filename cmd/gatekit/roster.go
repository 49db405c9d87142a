package main

import (
	"github.com/go-json-experiment/json"

	"gatekit/audit"
)

// describeLog returns the entry of the audit log for the rosters of other replicas, as JSON.
func (r *recording) describeLog() []byte {
	e, ok := r.audit.RosterEntry()
	if !ok {
		return nil
	}
	about, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	return about
}

// meetReplica adds the audit log that another replica describes to the roster. An entry that cannot
// be used is logged, and changes nothing.
func (r *recording) meetReplica(about []byte) {
	var e audit.RosterEntry
	if err := json.Unmarshal(about, &e); err != nil {
		r.log.Warn("audit log of another replica not added to the roster", "error", err)
		return
	}
	r.meet(e)
}

// meet is meetReplica for an entry.
func (r *recording) meet(e audit.RosterEntry) {
	if err := r.audit.Meet(e); err != nil {
		r.log.Warn("audit log of another replica not added to the roster", "error", err)
	}
}
