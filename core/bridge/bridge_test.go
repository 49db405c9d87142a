package bridge_test

import (
	"gatekit/core/bridge"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// newUpstream returns an upstream with a bridge. The launcher starts its processes.
func newUpstream(l *upstreamtest.Launcher, o upstream.Options) *upstream.Upstream {
	o.Name, o.Dial.Pipe, o.Bridge = "files", l.Start, bridge.New(bridge.Options{})
	return upstream.New(o)
}
