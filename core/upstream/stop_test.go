package upstream_test

import (
	"context"
	"errors"
	"net/http/httptrace"
	"testing"
	"testing/synctest"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/stop"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// noRecord records nothing.
type noRecord struct{}

func (noRecord) Record(context.Context, pipeline.Outcome) (uint64, error) { return 1, nil }

// The record of a stop waits for the requests that are being written. A request that was written
// does not hold it up until the answer comes, which may take hours.
func TestStopWaitsForAPostedRequest(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name    string
		results []error // of writing the request, before its answer
		ends    bool    // the write has ended before the answer
	}{
		{"it is being written", nil, false},
		{"it may be written again", []error{broken}, false},
		{"it was written", []error{nil}, true},
		{"it was written at the second time", []error{broken, nil}, true},
		{"it was written twice", []error{nil, nil}, true},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(era+", "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					gate, release := new(stop.Gate), make(chan struct{})
					gate.Set(nil)
					p := pipeline.New(noRecord{}, pipeline.Options{Stops: gate})
					o := upstream.Options{Pipeline: func() *pipeline.Pipeline { return p }}
					call, end := openCall(t, era, o, func(r request) *upstream.HTTPResponse {
						for _, err := range tt.results {
							httptrace.ContextClientTrace(r.ctx).WroteRequest(
								httptrace.WroteRequestInfo{Err: err})
						}
						<-release
						return resultResponse(r.ID, `{"resultType":"complete"}`)
					})
					synctest.Wait()
					other, _ := gate.Begin(&mcp.Message{})
					drained := gate.Set(nil)
					if isClosed(drained) {
						t.Error("the write has ended more than once")
					}
					other.End()
					if got := isClosed(drained); got != tt.ends {
						t.Errorf("before the answer, the write has ended: %v, want %v", got,
							tt.ends)
					}
					close(release)
					call.ExpectAnswer(
						`{"jsonrpc":"2.0","id":"c","result":{"resultType":"complete"}}`)
					if !isClosed(drained) {
						t.Error("after the answer, the write has not ended")
					}
					end()
				})
			})
		}
	}
}

// openCall begins a call at a server of the era over HTTP. end closes the session.
func openCall(t *testing.T, era string, o upstream.Options,
	serve func(request) *upstream.HTTPResponse) (call *upstreamtest.Call, end func()) {
	t.Helper()
	client := &upstreamtest.Client{}
	if era == "legacy" {
		s := newLegacySite(t, o)
		s.onRequest = serve
		s.initialize(t)
		return upstreamtest.StartCall(t, s, client, toolsCall), func() { s.close(t) }
	}
	o.Name, o.Era, o.Dial.HTTP = "web", "modern", &fakeHTTP{serve: serve}
	u := upstream.New(o)
	s := openModernSession(t, u, "a", "")
	return upstreamtest.StartCall(t, s, client, upstreamtest.ModernRequest(`"c"`, "prompts/get", ``,
			`,"name":"x"`)), func() {
			if err := u.Close(); err != nil {
				t.Error(err)
			}
		}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
