package bridge_test

import (
	"gatekit/core/bridge"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// newUpstream returns an upstream with a bridge. The launcher starts its processes. A server may
// ask at most 64 questions at once.
func newUpstream(l *upstreamtest.Launcher, o upstream.Options) *upstream.Upstream {
	o.Name, o.Dial.Pipe = "files", l.Start
	if o.Bridge == nil {
		o.Bridge = bridge.New(bridge.Options{InputRequests: 64})
	}
	return upstream.New(o)
}
