package console

import "gatekit/audit/query"

// showAlarm shows a call with a planted value ([canary]) as an alarm, even if nothing refused it.
func (r *trafficRow) showAlarm(c *query.Call) {
	alarm := c.Alarm()
	if alarm == "" || c.Status == query.StatusRefused {
		return
	}
	r.Mark, r.Outcome, r.Failed, r.Reason = "✕", "alarm", true, alarm
}
