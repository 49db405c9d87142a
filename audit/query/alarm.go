package query

import (
	"strings"

	"gatekit/audit"
	"gatekit/core/canary"
)

// Alarm returns the reason of the alarm in a record: the message has a planted value ([canary]). It
// returns "" if there is no alarm. r must have its steps.
func Alarm(r *audit.Record) string {
	for _, s := range r.Steps {
		if s.Stage == canary.StageName && len(s.Findings) > 0 &&
			strings.HasPrefix(s.Findings[0].Type, canary.FindingType) {
			return s.Reason
		}
	}
	return ""
}

// Alarm returns the first alarm in the records of the call, or "". It needs Options.KeepRecords.
func (c *Call) Alarm() string {
	for i := range c.Records {
		if reason := Alarm(&c.Records[i]); reason != "" {
			return reason
		}
	}
	return ""
}
