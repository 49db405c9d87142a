package query

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"gatekit/audit"
)

// Records returns the records of a log that the filter selects, in the order of the log. The caller
// may keep a record. The sequence ends at the first error, which contains the file and the line.
func Records(ctx context.Context, log *audit.Reader, f *Filter) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		for line, err := range log.Lines(ctx) {
			if err != nil {
				yield(audit.Record{}, err)
				return
			}
			r, err := audit.ParseSummary(line)
			wanted := false
			if err == nil {
				wanted, err = f.matchLine(&r)
			}
			if wanted && err == nil {
				r, err = audit.ParseRecord(bytes.Clone(line))
			}
			if err != nil {
				yield(audit.Record{}, fmt.Errorf("%s: %w", log.Position(), err))
				return
			}
			if wanted && !yield(r, nil) {
				return
			}
		}
	}
}
