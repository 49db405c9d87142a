//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// withTelemetry are Gatekits that tell of themselves, after one that does not. Metrics are counted
// for a listener that nobody asks; spans go to a collector that throws them away.
func withTelemetry(collector string) []stages {
	traces := func(share float64) string {
		return fmt.Sprintf("[telemetry]\nurl = %q\nprotocol = \"http\"\nmetrics = false\ntraces "+
			"= true\nsample = %g\n", collector, share)
	}
	const metrics = "[admin]\nhttp = \"127.0.0.1:0\"\n"
	return []stages{{way: plain}, {way: "metrics", tables: metrics}, {way: "metrics, 1 % traced",
		tables: metrics + traces(0.01)}, {way: "metrics, all traced", tables: metrics + traces(1)}}
}

// measureTelemetry compares Gatekit with telemetry with Gatekit without.
func (p *plan) measureTelemetry(l lane, out report) (err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		err = errors.Join(err, server.Close())
		<-ended
	}()
	return p.measureStages(l, withTelemetry("http://"+listener.Addr().String()), out.telemetryHead,
		out.stages)
}
