package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// sharedStore is a store of values that replicas share.
type sharedStore struct {
	delay time.Duration // of each call

	mu     sync.Mutex
	values map[pipeline.SharedKey]pipeline.SharedValue
	err    error
	calls  map[string]int // by method
	now    int            // calls at this time
	most   int            // calls at the same time
}

// use begins a call, and returns the function that ends it.
func (s *sharedStore) use(ctx context.Context, method string) (end func(), err error) {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[string]int{}
		s.values = map[pipeline.SharedKey]pipeline.SharedValue{}
	}
	s.calls[method]++
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	if s.delay > 0 {
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	s.now--
	return s.mu.Unlock, errors.Join(err, s.err)
}

func (s *sharedStore) Put(ctx context.Context, k pipeline.SharedKey,
	v pipeline.SharedValue) error {
	end, err := s.use(ctx, "put")
	defer end()
	if err == nil {
		s.values[k] = v
	}
	return err
}

func (s *sharedStore) Get(ctx context.Context, k pipeline.SharedKey) (pipeline.SharedValue, bool,
	error) {
	end, err := s.use(ctx, "get")
	defer end()
	v, ok := s.values[k]
	return v, ok && err == nil, err
}

func (s *sharedStore) Remove(ctx context.Context, k pipeline.SharedKey) error {
	end, err := s.use(ctx, "remove")
	defer end()
	if err == nil {
		delete(s.values, k)
	}
	return err
}

// has reports whether the store has the value of placeholderOf(n) of the usual client.
func (s *sharedStore) has(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.values[keyOf(n)]
	return ok
}

// keyOf is the key of a value of the client that restoring.send and callWith have.
func keyOf(n int) pipeline.SharedKey {
	return pipeline.SharedKey{Principal: "p1", Session: "s1", Placeholder: placeholderOf(n)}
}

// replicas returns the redacted values of two replicas that share a store.
func replicas(store *sharedStore) (a, b *pipeline.RedactedValues) {
	return &pipeline.RedactedValues{Shared: store}, &pipeline.RedactedValues{Shared: store}
}

// arguments returns the arguments that the server of m gets from a replica, and the record.
func arguments(t *testing.T, values *pipeline.RedactedValues, restore *pipeline.Restore,
	m *mcp.Message) (string, pipeline.Outcome) {
	t.Helper()
	r := newRestoring(values, restore)
	passed, err := r.Pass(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := passed.Restoration().Apply(passed.Message()).Get("/arguments")
	return string(raw), r.log.last(t)
}

// TestAnotherReplicaRestoresRedactedValue checks which requests get a value that another replica
// has redacted.
func TestAnotherReplicaRestoresRedactedValue(t *testing.T) {
	sameServer := &pipeline.Restore{For: time.Hour}
	p := placeholderOf(0)
	for _, c := range []struct {
		name    string
		restore *pipeline.Restore
		change  func(m *mcp.Message)
		store   func(s *sharedStore)
		want    bool
	}{
		{"the same server", sameServer, nil, nil, true},
		{"another principal", sameServer,
			func(m *mcp.Message) { m.Principal = identity.FromID("p2") }, nil, false},
		{"another session", sameServer, func(m *mcp.Message) { m.Session = "s2" }, nil, false},
		{"another server", sameServer, func(m *mcp.Message) { m.Server = "mail" }, nil, false},
		{"an entitled tool of another server",
			&pipeline.Restore{For: time.Hour, Tools: []string{"mail/use"}},
			func(m *mcp.Message) { m.Server = "mail" }, nil, true},
		{"a tool that is not entitled",
			&pipeline.Restore{For: time.Hour, Tools: []string{"mail/other"}},
			func(m *mcp.Message) { m.Server = "mail" }, nil, false},
		{"a stage that does not restore", sameServer, nil, func(s *sharedStore) {
			v := s.values[keyOf(0)]
			v.Stage = "policy"
			s.values[keyOf(0)] = v
		}, false},
		{"expired", sameServer, nil, func(s *sharedStore) {
			v := s.values[keyOf(0)]
			v.Expires = time.Now().Add(-time.Nanosecond)
			s.values[keyOf(0)] = v
		}, false},
		{"the largest value", sameServer, nil, func(s *sharedStore) {
			v := s.values[keyOf(0)]
			v.Value = strings.Repeat("v", 64<<10-len(secretValue)) + secretValue
			s.values[keyOf(0)] = v
		}, true},
		{"too large", sameServer, nil, func(s *sharedStore) {
			v := s.values[keyOf(0)]
			v.Value = strings.Repeat("v", 64<<10+1-len(secretValue)) + secretValue
			s.values[keyOf(0)] = v
		}, false},
		{"the store is away", sameServer, nil, func(s *sharedStore) { s.err = errors.New("away") },
			false},
		{"the store has lost it", sameServer, nil, func(s *sharedStore) { clear(s.values) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &sharedStore{}
			a, b := replicas(store)
			newRestoring(a, sameServer, redactedOnce).send(t)
			if v := store.values[keyOf(0)]; v.Stage != "secrets" || v.Server != "files" ||
				v.Value != secretValue || time.Until(v.Expires) < 59*time.Minute {
				t.Fatalf("the store has %+v", v)
			}
			if c.store != nil {
				c.store(store)
			}
			m := callWith(t, `{"a":"`+p+` `+p+`"}`)
			if c.change != nil {
				c.change(m)
			}
			got, o := arguments(t, b, c.restore, m)
			want, finding := "pass", pipeline.FindingNotRestored
			if c.want {
				want, finding = "restore", pipeline.FindingRestored
			}
			if strings.Contains(got, secretValue) != c.want || strings.Contains(got, p) == c.want {
				t.Errorf("the server gets %.200s, want it restored: %t", got, c.want)
			}
			last := o.Steps[len(o.Steps)-1]
			if o.Action != want || last.Findings[0].Type != finding || c.want &&
				last.Stage != "secrets" {
				t.Errorf("the record is %s with %+v, want %s", o.Action, last, want)
			}
			if n := store.calls["get"]; n != 1 {
				t.Errorf("the store was asked %d times, want once", n)
			}
		})
	}
}

// A value that another replica redacted is redacted again when the server returns it.
func TestReturnedValueOfAnotherReplicaIsRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := replicas(&sharedStore{})
		newRestoring(a, &pipeline.Restore{For: 2 * time.Hour}, redactedOnce).send(t)
		restore := &pipeline.Restore{For: time.Hour} // of b, whose setting differs
		arguments(t, b, restore, callWith(t, `{"a":"`+placeholderOf(0)+`"}`))
		for _, isRedacted := range []bool{true, false} {
			passed, err := newRestoring(b, restore).Pass(t.Context(), result(t,
				`{"x":"`+secretValue+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := text(passed.Message()); strings.Contains(got, secretValue) == isRedacted {
				t.Errorf("the client gets %s, want it redacted: %t", got, isRedacted)
			}
			time.Sleep(time.Hour)
		}
	})
}

