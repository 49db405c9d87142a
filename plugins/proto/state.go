package proto

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gatekit/core/shared"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
)

// Sizes of the frames in which a plugin calls the state that replicas share.
const (
	MaxStateRequest  = 256 << 10 // bytes
	MaxStateResponse = 4 << 10   // bytes
	maxStateError    = 1 << 10   // bytes of the text of an error
)

// maxMillis is the largest number of milliseconds in a request, about 30 years.
const maxMillis = 1e12

// FromAdmission returns the protobuf form of an admission, without the kinds of its keys.
func FromAdmission(a shared.Admission) *pb.StateAdmission {
	p := &pb.StateAdmission{Lease: []byte(a.Lease), Ttl: a.TTL.Milliseconds(),
		Limits: make([]*pb.StateLimit, len(a.Limits))}
	for i, l := range a.Limits {
		p.Limits[i] = &pb.StateLimit{Key: fromKey(l.Key), Rate: int64(l.Rate),
			Per: l.Per.Milliseconds(), Burst: int64(l.Burst), Concurrent: int64(l.Concurrent)}
	}
	return p
}

// ToAdmission returns the admission of p. All its keys have the given kind.
func ToAdmission(p *pb.StateAdmission, kind string) (a shared.Admission, err error) {
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

// FromLease returns the protobuf form of a lease that is renewed for ttl, or released.
func FromLease(l shared.Lease, ttl time.Duration) *pb.StateLease {
	p := &pb.StateLease{Name: []byte(l.Name), Ttl: ttl.Milliseconds()}
	for _, k := range l.Keys {
		p.Keys = append(p.Keys, fromKey(k))
	}
	return p
}

// ToLease returns the lease of p, and the time for which it is renewed. All its keys have the given
// kind.
func ToLease(p *pb.StateLease, kind string) (l shared.Lease, ttl time.Duration, err error) {
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

// FromStateResult returns the response to a StateRequest. The text of an error that matches
// shared.ErrUnavailable or shared.ErrLost stays in Gatekit, because it may name the server.
func FromStateResult(a shared.Admitted, err error) *pb.StateResponse {
	outcome, text := pb.StateOutcome_STATE_OUTCOME_INVALID, ""
	switch {
	case err == nil && a.OK():
		outcome = pb.StateOutcome_STATE_OUTCOME_DONE
	case err == nil:
		return &pb.StateResponse{Outcome: pb.StateOutcome_STATE_OUTCOME_REFUSED,
			Refused: uint32(a.Refused), TooMany: a.TooMany, RetryAfter: a.RetryAfter.Microseconds()}
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
	return &pb.StateResponse{Outcome: outcome, Error: strings.ToValidUTF8(text, "?")}
}

// ToStateResult returns the result of a StateRequest with the given number of limits. The error is
// shared.ErrUnavailable unless the response is clear.
func ToStateResult(p *pb.StateResponse, limits int) (shared.Admitted, error) {
	switch p.GetOutcome() {
	case pb.StateOutcome_STATE_OUTCOME_DONE:
		return shared.Admitted{Refused: -1}, nil
	case pb.StateOutcome_STATE_OUTCOME_REFUSED:
		if p.Refused >= uint32(limits) {
			return shared.Admitted{}, shared.ErrUnavailable
		}
		return shared.Admitted{Refused: int(p.Refused), TooMany: p.TooMany,
			RetryAfter: time.Duration(p.RetryAfter) * time.Microsecond}, nil
	case pb.StateOutcome_STATE_OUTCOME_LOST:
		return shared.Admitted{}, shared.ErrLost
	case pb.StateOutcome_STATE_OUTCOME_FULL:
		return shared.Admitted{}, fmt.Errorf("%w: %s", shared.ErrFull, p.Error)
	case pb.StateOutcome_STATE_OUTCOME_INVALID:
		return shared.Admitted{}, fmt.Errorf("invalid request to the shared state: %s", p.Error)
	}
	return shared.Admitted{}, shared.ErrUnavailable
}
