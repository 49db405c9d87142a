//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// telemetryVariants returns the baseline and the variants with telemetry. Gatekit counts the
// metrics, but nobody reads them. It sends spans to collector, which discards them.
func telemetryVariants(collector string) []variant {
	traces := func(share float64) string {
		return fmt.Sprintf("[telemetry]\nurl = %q\nprotocol = \"http\"\nmetrics = false\ntraces "+
			"= true\nsample = %g\n", collector, share)
	}
	const metrics = "[admin]\nhttp = \"127.0.0.1:0\"\n"
	return []variant{
		{name: baseline},
		{name: "metrics", tables: metrics},
		{name: "metrics, 1 % traced", tables: metrics + traces(0.01)},
		{name: "metrics, all traced", tables: metrics + traces(1)},
	}
}

// measureTelemetry compares Gatekit with and without telemetry.
func (p *plan) measureTelemetry(s setup, out report) (err error) {
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
	return p.measureVariants(s, telemetryVariants("http://"+listener.Addr().String()),
		out.telemetryHeader,
		out.variantRows)
}
