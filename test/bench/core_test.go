//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gatekit/audit"
	"gatekit/core/conn"
	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/stop"
	"gatekit/core/upstream"
)

// BenchmarkCore measures one call through all of Gatekit except its transports, in one process. So
// the result does not include the cost of net/http and pipes. It varies less than a measurement
// across processes, so -cpuprofile and benchstat are useful with it. The metric cpu-ns/op is valid
// even on a busy machine.
func BenchmarkCore(b *testing.B) {
	for _, e := range []era{legacy, modern} {
		for _, size := range []int{1 << 10, 64 << 10} {
			name := fmt.Sprintf("%s/%s", e, strings.ReplaceAll(formatBytes(size), " ", ""))
			b.Run("http/"+name, func(b *testing.B) {
				endpoint := newEndpoint(b, upstream.Options{Era: string(e),
					Dial: upstream.Dial{HTTP: echoHTTPServer{}}})
				m := echoCall("s0__echo", size)
				session := ""
				if e == legacy {
					session = post(b, endpoint, e, "", initialize, 1).header.Get("Mcp-Session-Id")
					post(b, endpoint, e, session, initialized, 0)
				}
				post(b, endpoint, e, session, m, 2)
				b.ReportAllocs()
				defer reportCPU(b)()
				for id := 3; b.Loop(); id++ {
					if r := post(b, endpoint, e, session, m, id); r.status != http.StatusOK {
						b.Fatalf("status %d: %s", r.status, r.body)
					}
				}
			})
			b.Run("stdio/"+name, func(b *testing.B) {
				endpoint := newEndpoint(b, upstream.Options{Era: string(e),
					Dial: upstream.Dial{Pipe: func(context.Context) (conn.PipeCloser, error) {
						return newEchoPipe(), nil
					}}})
				p := &clientPipe{in: make(chan []byte), out: make(chan []byte)}
				ctx, cancel := context.WithCancel(b.Context())
				served := make(chan error)
				go func() { served <- endpoint.ServePipe(ctx, p, nil) }()
				defer func() {
					cancel()
					<-served
				}()
				if e == legacy {
					p.in <- initialize.append(nil, e, 1)
					<-p.out
					p.in <- initialized.append(nil, e, 0)
				}
				m := echoCall("s0__echo", size)
				b.ReportAllocs()
				defer reportCPU(b)()
				for id := 2; b.Loop(); id++ {
					p.in <- m.append(nil, e, id)
					if answer := <-p.out; len(member(answer, "result")) < size {
						b.Fatalf("got %.300s, want a result with %d bytes or more", answer, size)
					}
				}
			})
		}
	}
}

// reportCPU starts to measure processor time. The returned function reports the time used since
// then, divided by b.N.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var u unix.Rusage
		unix.Getrusage(unix.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// newEndpoint returns an endpoint that is built like the endpoint of cmd/gatekit, with one server
// and an audit log on disk.
func newEndpoint(b *testing.B, o upstream.Options) *downstream.Endpoint {
	log, err := audit.Open(audit.Options{File: filepath.Join(b.TempDir(), "audit.jsonl")})
	if err != nil {
		b.Fatal(err)
	}
	o.Name = "s0"
	up := upstream.New(o)
	var stops stop.Gate
	stops.Set(nil)
	p, err := proxy.New(proxy.Options{
		Pipeline: pipeline.New(log, pipeline.Options{Stops: &stops}),
		Servers:  []proxy.ServerConfig{{Name: o.Name, Upstream: up}}})
	if err != nil {
		b.Fatal(err)
	}
	endpoint := downstream.New(downstream.Options{Proxy: p})
	b.Cleanup(func() {
		if err := errors.Join(endpoint.Close(context.Background()), p.Close(), up.Close(),
			log.Close()); err != nil {
			b.Error(err)
		}
	})
	return endpoint
}

// post posts a message of a client to the endpoint.
func post(b *testing.B, endpoint *downstream.Endpoint, e era, session string, m message,
	id int) *responseRecorder {
	h := http.Header{"Accept": {"application/json, text/event-stream"},
		"Content-Type": {"application/json"}}
	if e == modern {
		h["Mcp-Protocol-Version"] = []string{modernVersion}
		h["Mcp-Method"] = []string{m.method}
		if m.name != "" {
			h["Mcp-Name"] = []string{m.name}
		}
	} else if session != "" {
		h["Mcp-Session-Id"] = []string{session}
		h["Mcp-Protocol-Version"] = []string{legacyVersion}
	}
	var w responseRecorder
	endpoint.Post(b.Context(), downstream.HTTPRequest{Header: h, Body: m.append(nil, e, id)}, &w)
	return &w
}

// responseRecorder is an HTTP response writer that keeps the response.
type responseRecorder struct {
	status int
	header http.Header
	body   []byte
}

func (w *responseRecorder) Write(status int, header http.Header, parts ...[]byte) error {
	body := bytes.Join(parts, nil)
	w.status, w.header, w.body = status, header, body
	return nil
}

// Stream is called only if a call is slow, on a busy machine.
func (w *responseRecorder) Stream(header http.Header) (downstream.Stream, error) {
	w.status, w.header = http.StatusOK, header
	return w, nil
}

func (w *responseRecorder) Send(e conn.Event) error {
	w.body = e.Data
	return nil
}

func (w *responseRecorder) Close() error { return nil }

// echoHTTPServer is the backend in the role of an HTTP server.
type echoHTTPServer struct{}

func (echoHTTPServer) Post(_ context.Context, _ http.Header,
	body ...[]byte) (*upstream.HTTPResponse, error) {
	res := &upstream.HTTPResponse{Status: http.StatusAccepted,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   appendAnswer(nil, slices.Concat(body...), 1)}
	if res.Body != nil {
		res.Status = http.StatusOK
	}
	return res, nil
}

func (echoHTTPServer) Get(context.Context, http.Header) (*upstream.HTTPResponse, error) {
	return &upstream.HTTPResponse{Status: http.StatusMethodNotAllowed}, nil
}

func (echoHTTPServer) Delete(context.Context, http.Header) (*upstream.HTTPResponse, error) {
	return &upstream.HTTPResponse{Status: http.StatusOK}, nil
}

// echoPipe is the backend in the role of a stdio server.
type echoPipe struct {
	answers chan []byte
	closed  chan struct{}
}

func newEchoPipe() *echoPipe {
	return &echoPipe{answers: make(chan []byte, 1), closed: make(chan struct{})}
}

func (p *echoPipe) Read(context.Context) ([]byte, error) {
	select {
	case b := <-p.answers:
		return b, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *echoPipe) Write(_ context.Context, parts ...[]byte) error {
	b := bytes.Join(parts, nil)
	if a := appendAnswer(nil, b, 1); a != nil {
		p.answers <- a
	}
	return nil
}

func (p *echoPipe) Close() error {
	close(p.closed)
	return nil
}

// clientPipe is a client over stdio.
type clientPipe struct{ in, out chan []byte }

func (p *clientPipe) Read(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.in:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *clientPipe) Write(_ context.Context, parts ...[]byte) error {
	b := bytes.Join(parts, nil)
	p.out <- bytes.Clone(b)
	return nil
}

// BenchmarkMessage measures the work that every message needs: Gatekit parses it strictly and
// writes it with another id.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		raw := echoCall("echo", size).append(nil, legacy, 1)
		b.Run(strings.ReplaceAll(formatBytes(size), " ", ""), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				m, err := mcp.Parse(raw)
				if err != nil {
					b.Fatal(err)
				}
				dst = m.WithID("12345").Append(dst[:0])
			}
		})
	}
}
