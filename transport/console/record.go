package console

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"gatekit/audit"
	"gatekit/audit/query"
)

// Records has the details of the records of a log.
type Records interface {
	// Call returns the call to which a record belongs, with its records. If the record belongs to
	// no call, the result has only this record.
	Call(ctx context.Context, seq uint64) (*query.Call, error)
	// Explain returns a text for each record of the call that policies saw: what the policies of
	// today decide about the message, why, and what the record says.
	Explain(ctx context.Context, c *query.Call) ([]Explanation, error)
	// Prove returns the proof that a record is in the log, as "gatekit audit prove" prints it, and
	// the number of records that the checkpoint of the proof covers.
	Prove(ctx context.Context, seq uint64) (proof string, covered int64, err error)
}

// Explanation compares the recorded verdict on a message with the verdict of today's policies.
type Explanation struct {
	Seq      uint64
	Recorded string // the recorded action of the policies; "" if it is not known
	Now      string // the action of today's policies; "" if the log has too little to tell
	Text     string // the reasons, as "gatekit policy explain" prints them
}

// Differs reports whether today's policies decide otherwise.
func (e Explanation) Differs() bool {
	return e.Now != "" && e.Recorded != "" && e.Now != e.Recorded
}

// RecordPage returns the page that shows one call with its records. Other pages link to it:
// #record?seq=12.
func RecordPage(records Records) Page {
	return recordPage(func(ref string) (Records, string, uint64, error) {
		seq, err := strconv.ParseUint(ref, 10, 63)
		if err != nil || seq == 0 {
			return nil, "", 0, errors.New("the address of this page needs the number of a " +
				"record: #record?seq=12")
		}
		return records, "", seq, nil
	})
}

// recordPage returns the page for records that find finds by their names.
func recordPage(find func(ref string) (all Records, replica string, seq uint64,
	err error)) Page {
	return Page{Name: "record", Title: "Record", Hidden: true,
		Data: func(ctx context.Context, r Request) (any, error) {
			records, replica, seq, err := find(r.Query.Get("seq"))
			if err != nil {
				return nil, err
			}
			c, err := records.Call(ctx, seq)
			if err != nil {
				return nil, err
			}
			c.Replica = replica
			return viewRecord(ctx, records, c, seq, r), nil
		},
	}
}

// recordView is the data of the template of a record.
type recordView struct {
	Seq     uint64
	Ref     string // in links
	Row     trafficRow
	Call    *query.Call
	Stage   string
	Changed []string
	Records []recordRow

	IsExplained  bool
	Explanations []Explanation
	ExplainError string
	Proof        string
	Covered      int64
	ProofError   string
}

// recordRow is one record of a call.
type recordRow struct {
	*audit.Record
	Ref      string // in links
	IsAsked  bool   // the page was opened for this record
	Took     time.Duration
	Body     string // as the log has it; "" if it has none
	Size     string // "120 B", or "120 B → 80 B"
	Hash     string
	LineText string
	Failed   bool
}

func viewRecord(ctx context.Context, records Records, c *query.Call, seq uint64,
	r Request) recordView {
	v := recordView{Seq: seq, Ref: refOf(c.Replica, seq), Row: rowOf(c), Call: c,
		Stage: c.DecidingStage(), Changed: c.ChangedPointers()}
	for i := range c.Records {
		row := recordRowOf(&c.Records[i], seq)
		row.Ref = refOf(c.Replica, row.Seq)
		v.Records = append(v.Records, row)
	}
	if r.Query.Has("explain") {
		v.IsExplained = true
		all, err := records.Explain(ctx, c)
		if v.Explanations = all; err != nil {
			v.ExplainError = errorText(err)
		}
	}
	if r.Query.Has("proof") {
		proof, covered, err := records.Prove(ctx, seq)
		if v.Proof, v.Covered = proof, covered; err != nil {
			v.ProofError = errorText(err)
		}
	}
	return v
}

func recordRowOf(r *audit.Record, asked uint64) recordRow {
	row := recordRow{Record: r, IsAsked: r.Seq == asked, LineText: string(r.Line),
		Took: time.Duration(r.Micros) * time.Microsecond,
		Failed: r.Action == "deny" || r.Action == "reject" || r.Error != "" || r.Failed ||
			query.Alarm(r) != ""}
	shown := r.After
	switch {
	case r.Before == nil && r.After == nil:
		return row
	case r.Before == nil:
		row.Size = byteSize(r.After.Size)
	case r.After == nil:
		row.Size, shown = byteSize(r.Before.Size), r.Before
	default:
		row.Size = byteSize(r.After.Size)
		if r.Before.Size != r.After.Size {
			row.Size = fmt.Sprintf("%s → %s", byteSize(r.Before.Size), byteSize(r.After.Size))
		}
	}
	row.Body = string(shown.Body)
	switch {
	case shown.SHA256 != "":
		row.Hash = "sha256 " + shown.SHA256
	case shown.HMAC != "":
		row.Hash = "hmac " + shown.HMAC
	}
	return row
}
