package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
	"gatekit/core/tasks"
)

// wantForeign fails the test if o does not treat the ids as foreign, or not foreign.
func wantForeign(t *testing.T, what string, o *tasks.Owners, principal string, foreign bool,
	ids ...string) {
	t.Helper()
	got, err := o.Foreign(t.Context(), "a", principal, ids...)
	if err != nil {
		t.Fatalf("%s: Foreign for %s: %v", what, principal, err)
	}
	for _, id := range ids {
		if got[id] != foreign {
			t.Errorf("%s: task %s is foreign to %s: %v, want %v", what, id, principal, got[id],
				foreign)
		}
	}
}

func create(t *testing.T, o *tasks.Owners, id, principal string, kept time.Duration) {
	t.Helper()
	if err := o.Create(t.Context(), "a", id, principal, "tool", kept); err != nil {
		t.Fatalf("Create %s for %s: %v", id, principal, err)
	}
}

// Each replica knows the owners of the tasks that were created through any of them. A task that
// nobody knows is foreign, and so is one of the same id at another server.
func TestReplicasKnowTheOwnersOfTasks(t *testing.T) {
	state := &shared.Memory{}
	one, two := &tasks.Owners{State: state}, &tasks.Owners{State: state}
	create(t, one, "t1", "alice", 0)
	create(t, one, "t2", "bob", 0)
	wantForeign(t, "where it was created", one, "bob", true, "t1", "unknown")
	wantForeign(t, "elsewhere", two, "bob", true, "t1", "unknown")
	wantForeign(t, "elsewhere", two, "bob", false, "t2")
	if name, ok := two.Name("a", "t1", "alice"); ok {
		t.Errorf("before its owner has used it, the name is %q", name)
	}
	wantForeign(t, "elsewhere", two, "alice", false, "t1")
	if name, ok := two.Name("a", "t1", "alice"); !ok || name != "tool" {
		t.Errorf("afterwards, the name is %q, %v, want tool", name, ok)
	}
	if got, err := two.Foreign(t.Context(), "b", "alice", "t1"); err != nil || !got["t1"] {
		t.Errorf("at another server, the foreign tasks are %v, %v, want t1", got, err)
	}
	create(t, two, "t1", "bob", 0) // of another process of the server
	wantForeign(t, "two owners", one, "bob", false, "t1")
	wantForeign(t, "two owners", one, "alice", false, "t1")
}

// Without other replicas, an unknown task may have been created before a restart. With other
// replicas and no shared state, it may be one of theirs.
func TestUnknownTasksWithoutSharedState(t *testing.T) {
	alone, replica := &tasks.Owners{}, &tasks.Owners{IsReplica: true}
	for _, o := range []*tasks.Owners{alone, replica} {
		create(t, o, "t1", "alice", 0)
		wantForeign(t, "a known task", o, "bob", true, "t1")
		wantForeign(t, "a known task", o, "alice", false, "t1")
	}
	wantForeign(t, "alone", alone, "bob", false, "unknown")
	wantForeign(t, "a replica", replica, "bob", true, "unknown")
}

// Without the shared state, no task is shared, and only tasks that the process knows can be used.
func TestTasksWithoutTheStore(t *testing.T) {
	state := sharedtest.NewFaulty(&shared.Memory{})
	one, two := &tasks.Owners{State: state}, &tasks.Owners{State: state}
	create(t, one, "t1", "alice", 0)
	state.Fail(shared.ErrUnavailable)
	wantForeign(t, "away, known", one, "alice", false, "t1")
	for _, who := range []string{"alice", "bob"} {
		if got, err := two.Foreign(t.Context(), "a", who, "t1"); !errors.Is(err,
			shared.ErrUnavailable) || got != nil {
			t.Errorf("away, unknown to %s: %v, %v, want ErrUnavailable", who, got, err)
		}
	}
	if err := one.Create(t.Context(), "a", "t2", "alice", "tool", 0); !errors.Is(err,
		shared.ErrUnavailable) {
		t.Errorf("Create without the store: %v, want ErrUnavailable", err)
	}
	wantForeign(t, "where it was created", one, "alice", false, "t2")
	state.Fail(nil)
	wantForeign(t, "back", two, "alice", true, "t2") // its creation was denied

	// a store that has lost its data says so once
	state.Lose()
	create(t, one, "t3", "alice", 0)
	wantForeign(t, "after a loss", two, "alice", false, "t3")
	state.Lose()
	wantForeign(t, "after a loss", two, "alice", true, "t1")
}

