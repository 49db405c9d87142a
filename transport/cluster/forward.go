package cluster

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"syscall"

	"gatekit/core/identity"
	"gatekit/transport/httpconns"
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
// http.ErrAbortHandler if the answer breaks off, or if the context of the request ends before the
// answer begins: the client has left, was revoked, or this replica stops.
func (r *Replica) Forward(w http.ResponseWriter, req *http.Request, owner string, body []byte,
	p *identity.Principal) error {
	about := r.about(owner)
	sealed, err := r.seal(req, owner, body, p, about)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	header := endToEnd(req.Header)
	for _, name := range notForwarded {
		delete(header, name)
	}
	header[headerForwarded] = []string{sealed}
	answer, err := r.send(req, owner, httpconns.Request{Of: req, Target: req.URL.RequestURI(),
		Host: owner, Header: header, Body: [][]byte{body}})
	switch {
	case req.Context().Err() != nil:
		if err == nil {
			answer.Body.Close()
		}
		panic(http.ErrAbortHandler)
	case err != nil:
		return fmt.Errorf("%w: %w", kindOf(err), err)
	}
	defer answer.Body.Close()
	r.meetOwner(owner, about != nil, answer.Header)
	r.noteAnswer(answer)
	if r.copyAnswer(w, answer) != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// notForwarded are headers of a client's request that are not for the owner. The first replica has
// checked the credentials and the origin, and has read the whole body. The other headers could only
// claim what the envelope proves.
var notForwarded = []string{"Authorization", "Cookie", "Origin", "Expect", "Content-Length",
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", headerForwarded}

// hopByHop are the headers that are for one connection only (RFC 9110, section 7.6.1).
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// endToEnd returns a copy of h without the headers that are for one connection only.
func endToEnd(h http.Header) http.Header {
	c := maps.Clone(h)
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			delete(c, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
	for _, name := range hopByHop {
		delete(c, name)
	}
	return c
}

// maxSends bounds how often a request is sent to an owner that has not begun it.
const maxSends = 4

// send sends a request to the owner. If the owner replies that it has not begun the request,
// because it was closing the connection, send sends it again on another connection. The nonce of
// the envelope prevents that any request is run twice.
func (r *Replica) send(req *http.Request, owner string,
	out httpconns.Request) (*http.Response, error) {
	conns := r.owners.conns(owner, r.dial)
	for range maxSends {
		answer, err := conns.Do(req.Context(), out)
		if err != nil {
			return nil, err
		}
		if answer.Header.Get(headerNotBegun) == "" {
			return answer, nil
		}
		answer.Body.Close()
	}
	return nil, errNotBegun
}

var errNotBegun = errors.New("it closed each connection before it began the request")

// copyAnswer copies an answer to the client. An answer of unknown length is copied as it arrives,
// because events must not wait.
func (r *Replica) copyAnswer(w http.ResponseWriter, answer *http.Response) error {
	maps.Copy(w.Header(), endToEnd(answer.Header))
	w.WriteHeader(answer.StatusCode)
	if answer.ContentLength < 0 {
		return copyEvents(w, answer.Body)
	}
	buffer, _ := r.buffers.Get().(*[answerBuffer]byte)
	if buffer == nil {
		buffer = new([answerBuffer]byte)
	}
	defer r.buffers.Put(buffer)
	for rest := answer.ContentLength; rest > 0; {
		part := buffer[:min(rest, answerBuffer)]
		if _, err := io.ReadFull(answer.Body, part); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if _, err := w.Write(part); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		rest -= int64(len(part))
	}
	return nil
}

// Sizes of the buffers for answers. A stream of events keeps its buffer for a long time.
const (
	answerBuffer = 64 << 10
	eventsBuffer = 4 << 10
)

// copyEvents copies a body and flushes each part of it.
func copyEvents(w http.ResponseWriter, body io.Reader) error {
	flusher := http.NewResponseController(w)
	if err := flusher.Flush(); err != nil {
		return err
	}
	for buffer := make([]byte, eventsBuffer); ; {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if err := flusher.Flush(); err != nil {
				return err
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// kindOf returns the error of Forward that describes err.
func kindOf(err error) error {
	var lookup bool
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		lookup = d.IsNotFound
	}
	_, isDial := errors.AsType[*dialError](err)
	switch {
	case lookup, isDial && (errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)):
		return ErrGone
	case isDial, errors.Is(err, errNotBegun):
		return ErrUnreachable
	}
	return ErrLost
}
