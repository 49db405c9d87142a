package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/identity"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/transport/auth"
)

// revokingReplica has the revocations of one of several replicas.
type revokingReplica struct {
	t      *testing.T
	folder string
	*sharedRevocations
	auth      *auth.Authenticator
	following *background

	guard   sync.Mutex
	records []string
	ended   []string // principals whose sessions were ended
}

// Record implements pipeline.Recorder.
func (r *revokingReplica) Record(_ context.Context, o pipeline.Outcome) (uint64, error) {
	r.guard.Lock()
	defer r.guard.Unlock()
	r.records = append(r.records, fmt.Sprintf("%s %s", o.Action, o.Before.Principal.ID()))
	return 0, nil
}

// startRevoking starts a replica with a folder, in which an earlier one may have been.
func startRevoking(t *testing.T, state shared.Store, folder string) *revokingReplica {
	t.Helper()
	r := &revokingReplica{t: t, folder: folder}
	own, err := auth.OpenRevocations(folder)
	if err != nil {
		t.Fatal(err)
	}
	r.sharedRevocations, err = openSharedRevocations(t.Context(), state, own,
		pipeline.New(r, pipeline.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.revoked = func(p string) { r.ended = append(r.ended, p) }
	if r.auth, err = auth.New(auth.Options{Revocations: own, Tokens: []auth.StaticToken{{
		ID: "ci", Subject: "ci"}}}); err != nil {
		t.Fatal(err)
	}
	r.following = startBackground(t.Context(), r.follow)
	return r
}

func (r *revokingReplica) stop() {
	r.following.stop()
}

// status returns the status of the refusal of a principal, or 0.
func (r *revokingReplica) status(principal string) int {
	if refused := r.auth.Revoked(identity.FromID(principal)); refused != nil {
		return refused.Status
	}
	return 0
}

// add revokes a principal as the control server does.
func (r *revokingReplica) add(principal string) error { return r.addAt(principal, time.Now()) }

// addAt revokes a principal at a time.
func (r *revokingReplica) addAt(principal string, at time.Time) error {
	x := auth.Revocation{Principal: principal, At: at, Reason: "lost"}
	return r.revoke(r.t.Context(), principal, func() error {
		return revokeRecorded(r.revocations, x, r.events)
	})
}

// remove ends a revocation as the control server does.
func (r *revokingReplica) remove(principal string) error {
	return r.readmit(r.t.Context(), principal, func() error {
		return readmitRecorded(r.revocations, principal, r.events)
	})
}

// wantStatus fails the test unless all replicas refuse a principal with a status within a second;
// 0 means that they accept it.
func wantStatus(t *testing.T, all []*revokingReplica, principal string, want int) {
	t.Helper()
	time.Sleep(time.Second)
	for i, r := range all {
		if got := r.status(principal); got != want {
			t.Errorf("replica %d refuses %s with status %d, want %d", i, principal, got, want)
		}
	}
}

// revokingReplicas runs a test with three replicas and their state.
func revokingReplicas(t *testing.T, test func(t *testing.T, state *sharedtest.Faulty,
	all []*revokingReplica)) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		var all []*revokingReplica
		for i := range 3 {
			all = append(all, startRevoking(t, state, filepath.Join(folder, fmt.Sprint(i))))
		}
		test(t, state, all)
		for _, r := range all {
			r.stop()
		}
	})
}

const revokedAnn = "https://login.example#ann"

func TestRevocationReachesEveryReplica(t *testing.T) {
	revokingReplicas(t, func(t *testing.T, state *sharedtest.Faulty, all []*revokingReplica) {
		if err := all[0].add(revokedAnn); err != nil {
			t.Fatal(err)
		}
		if got := all[0].status(revokedAnn); got != http.StatusUnauthorized {
			t.Errorf("the replica itself has the status %d at once", got)
		}
		wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
		wantStatus(t, all, "token:ci", 0)
		late := startRevoking(t, state, filepath.Join(all[0].folder, "late"))
		defer late.stop()
		if got := late.status(revokedAnn); got != http.StatusUnauthorized {
			t.Errorf("a replica that starts later has the status %d", got)
		}
		if err := all[2].remove(revokedAnn); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, append(all, late), revokedAnn, 0)
		for i, r := range append(all, late) {
			if got := strings.Join(r.records, ", "); got != "revoke "+revokedAnn+", readmit "+
				revokedAnn {
				t.Errorf("replica %d has recorded %s", i, got)
			}
		}
		if got := fmt.Sprint(all[1].ended); got != "["+revokedAnn+"]" {
			t.Errorf("another replica has ended the sessions of %s", got)
		}
	})
}

