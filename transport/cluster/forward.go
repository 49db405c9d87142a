package cluster

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"syscall"

	"gatekit/core/identity"
)

// Errors of Forward. The client has got no answer.
var (
	// ErrGone means that the owner's process has ended, so that what the id names exists no more.
	ErrGone = errors.New("the replica that made the id is gone")
	// ErrUnreachable means that no connection to the owner could be opened. Nothing was run.
	ErrUnreachable = errors.New("the replica that made the id cannot be reached")
	// ErrLost means that the connection broke before the answer. The request may have been run.
	ErrLost = errors.New("the connection to the replica that made the id broke")
)

// Forward sends a client's request to the replica at owner, which Owner returned, and copies the
// answer to w as it arrives. body is the whole body, and p is who sends the request. If the client
// has got no answer, Forward returns ErrGone, ErrUnreachable or ErrLost. It panics with
// http.ErrAbortHandler if the answer breaks off.
func (r *Replica) Forward(w http.ResponseWriter, req *http.Request, owner string, body []byte,
	p *identity.Principal) error {
	about := r.about(owner)
	sealed, err := r.seal(req, owner, body, p, about)
	if err != nil {
		return errors.Join(ErrUnreachable, err)
	}
	var failure error
	proxy := httputil.ReverseProxy{
		Transport:     r.transport,
		FlushInterval: -1, // events must not wait
		ErrorLog:      slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		Rewrite: func(pr *httputil.ProxyRequest) {
			out := pr.Out
			out.URL.Scheme, out.URL.Host, out.Host = "https", owner, owner
			// The first replica has checked these. The credentials are not for the owner.
			for _, name := range []string{"Authorization", "Cookie", "Origin", headerForwarded} {
				out.Header.Del(name)
			}
			out.Header.Set(headerForwarded, sealed)
			out.Body, out.ContentLength = http.NoBody, 0
			if len(body) > 0 {
				// An owner that is going tells which of the last requests it has not begun
				// (GOAWAY of HTTP/2). With GetBody, net/http sends only those again, on another
				// connection. The nonce of the envelope prevents that any request is run twice.
				out.GetBody = func() (io.ReadCloser, error) {
					return io.NopCloser(bytes.NewReader(body)), nil
				}
				out.Body, _ = out.GetBody()
				out.ContentLength = int64(len(body))
			}
		},
		ModifyResponse: func(response *http.Response) error {
			r.meetOwner(owner, about != nil, response.Header)
			return r.noteAnswer(response)
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failure = err },
	}
	proxy.ServeHTTP(w, req)
	if failure == nil || req.Context().Err() != nil { // a client that has left needs no answer
		return nil
	}
	return errors.Join(kindOf(failure), failure)
}

// kindOf returns the error of Forward that describes err.
func kindOf(err error) error {
	var refused, lookup bool
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		lookup = d.IsNotFound
	}
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		refused = refused || errors.Is(err, e)
	}
	op, isOp := errors.AsType[*net.OpError](err)
	_, isUntrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case lookup || refused && isOp && op.Op == "dial":
		return ErrGone
	case isUntrusted, isOp && op.Op == "dial":
		return ErrUnreachable
	}
	return ErrLost
}
