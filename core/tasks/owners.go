package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"gatekit/core/shared"
)

// Owners knows the owners of tasks. If several replicas of Gatekit share state, Owners knows the
// tasks that were created through any of them, and a task that none of them knows belongs to
// nobody. If there is one Gatekit, such a task may belong to anybody: it may have been created
// before a restart, and only the server knows its owner. Many goroutines may use an Owners.
//
// A task is kept in the shared state for the time that its server keeps it, within the bounds
// below. A principal that creates many tasks loses its own oldest tasks, not those of others.
type Owners struct {
	Registry // the tasks that this process knows
	// State is the state that replicas share. It is nil if there is one Gatekit, or no such state.
	State shared.Values
	// IsReplica means that there are other replicas. Without State, a task that this process does
	// not know belongs to nobody.
	IsReplica bool
}

// Bounds of the shared state. A server decides how long it keeps a task, and may name any time.
const (
	shortestKept = time.Hour
	longestKept  = 7 * 24 * time.Hour

	// The tasks of one principal at one server are in this many groups, each of which is one value.
	groups          = 256
	maxTasksOfGroup = 64
	maxBytesOfGroup = 16 << 10

	// attempts to change a group that other tasks of the principal change at the same time
	maxAttempts = 32
)

// sharedTask is a task in a group.
type sharedTask struct {
	Digest []byte `json:"t"` // of the server's name and the id
	Name   string `json:"n"`
	Until  int64  `json:"u"` // second in which the server forgets the task
}

// digestSize is the number of bytes of a key that tell the tasks of a group apart.
const digestSize = 16

// groupKey returns the key of the group with the principal's task.
func groupKey(server, principal string, k key) shared.Key {
	return shared.Key{Kind: "task", Principal: principal,
		Name: shared.Join(server, strconv.Itoa(int(k[sha256.Size-1])%groups))}
}

// Create records that the principal created the task with this id at the server, which keeps it for
// the given time; 0 means that the server does not say. When Create returns without an error, all
// replicas know the task. After an error, only this process knows it, and the client must not learn
// the id.
func (o *Owners) Create(ctx context.Context, server, id, principal, name string,
	kept time.Duration) error {
	o.Add(server, id, principal, name)
	if o.State == nil {
		return nil
	}
	if kept <= 0 {
		kept = longestKept
	}
	kept = min(max(kept, shortestKept), longestKept)
	k := keyOf(server, id)
	at := groupKey(server, principal, k)
	for range maxAttempts {
		all, generation, err := o.group(ctx, at)
		if err != nil {
			return err
		}
		now := time.Now()
		value, ttl, err := addTo(all, sharedTask{k[:digestSize], name, now.Add(kept).Unix()}, now)
		if err != nil {
			return err
		}
		_, err = o.State.Swap(ctx, at, generation, value, ttl)
		if !errors.Is(err, shared.ErrChanged) && !errors.Is(err, shared.ErrLost) {
			return err
		}
	}
	return fmt.Errorf("%w: too many tasks are created at once", shared.ErrUnavailable)
}

// addTo returns the value of a group with one more task, and how long it must be kept. It leaves
// out the tasks whose time is over, and the oldest ones if there is no room.
func addTo(all []sharedTask, added sharedTask, now time.Time) (value []byte, ttl time.Duration,
	err error) {
	var kept []sharedTask
	for _, t := range all {
		if t.Until > now.Unix() && string(t.Digest) != string(added.Digest) {
			kept = append(kept, t)
		}
	}
	kept = append(kept, added)
	kept = kept[max(0, len(kept)-maxTasksOfGroup):]
	for {
		if value, err = json.Marshal(kept); err != nil {
			return nil, 0, err
		}
		if len(value) <= maxBytesOfGroup {
			break
		}
		if kept = kept[1:]; len(kept) == 0 {
			return nil, 0, fmt.Errorf("%w: the name of a task has %d bytes", shared.ErrFull,
				len(added.Name))
		}
	}
	for _, t := range kept {
		ttl = max(ttl, time.Unix(t.Until, 0).Sub(now))
	}
	return value, min(ttl, longestKept), nil
}

// group returns the tasks of a group. If the state was lost, group asks once more: then it is
// empty.
func (o *Owners) group(ctx context.Context, at shared.Key) (all []sharedTask, generation uint64,
	err error) {
	value, generation, err := o.State.Get(ctx, at)
	if errors.Is(err, shared.ErrLost) {
		value, generation, err = o.State.Get(ctx, at)
	}
	if err != nil || generation == 0 {
		return nil, 0, err
	}
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, 0, fmt.Errorf("shared tasks: %w", err)
	}
	return all, generation, nil
}

// Foreign returns those of the ids whose tasks the principal must not use. An error means that this
// is not known for at least one of them, which this process does not know itself.
func (o *Owners) Foreign(ctx context.Context, server, principal string, ids ...string) (
	foreign map[string]bool, err error) {
	found := map[shared.Key][]sharedTask{} // the groups that were asked for
	for _, id := range ids {
		switch may, err := o.mayUse(ctx, server, id, principal, found); {
		case err != nil:
			return nil, err
		case may:
			continue
		case foreign == nil:
			foreign = map[string]bool{}
		}
		foreign[id] = true
	}
	return foreign, nil
}

// mayUse reports whether the principal may use the task. found has the groups that were asked for.
func (o *Owners) mayUse(ctx context.Context, server, id, principal string,
	found map[shared.Key][]sharedTask) (bool, error) {
	if o.State == nil && !o.IsReplica {
		return !o.BelongsToOther(server, id, principal), nil
	}
	if _, known := o.Name(server, id, principal); known || o.State == nil {
		return known, nil
	}
	known, err := o.learn(ctx, server, id, principal, found)
	if !known { // the task may have been created through this process meanwhile
		_, known = o.Name(server, id, principal)
	}
	if known {
		return true, nil
	}
	return false, err
}

// learn reports whether the shared state has the principal's task. This process knows the task from
// then on.
func (o *Owners) learn(ctx context.Context, server, id, principal string,
	found map[shared.Key][]sharedTask) (bool, error) {
	k := keyOf(server, id)
	at := groupKey(server, principal, k)
	all, asked := found[at]
	if !asked {
		var err error
		if all, _, err = o.group(ctx, at); err != nil {
			return false, err
		}
		found[at] = all
	}
	for _, t := range all {
		if string(t.Digest) == string(k[:digestSize]) && t.Until > time.Now().Unix() {
			o.Add(server, id, principal, t.Name)
			return true, nil
		}
	}
	return false, nil
}