// A value is in the store before the message is recorded, and so before it moves on. If it cannot
// be stored, the message moves on, and only its replica restores the value.
func TestRedactedValueIsSharedBeforeItsMessageMovesOn(t *testing.T) {
	for _, err := range []error{nil, errors.New("away")} {
		store := &sharedStore{err: err}
		a, b := replicas(store)
		shared := false
		log := recorderFunc(func() { shared = store.has(0) })
		p := pipeline.New(log, pipeline.Options{RedactedValues: a},
			pipeline.StageConfig{Name: "secrets", Stage: &redactor{
				values: []pipeline.Redacted{redactedOnce}},
				Restore: &pipeline.Restore{For: time.Hour}})
		m := result(t, `{"text":"`+secretValue+`"}`)
		passed, passErr := p.Pass(t.Context(), m)
		if passErr != nil || strings.Contains(text(passed.Message()), secretValue) {
			t.Errorf("the store has the error %v: the client gets %v and the error %v", err,
				passed.Message(), passErr)
		}
		if shared != (err == nil) {
			t.Errorf("the value is shared at the record: %t", shared)
		}
		call := `{"a":"` + placeholderOf(0) + `"}`
		if got, _ := arguments(t, a, &pipeline.Restore{For: time.Hour},
			callWith(t, call)); !strings.Contains(got, secretValue) {
			t.Errorf("at the same replica, the server gets %s", got)
		}
		if n := store.calls["get"]; n != 0 {
			t.Errorf("the store was asked %d times for a value that the replica knows", n)
		}
		if got, _ := arguments(t, b, &pipeline.Restore{For: time.Hour},
			callWith(t, call)); strings.Contains(got, secretValue) != (err == nil) {
			t.Errorf("the store has the error %v: at the other replica, the server gets %s", err,
				got)
		}
	}
}

// recorderFunc is a recorder that calls a function.
type recorderFunc func()

func (f recorderFunc) Record(context.Context, pipeline.Outcome) (uint64, error) {
	f()
	return 1, nil
}

