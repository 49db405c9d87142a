package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/transport/credentials"
)

// get returns the status and the text of a page.
func get(t *testing.T, method, page string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if p := answer.Header.Get("Content-Security-Policy"); answer.StatusCode != 404 &&
		!strings.Contains(p, "frame-ancestors 'none'") {
		t.Errorf("the page has the policy %q", p)
	}
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// TestOtherPagesDoNotEndALogin sends requests to a login's listener, as any web page can, and then
// the right one twice.
func TestOtherPagesDoNotEndALogin(t *testing.T) {
	b := &loginCallback{}
	to, err := b.listen("")
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	var finished []url.Values
	done := make(chan error, 1)
	go func() {
		done <- b.wait(t.Context(), func(q url.Values) bool { return q.Get("state") == "right" },
			func(q url.Values) error {
				finished = append(finished, q)
				return errors.New("text-of-the-error")
			})
	}()
	right := to + "?state=right&code=c"
	for _, c := range []struct {
		method, page string
		want         int
	}{
		{"GET", to, 400}, {"GET", to + "?state=wrong", 400}, {"POST", right, 400},
		{"GET", strings.Replace(right, credentials.LoopbackPath, "/other", 1), 404},
		{"GET", right + "&%zz", 400},
	} {
		if status, _ := get(t, c.method, c.page); status != c.want {
			t.Errorf("%s %s: got status %d, want %d", c.method, c.page, status, c.want)
		}
	}
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			answer, err := http.Get(right)
			if err != nil {
				return // the listener has ended
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			if strings.Contains(string(text), "text-of-the-error") {
				t.Errorf("the page is %s", text)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[answer.StatusCode]++
		})
	}
	wg.Wait()
	if err := <-done; err == nil || err.Error() != "text-of-the-error" || len(finished) != 1 ||
		finished[0].Get("code") != "c" || statuses[200] != 1 {
		t.Errorf("got %v, the queries %v and the statuses %v; want one login", err, finished,
			statuses)
	}
}

func TestLoginListenerUsesTheKnownPortIfItIsFree(t *testing.T) {
	first, second, third := &loginCallback{}, &loginCallback{}, &loginCallback{}
	known, err := first.listen("")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := second.listen(known); err != nil || other == known {
		t.Errorf("with the port in use: got %s, %v; want another port", other, err)
	}
	second.close()
	first.close()
	if again, err := third.listen(known); err != nil || again != known {
		t.Errorf("got %s, %v; want %s", again, err, known)
	}
	third.close()
}

func TestLoginListenerEndsWithItsContext(t *testing.T) {
	b := &loginCallback{}
	if _, err := b.listen(""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("too late"))
	defer cancel()
	if err := b.wait(ctx, nil, nil); err == nil || err.Error() != "too late" {
		t.Errorf("got %v, want the cause of the context", err)
	}
}
