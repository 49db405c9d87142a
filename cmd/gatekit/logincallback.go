package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"gatekit/transport/credentials"
)

// loginCallback is a listener on a loopback address. An authorization server sends the user's
// browser to it after a login.
type loginCallback struct {
	port     uint16 // 0 for a free port
	listener net.Listener
}

// listen begins to listen, and returns the redirect URI of the login. known is the redirect URI of
// an earlier login that the authorization server knows, or "". If its port is in use, another one
// is used: authorization servers must accept any port of a loopback address (RFC 8252).
func (b *loginCallback) listen(known string) (string, error) {
	ports := []uint16{b.port}
	if u, err := url.Parse(known); err == nil && b.port == 0 {
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
			ports = []uint16{uint16(port), 0}
		}
	}
	var err error
	for _, port := range ports {
		if b.listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return "http://" + b.listener.Addr().String() + credentials.LoopbackPath, nil
		}
	}
	return "", fmt.Errorf("wait for the browser: %w", err)
}

func (b *loginCallback) close() {
	if b.listener != nil {
		b.listener.Close()
	}
}

// wait waits until the browser comes back with a query for which matches returns true, and calls
// finish with it. It returns the error of finish. Every web page can send the browser here, so
// other queries are refused and end nothing.
func (b *loginCallback) wait(ctx context.Context, matches func(url.Values) bool,
	finish func(url.Values) error) error {
	finished := make(chan error, 1)
	var mu sync.Mutex
	isTaken := false // by the request that finishes the login
	take := func(query url.Values) bool {
		mu.Lock()
		defer mu.Unlock()
		if isTaken || !matches(query) {
			return false
		}
		isTaken = true
		return true
	}
	s := &http.Server{ReadTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			query, err := url.ParseQuery(r.URL.RawQuery)
			switch {
			case r.URL.Path != credentials.LoopbackPath:
				http.NotFound(w, r)
			case r.Method != http.MethodGet || err != nil || !take(query):
				showPage(w, http.StatusBadRequest, "This is not the login that Gatekit waits for.")
			default:
				if err = finish(query); err != nil {
					showPage(w, http.StatusOK, "The login failed. The terminal or Gatekit's log "+
						"shows the reason.")
				} else {
					showPage(w, http.StatusOK, "You are logged in. You can close this page.")
				}
				finished <- err
			}
		})}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer s.Close()
	failed := make(chan error, 1)
	serving.Go(func() { failed <- s.Serve(b.listener) })
	select {
	case err := <-finished:
		// The browser must get the page.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if shutdownErr := s.Shutdown(ctx); shutdownErr != nil && !errors.Is(shutdownErr,
			context.DeadlineExceeded) {
			return errors.Join(err, shutdownErr)
		}
		return err
	case err := <-failed:
		return fmt.Errorf("wait for the browser: %w", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// showPage writes a page with one sentence.
func showPage(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the URL has the code
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	io.WriteString(w, "<!doctype html><html lang=\"en\"><title>Gatekit</title><p>"+text+"</p>\n")
}
