package proto_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"

	protobuf "google.golang.org/protobuf/proto"
)

// Calls arrive as they were sent, but with the kind that the receiver gives their keys.
func TestStateCalls(t *testing.T) {
	key := shared.Key{Kind: "a", Principal: "p\xff", Name: "n\xff"}
	calls := func(key shared.Key, other string) proto.StateCalls {
		return proto.StateCalls{Release: shared.Lease{Name: "l\xff", Keys: []shared.Key{key}},
			Renew: shared.Lease{Name: "m", Keys: []shared.Key{key}}, RenewTTL: time.Hour,
			Admission: shared.Admission{Lease: "l\xff", TTL: 75 * time.Second,
				Limits: []shared.Limit{{Key: key, Rate: 1, Per: time.Minute, Burst: 2},
					{Key: shared.Key{Kind: other}, Concurrent: 3}}}}
	}
	got, err := proto.ToStateCalls(proto.FromStateCalls(calls(key, "")), "kind")
	key.Kind = "kind"
	if want := calls(key, "kind"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got the calls %+v, %v, want %+v", got, err, want)
	}
	if p := proto.FromStateCalls(proto.StateCalls{RenewTTL: time.Hour}); p != nil {
		t.Errorf("no calls are sent as %v", p)
	}
	for millis, valid := range map[int64]bool{-1: false, 0: true, 1e12: true, 1e12 + 1: false,
		1 << 62: false} {
		for name, p := range map[string]*pb.StateCalls{
			"a released lease": {Release: &pb.StateLease{Ttl: millis}},
			"a renewed lease":  {Renew: &pb.StateLease{Ttl: millis}},
			"an admission":     {Admit: &pb.StateAdmission{Ttl: millis}},
			"a limit": {Admit: &pb.StateAdmission{
				Limits: []*pb.StateLimit{{Per: millis}}}},
		} {
			if _, err := proto.ToStateCalls(p, "kind"); (err == nil) != valid {
				t.Errorf("%s with %d ms: got the error %v", name, millis, err)
			}
		}
	}
}

// recordedState is a state that records its calls, and whether their contexts have ended. Each call
// takes the next of the errors.
type recordedState struct {
	calls string
	errs  []error
}

func (s *recordedState) call(ctx context.Context, name string) (err error) {
	if s.calls += name; ctx.Err() != nil {
		s.calls += " late"
	}
	s.calls += "; "
	if len(s.errs) > 0 {
		err, s.errs = s.errs[0], s.errs[1:]
	}
	return err
}

func (s *recordedState) Admit(ctx context.Context, a shared.Admission) (shared.Admitted, error) {
	err := s.call(ctx, "admit "+a.Lease)
	return shared.Admitted{Refused: -1}, err
}

func (s *recordedState) Renew(ctx context.Context, l shared.Lease, ttl time.Duration) error {
	return s.call(ctx, "renew "+l.Name+" "+ttl.String())
}

func (s *recordedState) Release(ctx context.Context, l shared.Lease) error {
	return s.call(ctx, "release "+l.Name)
}

func TestMakeStateCalls(t *testing.T) {
	away := shared.ErrUnavailable
	admission := shared.Admission{Lease: "a", Limits: []shared.Limit{{Concurrent: 1}}}
	ends := proto.StateCalls{Release: shared.Lease{Name: "l"}, Renew: shared.Lease{Name: "r"},
		RenewTTL: time.Minute}
	for name, test := range map[string]struct {
		calls proto.StateCalls
		errs  []error
		ended bool
		want  string
		err   error
	}{
		"no calls": {},
		"all calls": {calls: proto.StateCalls{Release: ends.Release, Renew: ends.Renew,
			RenewTTL: time.Minute, Admission: admission},
			want: "release l; renew r 1m0s; admit a; "},
		"leases end by themselves": {calls: ends, errs: []error{away, away},
			want: "release l; renew r 1m0s; "},
		"a message without an answer": {calls: ends, ended: true,
			want: "release l; renew r 1m0s; "},
		"a state that was lost": {calls: proto.StateCalls{Admission: admission},
			errs: []error{shared.ErrLost}, want: "admit a; admit a; "},
		"a state that was lost again": {calls: proto.StateCalls{Admission: admission},
			errs: []error{shared.ErrLost, shared.ErrLost}, want: "admit a; admit a; ",
			err: shared.ErrLost},
		"a state that is away": {calls: proto.StateCalls{Admission: admission},
			errs: []error{away}, want: "admit a; ", err: away},
		"a message that was given up": {calls: proto.StateCalls{Admission: admission}, ended: true,
			want: "admit a late; ", err: proto.ErrGivenUp},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if test.ended {
			cancel()
		}
		state := &recordedState{errs: test.errs}
		result, err := test.calls.Make(ctx, state, time.Minute)
		if state.calls != test.want || !errors.Is(err, test.err) || err == nil && !result.OK() {
			t.Errorf("%s: made the calls %q with the result %+v, %v, want %q, %v", name,
				state.calls, result, err, test.want, test.err)
		}
		cancel()
	}
}

