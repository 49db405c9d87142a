package proto_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"gatekit/core/shared"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"

	protobuf "google.golang.org/protobuf/proto"
)

// Requests arrive as they were sent, but with the kind that the receiver gives them.
func TestStateRequests(t *testing.T) {
	key := shared.Key{Kind: "a", Principal: "p\xff", Name: "n\xff"}
	sent := shared.Admission{Lease: "l\xff", TTL: 75 * time.Second, Limits: []shared.Limit{
		{Key: key, Rate: 1, Per: time.Minute, Burst: 2}, {Key: shared.Key{}, Concurrent: 3}}}
	got, err := proto.ToAdmission(proto.FromAdmission(sent), "kind")
	for i := range sent.Limits {
		sent.Limits[i].Key.Kind = "kind"
	}
	if err != nil || !reflect.DeepEqual(got, sent) {
		t.Errorf("got the admission %+v, %v, want %+v", got, err, sent)
	}
	lease := shared.Lease{Name: "l\xff", Keys: []shared.Key{key}}
	gotLease, ttl, err := proto.ToLease(proto.FromLease(lease, time.Hour), "kind")
	lease.Keys = []shared.Key{sent.Limits[0].Key}
	if err != nil || ttl != time.Hour || !reflect.DeepEqual(gotLease, lease) {
		t.Errorf("got the lease %+v, %v, %v, want %+v", gotLease, ttl, err, lease)
	}
	for millis, valid := range map[int64]bool{-1: false, 0: true, 1e12: true, 1e12 + 1: false,
		1 << 62: false} {
		for name, err := range map[string]error{
			"a lease":      errorOf(proto.ToLease(&pb.StateLease{Ttl: millis}, "kind")),
			"an admission": errorOf2(proto.ToAdmission(&pb.StateAdmission{Ttl: millis}, "kind")),
			"a limit": errorOf2(proto.ToAdmission(&pb.StateAdmission{
				Limits: []*pb.StateLimit{{Per: millis}}}, "kind")),
		} {
			if (err == nil) != valid {
				t.Errorf("%s with %d ms: got the error %v", name, millis, err)
			}
		}
	}
}

func errorOf(_ shared.Lease, _ time.Duration, err error) error { return err }
func errorOf2(_ shared.Admission, err error) error             { return err }

// Results arrive as they were sent. Errors of the state keep what they match, and tell the plugin
// no address. Anything unknown means that the state is not available.
func TestStateResults(t *testing.T) {
	const address = "192.0.2.1:6379"
	for _, r := range []shared.Admitted{{Refused: -1}, {Refused: 0, TooMany: true},
		{Refused: 1, RetryAfter: 1234 * time.Microsecond}} {
		got, err := proto.ToStateResult(proto.FromStateResult(r, nil), 2)
		if err != nil || got != r {
			t.Errorf("got %+v, %v, want %+v", got, err, r)
		}
	}
	for _, want := range []error{shared.ErrUnavailable, shared.ErrLost, shared.ErrFull} {
		sent := proto.FromStateResult(shared.Admitted{}, fmt.Errorf("%w: at %s", want, address))
		if _, err := proto.ToStateResult(sent, 2); !errors.Is(err, want) {
			t.Errorf("got the error %v, want %v", err, want)
		}
		if want != shared.ErrFull && strings.Contains(sent.String(), address) {
			t.Errorf("%v tells the plugin an address: %v", want, sent)
		}
	}
	long := errors.New("x" + strings.Repeat("é", 2500)) // it is cut within a character
	sent := proto.FromStateResult(shared.Admitted{}, long)
	if b, err := protobuf.Marshal(sent); err != nil || len(b) > proto.MaxStateResponse {
		t.Errorf("a response with a long error has %d bytes, error %v", len(b), err)
	}
	if _, err := proto.ToStateResult(sent, 2); err == nil || len(err.Error()) > 2000 ||
		errors.Is(err, shared.ErrUnavailable) {
		t.Errorf("got the error %.50v, want the beginning of a long one", err)
	}
	for name, p := range map[string]*pb.StateResponse{"nothing": {}, "an unknown outcome": {
		Outcome: 99}, "a limit that does not exist": {Refused: 2,
		Outcome: pb.StateOutcome_STATE_OUTCOME_REFUSED}} {
		if _, err := proto.ToStateResult(p, 2); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("%s: got the error %v, want ErrUnavailable", name, err)
		}
	}
}