// placeholders returns the placeholders of values, as the text of an argument.
func placeholders(values []pipeline.Redacted) string {
	var all []string
	for _, v := range values {
		all = append(all, v.Placeholder)
	}
	return `{"a":["` + strings.Join(all, `","`) + `"]}`
}

// The values of one message are stored and asked for together, 16 at once.
func TestSharedValuesAreCalledTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sharedStore{delay: 10 * time.Millisecond}
		a, b := replicas(store)
		values := valuesOf(1, 33, 1)
		began := time.Now()
		newRestoring(a, &pipeline.Restore{For: time.Hour}, values...).send(t)
		if took := time.Since(began); took != 30*time.Millisecond || store.most != 16 {
			t.Errorf("33 values took %v with %d calls at once, want 30ms with 16", took, store.most)
		}
		store.most, began = 0, time.Now()
		got, _ := arguments(t, b, &pipeline.Restore{For: time.Hour},
			callWith(t, placeholders(values)))
		if took := time.Since(began); took != 30*time.Millisecond || store.most != 16 ||
			strings.Contains(got, "secret") {
			t.Errorf("33 placeholders took %v with %d calls at once, want 30ms with 16: %s", took,
				store.most, got)
		}
	})
}

// A store that hangs or fails delays a message by a second at most, and is not asked on and on.
func TestSharedValuesOfAStoreThatFails(t *testing.T) {
	restore := &pipeline.Restore{For: time.Hour}
	for _, c := range []struct {
		name  string
		delay time.Duration
		err   error
		took  time.Duration
	}{
		{"hangs", time.Hour, nil, time.Second},
		{"fails", time.Millisecond, errors.New("away"), time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &sharedStore{delay: c.delay, err: c.err}
				a, b := replicas(store)
				began := time.Now()
				newRestoring(a, restore, valuesOf(1, 100, 1)...).send(t)
				if took := time.Since(began); took != c.took || store.calls["put"] != 16 {
					t.Errorf("to store took %v and %d calls, want %v and 16", took,
						store.calls["put"], c.took)
				}
				began = time.Now()
				_, o := arguments(t, b, restore, callWith(t, placeholders(valuesOf(1, 100, 1))))
				if took := time.Since(began); took != c.took || store.calls["get"] != 16 {
					t.Errorf("to restore took %v and %d calls, want %v and 16", took,
						store.calls["get"], c.took)
				}
				if step := o.Steps[len(o.Steps)-1]; !strings.Contains(step.Reason,
					"100 placeholders not restored") {
					t.Errorf("the record has %+v", step)
				}
				// to remove forgotten values fails, too, and then none is stored
				newRestoring(a, restore, valuesOf(101, 999, 1)...).send(t)
				puts := store.calls["put"]
				newRestoring(a, restore, valuesOf(2000, 50, 1)...).send(t)
				if n := store.calls["remove"]; n == 0 {
					t.Error("nothing was removed from the store")
				}
				if n := store.calls["put"]; n != puts {
					t.Errorf("%d values were stored after a removal failed", n-puts)
				}
			})
		})
	}
}

// A request asks for 1000 different placeholders at most. More values than a request may have are
// not asked for either, and the request is denied.
func TestMostSharedValuesOfARequest(t *testing.T) {
	restore := &pipeline.Restore{For: time.Hour}
	for _, separator := range []string{`","`, " "} { // several texts, or one
		store := &sharedStore{}
		_, b := replicas(store)
		all := strings.ReplaceAll(placeholders(valuesOf(1, 1002, 1)), `","`, separator)
		arguments(t, b, restore, callWith(t, all))
		if n := store.calls["get"]; n != 1000 {
			t.Errorf("the store was asked for %d placeholders, want 1000", n)
		}
	}

	large := valuesOf(1, 200, 64<<10-sealing)
	store := &sharedStore{values: map[pipeline.SharedKey]pipeline.SharedValue{},
		calls: map[string]int{}}
	for n, v := range large {
		store.values[keyOf(n+1)] = pipeline.SharedValue{Stage: "secrets", Server: "files",
			Value: v.Value, Expires: time.Now().Add(time.Hour)}
	}
	for _, c := range []struct {
		values int
		denied bool
	}{{16, false}, {17, true}, {200, true}} {
		_, b := replicas(store)
		store.calls = map[string]int{}
		_, err := newRestoring(b, restore).Pass(t.Context(), callWith(t,
			placeholders(large[:c.values])))
		if (err != nil) != c.denied {
			t.Errorf("%d values: got the error %v, want a denial: %t", c.values, err, c.denied)
		}
		if n := store.calls["get"]; n > 40 {
			t.Errorf("%d values: the store was asked for %d", c.values, n)
		}
	}
}