// A second revocation of a principal also refuses the tokens that were issued meanwhile.
func TestNewerRevocationReachesEveryReplica(t *testing.T) {
	revokingReplicas(t, func(t *testing.T, _ *sharedtest.Faulty, all []*revokingReplica) {
		for _, r := range all[:2] {
			if err := r.add(revokedAnn); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		want, _ := all[1].revocations.Get(revokedAnn)
		for i, r := range all {
			if got, _ := r.revocations.Get(revokedAnn); !got.At.Equal(want.At) || !got.Shared {
				t.Errorf("replica %d has the revocation %+v, want %+v", i, got, want)
			}
		}
	})
}

// Without the state, the last answer counts for 10 s. Then nobody is accepted.
func TestRevocationsWithoutTheState(t *testing.T) {
	revokingReplicas(t, func(t *testing.T, state *sharedtest.Faulty, all []*revokingReplica) {
		if err := all[0].add(revokedAnn); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
		state.Fail(shared.ErrUnavailable)
		if err := all[1].add("token:ci"); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("a revocation without the state: got %v", err)
		}
		if err := all[1].remove(revokedAnn); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("the end of a revocation without the state: got %v", err)
		}
		time.Sleep(7 * time.Second)
		wantStatus(t, all, "token:other", 0)
		wantStatus(t, all[1:2], "token:ci", http.StatusUnauthorized)
		time.Sleep(time.Second)
		wantStatus(t, all, revokedAnn, http.StatusUnauthorized) // a token that is revoked stays so
		wantStatus(t, all, "token:other", http.StatusServiceUnavailable)
		refused := all[0].auth.Revoked(identity.FromID("token:other"))
		if !strings.Contains(refused.Detail, "shared state is not available") ||
			refused.Principal != "token:other" {
			t.Errorf("the refusal is %+v", refused)
		}
		state.Fail(nil)
		wantStatus(t, all, "token:other", 0)
		wantStatus(t, all, "token:ci", http.StatusUnauthorized) // it is shared now
	})
}

// A revocation that cannot be shared, because the server is full, refuses its principal and nobody
// else. It is shared as soon as this is possible.
func TestRevocationThatCannotBeShared(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		state := &fullStore{Store: &shared.Memory{}}
		one := startRevoking(t, state, filepath.Join(folder, "1"))
		other := startRevoking(t, state, filepath.Join(folder, "2"))
		state.full.Store(true)
		if err := one.add(revokedAnn); !errors.Is(err, shared.ErrUnavailable) {
			t.Errorf("the revocation has the error %v", err)
		}
		time.Sleep(3 * revocationsKnownFor)
		all := []*revokingReplica{one, other}
		wantStatus(t, all[:1], revokedAnn, http.StatusUnauthorized)
		wantStatus(t, all, "token:ci", 0)
		state.full.Store(false)
		wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
		one.stop()
		other.stop()
	})
}

// After a loss, the replicas share their revocations again. Nobody is let in.
func TestRevocationsAfterALoss(t *testing.T) {
	revokingReplicas(t, func(t *testing.T, state *sharedtest.Faulty, all []*revokingReplica) {
		if err := all[0].add(revokedAnn); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
		for _, r := range all[:2] {
			r.stop()
		}
		state.Lose()
		wantStatus(t, all[2:], revokedAnn, http.StatusUnauthorized)
		for i := range all[:2] { // they start again, after the loss
			all[i] = startRevoking(t, state, all[i].folder)
		}
		wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
		if err := all[1].remove(revokedAnn); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, all, revokedAnn, 0)
	})
}

// If no replica ran when the state was lost, the first one that starts shares its revocations
// again. It starts also if it notices the loss after it has connected.
func TestRevocationsAfterALossWhileAllAreDown(t *testing.T) {
	for name, notice := range map[string]func(*testing.T, shared.Store){
		"noticed while connecting": func(t *testing.T, state shared.Store) {
			_, err := state.List(t.Context(), revocationKind, 0)
			if !errors.Is(err, shared.ErrLost) {
				t.Fatalf("got %v, want shared.ErrLost", err)
			}
		},
		"noticed after connecting": func(*testing.T, shared.Store) {},
	} {
		t.Run(name, func(t *testing.T) {
			revokingReplicas(t, func(t *testing.T, state *sharedtest.Faulty,
				all []*revokingReplica) {
				ahead := time.Now().Add(clockSkew) // by the clock of the replica
				if err := all[0].addAt(revokedAnn, ahead); err != nil {
					t.Fatal(err)
				}
				wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
				for _, r := range all {
					r.stop()
				}
				time.Sleep(time.Second)
				state.Lose()
				notice(t, state)
				for i, r := range all {
					all[i] = startRevoking(t, state, r.folder)
				}
				wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
			})
		})
	}
}

// A replica that was down does not bring back what the others have ended meanwhile.
func TestRevocationThatEndsWhileAReplicaIsDown(t *testing.T) {
	revokingReplicas(t, func(t *testing.T, state *sharedtest.Faulty, all []*revokingReplica) {
		if err := all[0].add(revokedAnn); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, all, revokedAnn, http.StatusUnauthorized)
		all[0].stop()
		if err := all[1].remove(revokedAnn); err != nil {
			t.Fatal(err)
		}
		all[0] = startRevoking(t, state, all[0].folder)
		wantStatus(t, all, revokedAnn, 0)
	})
}
