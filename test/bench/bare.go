//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The bare server and the bare proxy show what a second hop with mutual TLS costs at least, when it
// is made with net/http alone: they check nothing, record nothing and know no sessions. The client
// reaches the bare server over plain HTTP, or over plain HTTP through the bare proxy, which uses
// TLS.

// bareProtocols are the protocols between the bare proxy and the bare server.
var bareProtocols = []string{"HTTP/1.1", "HTTP/2"}

// bareTLS returns the configuration of both ends, with the certificates in the folder dir.
func bareTLS(dir string) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "replica.pem"),
		filepath.Join(dir, "replica.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}, nil
}

func protocolsOf(name string) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(name == bareProtocols[0])
	p.SetHTTP2(name == bareProtocols[1])
	return p
}

// serveBare serves the echo tool over plain HTTP and over TLS with each of bareProtocols, until
// stdin ends. It prints the addresses in this order, separated by spaces.
func serveBare(dir string) error {
	secure, err := bareTLS(dir)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for _, protocol := range append([]string{""}, bareProtocols...) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Print(l.Addr(), " ")
		server := &http.Server{Handler: http.HandlerFunc(answerBare)}
		go func() {
			if protocol == "" {
				failed <- server.Serve(l)
				return
			}
			server.Protocols, server.TLSConfig = protocolsOf(protocol), secure.Clone()
			failed <- server.ServeTLS(l, "", "")
		}()
	}
	fmt.Println()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		failed <- nil
	}()
	return <-failed
}

func answerBare(w http.ResponseWriter, r *http.Request) {
	body, err := appendBody(nil, r.Body, r.ContentLength)
	if err != nil {
		return
	}
	answer := appendAnswer(nil, body, 1)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer)
}

// serveBareProxy forwards requests to a bare server at an address, until stdin ends. It prints its
// own address first.
func serveBareProxy(protocol, to, dir string) error {
	secure, err := bareTLS(dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	transport := &http.Transport{Protocols: protocolsOf(protocol), TLSClientConfig: secure,
		MaxIdleConnsPerHost: 128, DisableCompression: true}
	proxy := httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host = "https", to
	}}
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := appendBody(nil, r.Body, r.ContentLength) // the whole body, as Gatekit does
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	return nil
}

// openBare starts the bare server, and a bare proxy for each of bareProtocols. It returns the
// target without a proxy, and then the others. end must be called even after an error.
func (s setup) openBare() (targets []*target, end func() error, err error) {
	server := &target{tool: "echo"}
	targets = []*target{server}
	end = func() error {
		for i := len(targets) - 1; i >= 0; i-- {
			if e := targets[i].close(); err == nil {
				err = e
			}
		}
		return err
	}
	start := func(t *target, role ...string) (string, error) {
		p, err := startSelf(append(role, s.dir)...)
		if err != nil {
			return "", err
		}
		t.proxy, t.closers = p, append(t.closers, p.stop)
		return p.firstLine()
	}
	line, err := start(server, "bare", "server")
	if err != nil {
		return targets, end, err
	}
	addresses := strings.Fields(line)
	if err := s.dialHTTP(server, "http://"+addresses[0]+"/mcp"); err != nil {
		return targets, end, err
	}
	for i, protocol := range bareProtocols {
		t := &target{tool: "echo"}
		targets = append(targets, t)
		address, err := start(t, "bare", "proxy", protocol, addresses[1+i])
		if err == nil {
			t.others = []*process{server.proxy}
			err = s.dialHTTP(t, "http://"+address+"/mcp")
		}
		if err != nil {
			return targets, end, err
		}
	}
	return targets, end, nil
}
