package proto

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gatekit/core/shared"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
)

// maxStateError is how many bytes of the text of an error a plugin gets.
const maxStateError = 1 << 10

// ErrGivenUp is the result of an admission of a message for which nobody waits any more. It may be
// counted or not.
var ErrGivenUp = errors.New("nobody waits for the message any more")

// StateCalls are calls of the state that replicas share, which a stage asks for. There is no call
// for a lease without a name, and none for an admission without limits.
type StateCalls struct {
	Release   shared.Lease
	Renew     shared.Lease
	RenewTTL  time.Duration // for how long Renew is held from now on
	Admission shared.Admission
}

// Make makes the calls, each within the given time, and returns the result of the admission. If the
// state was lost, the admission is made again, because it has counted nothing, and now it can. What
// is released or renewed does not depend on ctx, and an error of it is no error: a lease ends by
// itself. If ctx has ended, the error of an admission is ErrGivenUp.
func (c StateCalls) Make(ctx context.Context, state shared.Admitter,
	each time.Duration) (result shared.Admitted, err error) {
	within := func(ctx context.Context, do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		return do(ctx)
	}
	if c.Release.Name != "" {
		within(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return state.Release(ctx, c.Release)
		})
	}
	if c.Renew.Name != "" {
		within(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return state.Renew(ctx, c.Renew, c.RenewTTL)
		})
	}
	if len(c.Admission.Limits) == 0 {
		return shared.Admitted{Refused: -1}, nil
	}
	admit := func(ctx context.Context) error {
		result, err = state.Admit(ctx, c.Admission)
		return err
	}
	if errors.Is(within(ctx, admit), shared.ErrLost) {
		within(ctx, admit)
	}
	if ctx.Err() != nil {
		return shared.Admitted{}, ErrGivenUp
	}
	return result, err
}

// maxMillis is the largest number of milliseconds in a request, about 30 years.
const maxMillis = 1e12

// FromStateCalls returns the protobuf form of calls, without the kinds of their keys; nil if there
// are none.
func FromStateCalls(c StateCalls) *pb.StateCalls {
	var p pb.StateCalls
	if c.Release.Name != "" {
		p.Release = fromLease(c.Release, 0)
	}
	if c.Renew.Name != "" {
		p.Renew = fromLease(c.Renew, c.RenewTTL)
	}
	if len(c.Admission.Limits) > 0 {
		p.Admit = fromAdmission(c.Admission)
	}
	if p.Release == nil && p.Renew == nil && p.Admit == nil {
		return nil
	}
	return &p
}

// ToStateCalls returns the calls of p. All their keys have the given kind.
func ToStateCalls(p *pb.StateCalls, kind string) (c StateCalls, err error) {
	if c.Release, _, err = toLease(p.GetRelease(), kind); err != nil {
		return c, err
	}
	if c.Renew, c.RenewTTL, err = toLease(p.GetRenew(), kind); err != nil {
		return c, err
	}
	c.Admission, err = toAdmission(p.GetAdmit(), kind)
	return c, err
}

// fromAdmission returns the protobuf form of an admission, without the kinds of its keys.
func fromAdmission(a shared.Admission) *pb.StateAdmission {
	p := &pb.StateAdmission{Lease: []byte(a.Lease), Ttl: a.TTL.Milliseconds(),
		Limits: make([]*pb.StateLimit, len(a.Limits))}
	for i, l := range a.Limits {
		p.Limits[i] = &pb.StateLimit{Key: fromKey(l.Key), Rate: int64(l.Rate),
			Per: l.Per.Milliseconds(), Burst: int64(l.Burst), Concurrent: int64(l.Concurrent)}
	}
	return p
}

// toAdmission returns the admission of p. All its keys have the given kind.
func toAdmission(p *pb.StateAdmission, kind string) (a shared.Admission, err error) {
	a = shared.Admission{Lease: string(p.GetLease()),
		Limits: make([]shared.Limit, len(p.GetLimits()))}
	if a.TTL, err = toDuration(p.GetTtl()); err != nil {
		return a, err
	}
	for i, l := range p.GetLimits() {
		per, err := toDuration(l.Per)
		if err != nil {
			return a, err
		}
		a.Limits[i] = shared.Limit{Key: toKey(l.Key, kind), Rate: int(l.Rate), Per: per,
			Burst: int(l.Burst), Concurrent: int(l.Concurrent)}
	}
	return a, nil
}

