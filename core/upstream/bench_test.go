package upstream_test

import (
	"bytes"
	"context"
	"testing"

	"gatekit/core/conn"
	"gatekit/core/mcp"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// echoPipe is a pipe to a server that answers each request at once.
type echoPipe struct {
	down chan []byte   // answers that have not been read
	gone chan struct{} // closed by Close
}

func (p *echoPipe) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.down:
		return b, nil
	case <-p.gone:
		return nil, context.Canceled
	}
}

func (p *echoPipe) Write(_ context.Context, parts ...[]byte) error {
	b := bytes.Join(parts, nil)
	if !bytes.Contains(b, []byte(`"id":`)) {
		return nil
	}
	id := b[bytes.Index(b, []byte(`"id":`))+5:]
	id = id[:bytes.IndexByte(id, ',')]
	p.down <- append(append([]byte(`{"jsonrpc":"2.0","id":`), id...),
		`,"result":{"protocolVersion":"2025-11-25","content":[{"type":"text","text":"hello"}]}}`...)
	return nil
}

func (p *echoPipe) Close() error { close(p.gone); return nil }

func BenchmarkCallOverAPipe(b *testing.B) {
	u := upstream.New(upstream.Options{Name: "x", Era: "legacy",
		Dial: upstream.Dial{Pipe: func(context.Context) (conn.PipeCloser, error) {
			return &echoPipe{make(chan []byte, 100), make(chan struct{})}, nil
		}}})
	defer u.Close()
	c := &upstreamtest.Client{}
	s, err := u.Open(b.Context(), proxy.OpenOptions{Revision: mcp.Rev20251125}, c)
	if err != nil {
		b.Fatal(err)
	}
	send := func(raw string) {
		m, err := mcp.Parse([]byte(raw))
		if err != nil {
			b.Fatal(err)
		}
		m.Direction = mcp.ToServer
		p, err := upstreamtest.Pipeline.Pass(b.Context(), m)
		if err != nil {
			b.Fatal(err)
		}
		if m.Kind == mcp.Notification {
			err = s.Notify(b.Context(), p)
		} else {
			_, err = s.Call(b.Context(), p, c)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	send(initializeRequest)
	send(initializedNotification)
	m, _ := mcp.Parse([]byte(toolsCall))
	m.Direction = mcp.ToServer
	p, err := upstreamtest.Pipeline.Pass(b.Context(), m)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Call(ctx, p, c); err != nil {
			b.Fatal(err)
		}
	}
}
