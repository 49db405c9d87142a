package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"gatekit/test/peers"
)

// Relay is an address that leads to a server, over a network whose faults a test chooses. It ends
// with the test.
type Relay struct {
	Addr string // host:port

	proxy *toxiproxy.Proxy
}

// StartRelay starts a relay to a server.
func StartRelay(t testing.TB, s *Server) *Relay {
	t.Helper()
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	r := &Relay{Addr: peers.FreeAddress(t)} // reserved also while the relay refuses connections
	r.proxy = toxiproxy.NewProxy(api, "redis", r.Addr, s.Addr)
	r.start(t)
	t.Cleanup(r.proxy.Stop)
	return r
}

// Delay delays each answer. 0 ends the delay.
func (r *Relay) Delay(t testing.TB, by time.Duration) {
	t.Helper()
	r.reset()
	if by > 0 {
		r.add(t, fmt.Sprintf(`{"type":"latency","stream":"downstream","attributes":{"latency":%d}}`,
			by.Milliseconds()))
	}
}

// Silence loses every answer, and keeps the connections. With false, answers arrive again.
func (r *Relay) Silence(t testing.TB, on bool) {
	t.Helper()
	r.reset()
	if on {
		r.add(t, `{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
	}
}

func (r *Relay) reset() { r.proxy.Toxics.ResetToxics(context.Background()) }

func (r *Relay) add(t testing.TB, toxic string) {
	t.Helper()
	if _, err := r.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatal(err)
	}
}

// Switch ends all connections, and leads new ones to another server.
func (r *Relay) Switch(t testing.TB, to *Server) {
	t.Helper()
	r.proxy.Stop()
	r.proxy.Listen, r.proxy.Upstream = r.Addr, to.Addr
	r.start(t)
}

// start starts the proxy. If another test starts a process at the same time, that process has the
// closed listener for a moment, until it runs its program.
func (r *Relay) start(t testing.TB) {
	t.Helper()
	err := r.proxy.Start()
	for deadline := time.Now().Add(startTimeout); errors.Is(err, syscall.EADDRINUSE) &&
		time.Now().Before(deadline); err = r.proxy.Start() {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Refuse ends all connections, and refuses new ones until Switch.
func (r *Relay) Refuse(t testing.TB) {
	t.Helper()
	r.proxy.Stop()
}

// CutAfter ends each connection after this many bytes of answers.
func (r *Relay) CutAfter(t testing.TB, bytes int) {
	t.Helper()
	r.reset()
	r.add(t, fmt.Sprintf(`{"type":"limit_data","stream":"downstream","attributes":{"bytes":%d}}`,
		bytes))
}

// Heal ends all faults of the network.
func (r *Relay) Heal() { r.reset() }
