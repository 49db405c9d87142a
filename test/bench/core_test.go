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
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gatekit/audit"
	"gatekit/core/conn"
	"gatekit/core/downstream"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
)

// BenchmarkCore is one call through all of Gatekit but its transports, in one process: what it
// costs beside net/http and pipes. It is steadier than what is measured between processes, and made
// for -cpuprofile and benchstat. cpu-ns/op holds also when others use the machine.
func BenchmarkCore(b *testing.B) {
	for _, e := range []era{legacy, modern} {
		for _, size := range []int{1 << 10, 64 << 10} {
			name := fmt.Sprintf("%s/%s", e, strings.ReplaceAll(bytesOf(size), " ", ""))
			b.Run("http/"+name, func(b *testing.B) {
				f := core(b, upstream.Options{Era: string(e),
					Dial: upstream.Dial{HTTP: echoPost{}}})
				m := callEcho("s0__echo", size)
				session := ""
				if e == legacy {
					session = post(b, f, e, "", initialize, 1).header.Get("Mcp-Session-Id")
					post(b, f, e, session, initialized, 0)
				}
				post(b, f, e, session, m, 2)
				b.ReportAllocs()
				defer reportCPU(b)()
				for id := 3; b.Loop(); id++ {
					if r := post(b, f, e, session, m, id); r.status != http.StatusOK {
						b.Fatalf("status %d: %s", r.status, r.body)
					}
				}
			})
			b.Run("stdio/"+name, func(b *testing.B) {
				f := core(b, upstream.Options{Era: string(e),
					Dial: upstream.Dial{Pipe: func(context.Context) (conn.PipeCloser, error) {
						return newEchoPipe(), nil
					}}})
				p := &clientPipe{in: make(chan []byte), out: make(chan []byte)}
				ctx, leave := context.WithCancel(b.Context())
				served := make(chan error)
				go func() { served <- f.ServePipe(ctx, p, "") }()
				defer func() {
					leave()
					<-served
				}()
				if e == legacy {
					p.in <- initialize.append(nil, e, 1)
					<-p.out
					p.in <- initialized.append(nil, e, 0)
				}
				m := callEcho("s0__echo", size)
				b.ReportAllocs()
				defer reportCPU(b)()
				for id := 2; b.Loop(); id++ {
					p.in <- m.append(nil, e, id)
					if answer := <-p.out; len(member(answer, "result")) < size {
						b.Fatalf("%.300s", answer)
					}
				}
			})
		}
	}
}

// reportCPU reports the processor time that passes from its call to that of its result.
func reportCPU(b *testing.B) func() {
	used := func() int64 {
		var u unix.Rusage
		unix.Getrusage(unix.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

// core wires what cmd wires, with one server and an audit log on the disk.
func core(b *testing.B, o upstream.Options) *downstream.Endpoint {
	log, err := audit.Open(audit.Options{File: filepath.Join(b.TempDir(), "audit.jsonl")})
	if err != nil {
		b.Fatal(err)
	}
	o.Name = "s0"
	up := upstream.New(o)
	p, err := proxy.New(proxy.Options{Pipeline: pipeline.New(log, pipeline.Options{}),
		Servers: []proxy.ServerConfig{{Name: o.Name, Upstream: up}}})
	if err != nil {
		b.Fatal(err)
	}
	f := downstream.New(downstream.Options{Proxy: p})
	b.Cleanup(func() {
		if err := errors.Join(f.Close(context.Background()), p.Close(), up.Close(),
			log.Close()); err != nil {
			b.Error(err)
		}
	})
	return f
}

func post(b *testing.B, f *downstream.Endpoint, e era, session string, m message, id int) *written {
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
	var w written
	f.Post(b.Context(), downstream.HTTPRequest{Header: h, Body: m.append(nil, e, id)}, &w)
	return &w
}

// written is what was answered.
type written struct {
	status int
	header http.Header
	body   []byte
}

func (w *written) Write(status int, header http.Header, parts ...[]byte) error {
	body := bytes.Join(parts, nil)
	w.status, w.header, w.body = status, header, body
	return nil
}

// Stream is for a call that was silent for long: the machine is busy.
func (w *written) Stream(header http.Header) (downstream.Stream, error) {
	w.status, w.header = http.StatusOK, header
	return w, nil
}

func (w *written) Send(e conn.Event) error {
	w.body = e.Data
	return nil
}

func (w *written) Close() error { return nil }

// echoPost is the backend as an HTTP server.
type echoPost struct{}

func (echoPost) Post(_ context.Context, _ http.Header, body []byte) (*upstream.HTTPResponse, error) {
	a := &upstream.HTTPResponse{Status: http.StatusAccepted,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: answer(nil, body, 1)}
	if a.Body != nil {
		a.Status = http.StatusOK
	}
	return a, nil
}

func (echoPost) Get(context.Context, http.Header) (*upstream.HTTPResponse, error) {
	return &upstream.HTTPResponse{Status: http.StatusMethodNotAllowed}, nil
}

func (echoPost) Delete(context.Context, http.Header) (*upstream.HTTPResponse, error) {
	return &upstream.HTTPResponse{Status: http.StatusOK}, nil
}

// echoPipe is the backend as a process.
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
	if a := answer(nil, b, 1); a != nil {
		p.answers <- a
	}
	return nil
}

func (p *echoPipe) Close() error {
	close(p.closed)
	return nil
}

// clientPipe is a client on stdio.
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

// BenchmarkMessage is what is done to each message at least: read strictly, and written under
// another id.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		raw := callEcho("echo", size).append(nil, legacy, 1)
		b.Run(strings.ReplaceAll(bytesOf(size), " ", ""), func(b *testing.B) {
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
