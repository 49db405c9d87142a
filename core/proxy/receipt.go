package proxy

import "gatekit/core/pipeline"

// withReceipt returns the answer of the call with a receipt, if the configuration asks for
// receipts. The answer has its prefixes by then, so the receipt covers what the client gets. If
// there can be no receipt, the client gets the answer without one, and withReceipt logs why.
func (call *Call) withReceipt(answer pipeline.Passed) pipeline.Passed {
	answer, err := answer.WithReceipt(call.request)
	if err != nil {
		call.settings.Log.Warn("result sent without a receipt", "server",
			answer.Message().Server, "error", err)
	}
	return answer
}