// Each call may take the given time, whatever the others took.
func TestTimeOfStateCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, err := proto.StateCalls{Release: shared.Lease{Name: "l"}, Renew: shared.Lease{Name: "r"},
			Admission: shared.Admission{Limits: []shared.Limit{{}}}}.Make(t.Context(),
			hangingState{}, time.Second)
		if took := time.Since(begun); took != 3*time.Second ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("three calls took %v, %v, want 3s", took, err)
		}
	})
}

// hangingState is a state whose calls wait for the end of their context.
type hangingState struct{}

func (hangingState) Admit(ctx context.Context, _ shared.Admission) (shared.Admitted, error) {
	<-ctx.Done()
	return shared.Admitted{}, ctx.Err()
}

func (hangingState) Renew(ctx context.Context, _ shared.Lease, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingState) Release(ctx context.Context, _ shared.Lease) error {
	<-ctx.Done()
	return ctx.Err()
}

// Results arrive as they were sent. Errors of the state keep what they match, and tell the plugin
// no address. Anything unknown means that the state is not available.
func TestStateResults(t *testing.T) {
	const address = "192.0.2.1:6379"
	for _, r := range []shared.Admitted{{Refused: 0, TooMany: true},
		{Refused: 1, RetryAfter: 1234 * time.Microsecond}} {
		got, err := proto.ToStateResult(proto.FromStateResult(r, nil), 2)
		if err != nil || got != r {
			t.Errorf("got %+v, %v, want %+v", got, err, r)
		}
	}
	for _, want := range []error{shared.ErrUnavailable, shared.ErrLost, shared.ErrFull,
		proto.ErrGivenUp} {
		sent := proto.FromStateResult(shared.Admitted{}, fmt.Errorf("%w: at %s", want, address))
		if _, err := proto.ToStateResult(sent, 2); !errors.Is(err, want) ||
			strings.Count(err.Error(), want.Error()) != 1 {
			t.Errorf("got the error %v, want %v", err, want)
		}
		if want != shared.ErrFull && strings.Contains(sent.String(), address) {
			t.Errorf("%v tells the plugin an address: %v", want, sent)
		}
	}
	long := errors.New("x" + strings.Repeat("é", 2500)) // it is cut within a character
	sent := proto.FromStateResult(shared.Admitted{}, long)
	if b, err := protobuf.Marshal(sent); err != nil || len(b) > 1100 {
		t.Errorf("a result with a long error has %d bytes, error %v", len(b), err)
	}
	if _, err := proto.ToStateResult(sent, 2); err == nil || len(err.Error()) > 2000 ||
		errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("got the error %.50v, want the beginning of a long one", err)
	}
	for name, p := range map[string]*pb.StateResult{"nothing": {}, "an unknown outcome": {
		Outcome: 99}, "a limit that does not exist": {Refused: 2,
		Outcome: pb.StateOutcome_STATE_OUTCOME_REFUSED}} {
		if _, err := proto.ToStateResult(p, 2); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("%s: got the error %v, want ErrUnavailable", name, err)
		}
	}
}