// A server may name any time for which it keeps a task.
func TestTasksAreKeptForABoundedTime(t *testing.T) {
	for _, tt := range []struct {
		name      string
		kept      time.Duration
		has, lost time.Duration // when it is still known, and when no longer
	}{
		{"a moment", time.Millisecond, 59 * time.Minute, time.Hour + time.Second},
		{"a day", 24 * time.Hour, 24*time.Hour - time.Minute, 24*time.Hour + time.Second},
		{"for ever", 0, 7*24*time.Hour - time.Minute, 7*24*time.Hour + time.Second},
		{"for years", 1 << 62, 7*24*time.Hour - time.Minute, 7*24*time.Hour + time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := &shared.Memory{}
				create(t, &tasks.Owners{State: state}, "t1", "alice", tt.kept)
				time.Sleep(tt.has)
				wantForeign(t, "before the time", &tasks.Owners{State: state}, "alice", false, "t1")
				time.Sleep(tt.lost - tt.has)
				wantForeign(t, "after the time", &tasks.Owners{State: state}, "alice", true, "t1")
			})
		})
	}
}

// A task does not live longer because a later one is kept longer, although both may be one value.
func TestLaterTasksDoNotKeepEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &shared.Memory{}
		o := &tasks.Owners{State: state}
		for i := range 1000 { // about four in each value
			create(t, o, fmt.Sprint("short", i), "alice", time.Hour)
			create(t, o, fmt.Sprint("long", i), "alice", 24*time.Hour)
			create(t, o, fmt.Sprint("then short", i), "alice", time.Hour)
		}
		time.Sleep(2 * time.Hour)
		for i := range 1000 {
			other := &tasks.Owners{State: state}
			wantForeign(t, "later", other, "alice", false, fmt.Sprint("long", i))
			wantForeign(t, "later", other, "alice", true, fmt.Sprint("short", i),
				fmt.Sprint("then short", i))
		}
	})
}

// A principal that creates many tasks, or calls tools with long names, takes a bounded part of the
// shared state, and loses only its own tasks.
func TestSharedTasksOfOnePrincipalAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tasks int
		tool  string
	}{{"many", 19_000, "x"}, {"long names", 3_000, strings.Repeat("x", 5000)}} {
		t.Run(tt.name, func(t *testing.T) {
			state := &shared.Memory{MaxBytes: 6 << 20}
			o := &tasks.Owners{State: state}
			create(t, o, "alice's", "alice", 0)
			for i := range tt.tasks {
				if err := o.Create(t.Context(), "a", fmt.Sprint(i), "mallory", tt.tool,
					0); err != nil {
					t.Fatalf("task %d: %v", i, err)
				}
			}
			other := &tasks.Owners{State: state}
			wantForeign(t, "another principal's", other, "alice", false, "alice's")
			wantForeign(t, "the newest", other, "mallory", false,
				fmt.Sprint(tt.tasks-1))
			wantForeign(t, "the oldest", other, "mallory", true, "0")
		})
	}
	o := &tasks.Owners{State: &shared.Memory{}}
	if err := o.Create(t.Context(), "a", "t1", "alice", strings.Repeat("x", 1<<15),
		0); !errors.Is(err, shared.ErrFull) {
		t.Errorf("a tool with a name of 32 KiB: %v, want ErrFull", err)
	}
}

// Replicas may create tasks of one principal at the same time.
func TestTasksAreCreatedAtTheSameTime(t *testing.T) {
	state := &shared.Memory{}
	var creators sync.WaitGroup
	const creating, each = 8, 200
	for i := range creating {
		creators.Go(func() {
			o := &tasks.Owners{State: state}
			for j := range each {
				if err := o.Create(context.Background(), "a", fmt.Sprint(i, "-", j), "alice",
					"tool", 0); err != nil {
					t.Errorf("Create %d-%d: %v", i, j, err)
				}
			}
		})
	}
	creators.Wait()
	other := &tasks.Owners{State: state}
	for i := range creating {
		for j := range each {
			wantForeign(t, "afterwards", other, "alice", false, fmt.Sprint(i, "-", j))
		}
	}
}

// slowStore calls while before each Get returns.
type slowStore struct {
	shared.Values
	while func()
}

func (s slowStore) Get(ctx context.Context, k shared.Key) ([]byte, uint64, error) {
	value, generation, err := s.Values.Get(ctx, k)
	s.while()
	return value, generation, err
}

// A notification about a task may be looked up while the task is being created.
func TestTaskIsCreatedDuringALookup(t *testing.T) {
	for _, away := range []bool{false, true} {
		state := sharedtest.NewFaulty(&shared.Memory{})
		if away {
			state.Fail(shared.ErrUnavailable)
		}
		o := &tasks.Owners{}
		o.State = slowStore{state, func() { o.Add("a", "t1", "alice", "tool") }}
		wantForeign(t, "during its creation", o, "alice", false, "t1")
	}
}
