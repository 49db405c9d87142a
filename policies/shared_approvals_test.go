package policies_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/policies"
)

// submitted submits a request, and returns the id by which it is approved.
func submitted(t *testing.T, a *policies.Approvals, n int) string {
	t.Helper()
	how, err := a.Submit(called("x", `{"n":`+strconv.Itoa(n)+`}`), "it is large", "n: 1")
	must(t, err)
	_, rest, _ := strings.Cut(how, "gatekit approve ")
	id, _, _ := strings.Cut(rest, "`")
	return id
}

func TestApprovalsOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state shared.Memory
		asked := &policies.Approvals{Shared: &state, Log: "/var/log/a.jsonl"}
		other := &policies.Approvals{Shared: &state, Log: "/var/log/b.jsonl"}
		id := submitted(t, asked, 1)
		all, err := other.List()
		if err != nil || len(all) != 1 || all[0].ID != id || all[0].Reason != "it is large" ||
			all[0].Values != "n: 1" || all[0].Log != "" {
			t.Fatalf("the other replica lists %+v, error %v; want the request", all, err)
		}
		request := called("x", `{"n":1}`)
		if asked.Consume(request) || other.Consume(request) {
			t.Error("a waiting request counts as approved")
		}
		time.Sleep(9 * time.Minute)
		if p, err := other.Approve(id); err != nil || p.Name != "x" || !p.Approved {
			t.Fatalf("the other replica approves %+v, error %v", p, err)
		}
		if how, err := asked.Submit(request, "it is large", ""); err != nil ||
			how != "approved in the meantime: retry" {
			t.Errorf("Submit of an approved request returned %q, error %v", how, err)
		}
		time.Sleep(9 * time.Minute)
		if asked.Consume(called("x", `{"n":2}`)) {
			t.Error("the approval is also valid for another request")
		}
		if !asked.Consume(request) || other.Consume(request) || asked.Consume(request) {
			t.Error("an approval is not valid for exactly one request of all replicas")
		}

		id = submitted(t, asked, 1)
		_, err = asked.Approve(id)
		must(t, err)
		time.Sleep(10*time.Minute + time.Second)
		if other.Consume(request) {
			t.Error("an expired approval is valid")
		}
		if _, err := other.Approve(id); err == nil ||
			!strings.Contains(err.Error(), "no request "+id+" waits") {
			t.Errorf("Approve of an expired request: error %v, want that no request waits", err)
		}
		if all, err := other.List(); err != nil || len(all) != 0 {
			t.Errorf("List returned %+v, error %v; want no requests", all, err)
		}
	})
}

// TestApprovalIsUsedOnceByReplicas lets three replicas use each approval at the same time, while
// they also submit the request again.
func TestApprovalIsUsedOnceByReplicas(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	var state shared.Memory
	for round := range rounds {
		first := &policies.Approvals{Shared: &state}
		approveAnew(t, first)
		var used atomic.Int64
		var replicas sync.WaitGroup
		begin := make(chan struct{})
		for range 3 {
			replica := &policies.Approvals{Shared: &state}
			replicas.Go(func() {
				<-begin
				approved, err := useOrSubmit(replica)
				if err != nil {
					t.Error(err)
				}
				if approved {
					used.Add(1)
				}
			})
		}
		close(begin)
		replicas.Wait()
		if used.Load() != 1 {
			t.Fatalf("round %d: one approval was used %d times, want once", round, used.Load())
		}
	}
}

// changing changes a value between the time when it is read and the time when it is replaced.
type changing struct {
	shared.Store
	change func()
}

func (c *changing) List(ctx context.Context, kind string, seen uint64) (shared.Listing, error) {
	l, err := c.Store.List(ctx, kind, seen)
	if change := c.change; change != nil {
		c.change = nil
		change()
	}
	return l, err
}

// TestSubmitKeepsAnApprovalOfAnotherReplica approves a request while a client submits it again.
func TestSubmitKeepsAnApprovalOfAnotherReplica(t *testing.T) {
	state := &changing{Store: &shared.Memory{}}
	a := &policies.Approvals{Shared: state}
	id := submitted(t, a, 1)
	state.change = func() {
		_, err := a.Approve(id)
		must(t, err)
	}
	request := called("x", `{"n":1}`)
	if how, err := a.Submit(request, "it is large", ""); err != nil ||
		how != "approved in the meantime: retry" {
		t.Errorf("Submit returned %q, error %v; want that the request was approved", how, err)
	}
	if !a.Consume(request) {
		t.Error("Submit has removed an approval")
	}
}

func TestApprovalsWithoutSharedState(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	a := &policies.Approvals{Shared: state}
	id := submitted(t, a, 1)
	_, err := a.Approve(id)
	must(t, err)
	request := called("x", `{"n":1}`)
	state.Fail(shared.ErrUnavailable)
	if a.Consume(request) {
		t.Error("an approval is used while the state is not available")
	}
	_, submitErr := a.Submit(request, "it is large", "")
	_, listErr := a.List()
	_, approveErr := a.Approve(id)
	for what, err := range map[string]error{"Submit": submitErr, "List": listErr,
		"Approve": approveErr} {
		if !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("%s: error %v, want that the state is not available", what, err)
		}
	}
	state.Fail(nil)
	if !a.Consume(request) {
		t.Error("the approval is gone, although nobody used it")
	}
	id = submitted(t, a, 1)
	_, err = a.Approve(id)
	must(t, err)
	state.Lose()
	if a.Consume(request) {
		t.Error("an approval that was lost is used")
	}
	state.Lose()
	if submitted(t, a, 1) == "" { // the state can be used again
		t.Error("after a loss, a request cannot be submitted")
	}
}