// A request that has as many bytes as it may have is still asked about more values. The store is
// slow, so that the 32nd placeholder is asked about after the 16 values are there.
func TestValueBeyondTheMostSharedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := valuesOf(1, 32, 64<<10-sealing)
		store := &sharedStore{delay: time.Millisecond,
			values: map[pipeline.SharedKey]pipeline.SharedValue{}, calls: map[string]int{}}
		for n, v := range values {
			if n < 16 || n == 31 {
				store.values[keyOf(n+1)] = pipeline.SharedValue{Stage: "secrets",
					Server: "files", Value: v.Value, Expires: time.Now().Add(time.Hour)}
			}
		}
		_, b := replicas(store)
		_, err := newRestoring(b, &pipeline.Restore{For: time.Hour}).Pass(t.Context(),
			callWith(t, placeholders(values)))
		if err == nil {
			t.Error("a request with 17 values of 64 KiB passes, want a denial")
		}
	})
}

// What a replica forgets to make room, all forget, so that no server can fill the store.
func TestForgottenValuesAreRemovedFromTheStore(t *testing.T) {
	store := &sharedStore{}
	a, _ := replicas(store)
	restore := &pipeline.Restore{For: time.Hour}
	send := func(values []pipeline.Redacted) { newRestoring(a, restore, values...).send(t) }
	want := func(what string, total int, isKept map[int]bool) {
		t.Helper()
		for n, want := range isKept {
			if got := store.has(n); got != want {
				t.Errorf("%s: the store has the value %d: %t, want %t", what, n, got, want)
			}
		}
		if n := len(store.values); n != total {
			t.Errorf("%s: the store has %d values, want %d", what, n, total)
		}
	}
	send(valuesOf(1, 1000, 1))
	want("the most values", 1000, map[int]bool{1: true, 1000: true})
	send(valuesOf(1001, 2, 1))
	want("more values", 1000, map[int]bool{1: false, 2: false, 3: true, 1002: true})
	send(valuesOf(3, 1, 1))
	want("the same value", 1000, map[int]bool{3: true, 4: true})
	send(slices.Concat(valuesOf(2000, 1, 1), valuesOf(4, 1, 1)))
	want("a value that is forgotten and comes again", 1000, map[int]bool{4: true, 5: false,
		6: true, 2000: true})
	if n := store.calls["remove"]; n != 4 {
		t.Errorf("%d values were removed, want 4", n)
	}

	// the values of whole servers
	large := valuesOf(1, 16, 64<<10-sealing)
	store = &sharedStore{}
	r := &redacting{t: t, store: pipeline.RedactedValues{Shared: store}}
	for n := range 33 {
		m := answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":{"text":"x"}}`)
		m.Principal, m.Server = identity.FromID("p1"), "files"
		m.Session = fmt.Sprint("session-", n)
		p := newRestoring(&r.store, restore, large...)
		if _, err := p.Pass(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	want("as many bytes as are kept", 32*16, nil)
}

// One message removes 4096 values at most. Those beyond stay until they expire.
func TestMostValuesThatAreRemovedFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sharedStore{}
		values := &pipeline.RedactedValues{Shared: store}
		session := 0
		send := func(redacted []pipeline.Redacted) {
			session++
			m := result(t, `{"text":"x"}`)
			m.Session = fmt.Sprint("session-", session)
			p := newRestoring(values, &pipeline.Restore{For: time.Hour}, redacted...)
			if _, err := p.Pass(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		for range 5 {
			send(valuesOf(1, 1000, 1))
		}
		for range 31 {
			send(valuesOf(1, 16, 64<<10-sealing))
		}
		if n := store.calls["remove"]; n != 0 {
			t.Errorf("%d values were removed before there were too many", n)
		}
		send(valuesOf(1, 16, 64<<10-sealing)) // instead of all of the first five sessions
		if n := store.calls["remove"]; n != 4096 {
			t.Errorf("%d values were removed, want 4096", n)
		}
	})
}

// What expires is not removed from the store, which forgets it by itself.
func TestExpiredValuesAreNotRemovedFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sharedStore{}
		a, _ := replicas(store)
		restore := &pipeline.Restore{For: time.Hour}
		newRestoring(a, restore, valuesOf(1, 10, 1)...).send(t)
		time.Sleep(2 * time.Hour)
		newRestoring(a, restore, valuesOf(11, 10, 1)...).send(t)
		if n := store.calls["remove"]; n != 0 {
			t.Errorf("%d values were removed, want none", n)
		}
	})
}