// fromLease returns the protobuf form of a lease that is renewed for ttl, or released.
func fromLease(l shared.Lease, ttl time.Duration) *pb.StateLease {
	p := &pb.StateLease{Name: []byte(l.Name), Ttl: ttl.Milliseconds()}
	for _, k := range l.Keys {
		p.Keys = append(p.Keys, fromKey(k))
	}
	return p
}

// toLease returns the lease of p, and the time for which it is renewed. All its keys have the given
// kind.
func toLease(p *pb.StateLease, kind string) (l shared.Lease, ttl time.Duration, err error) {
	l.Name = string(p.GetName())
	for _, k := range p.GetKeys() {
		l.Keys = append(l.Keys, toKey(k, kind))
	}
	ttl, err = toDuration(p.GetTtl())
	return l, ttl, err
}

func fromKey(k shared.Key) *pb.StateKey {
	return &pb.StateKey{Principal: []byte(k.Principal), Name: []byte(k.Name)}
}

func toKey(p *pb.StateKey, kind string) shared.Key {
	return shared.Key{Kind: kind, Principal: string(p.GetPrincipal()), Name: string(p.GetName())}
}

func toDuration(millis int64) (time.Duration, error) {
	if millis < 0 || millis > maxMillis {
		return 0, fmt.Errorf("%d ms is not a time", millis)
	}
	return time.Duration(millis) * time.Millisecond, nil
}

// FromStateResult returns the protobuf form of the result of an admission that is not counted. The
// text of an error that matches shared.ErrUnavailable or shared.ErrLost stays in Gatekit, because
// it may name the server.
func FromStateResult(a shared.Admitted, err error) *pb.StateResult {
	outcome, text := pb.StateOutcome_STATE_OUTCOME_INVALID, ""
	switch {
	case err == nil:
		return &pb.StateResult{Outcome: pb.StateOutcome_STATE_OUTCOME_REFUSED,
			Refused: uint32(a.Refused), TooMany: a.TooMany, RetryAfter: a.RetryAfter.Microseconds()}
	case errors.Is(err, ErrGivenUp):
		outcome = pb.StateOutcome_STATE_OUTCOME_GIVEN_UP
	case errors.Is(err, shared.ErrUnavailable):
		outcome = pb.StateOutcome_STATE_OUTCOME_UNAVAILABLE
	case errors.Is(err, shared.ErrLost):
		outcome = pb.StateOutcome_STATE_OUTCOME_LOST
	case errors.Is(err, shared.ErrFull):
		outcome, text = pb.StateOutcome_STATE_OUTCOME_FULL, err.Error()
	default:
		text = err.Error()
	}
	text = text[:min(len(text), maxStateError)]
	return &pb.StateResult{Outcome: outcome, Error: strings.ToValidUTF8(text, "?")}
}

// ToStateResult returns the result of an admission with the given number of limits. The error is
// shared.ErrUnavailable unless the result is clear.
func ToStateResult(p *pb.StateResult, limits int) (shared.Admitted, error) {
	switch p.GetOutcome() {
	case pb.StateOutcome_STATE_OUTCOME_REFUSED:
		if p.Refused >= uint32(limits) {
			return shared.Admitted{}, shared.ErrUnavailable
		}
		return shared.Admitted{Refused: int(p.Refused), TooMany: p.TooMany,
			RetryAfter: time.Duration(p.RetryAfter) * time.Microsecond}, nil
	case pb.StateOutcome_STATE_OUTCOME_GIVEN_UP:
		return shared.Admitted{}, ErrGivenUp
	case pb.StateOutcome_STATE_OUTCOME_LOST:
		return shared.Admitted{}, shared.ErrLost
	case pb.StateOutcome_STATE_OUTCOME_FULL:
		return shared.Admitted{}, fmt.Errorf("%w: %s", shared.ErrFull, strings.TrimPrefix(p.Error,
			shared.ErrFull.Error()+": "))
	case pb.StateOutcome_STATE_OUTCOME_INVALID:
		return shared.Admitted{}, fmt.Errorf("invalid admission: %s", p.Error)
	}
	return shared.Admitted{}, shared.ErrUnavailable
}
