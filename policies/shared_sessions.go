package policies

import (
	"context"
	"errors"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/core/shared"
)

// SharedSessions is where the replicas of Gatekit keep the labels and counts of calls of sessions
// together. Without it, each replica knows only what happened on itself.
//
// A message waits for the state only if a rule that can hold for it reads labels or counts, if it
// is counted, or if it gets a label. If the state is not available, such a message is denied. A
// label is in the state before the message that sets it moves on.
type SharedSessions struct {
	State interface {
		shared.Values
		shared.Tracker
		Lost() time.Time
	}
	// Idle is how long the state of a session is kept after its last message, at least. Messages
	// that need nothing of it renew it, too, once in a quarter of this time.
	Idle time.Duration
	// After the state was lost, the messages of the time Idle and a quarter of it give their
	// sessions the label LostLabel. If DenyLost is set, what needs the state is also denied for
	// this time.
	DenyLost bool
}

// LostLabel is the label of sessions whose labels and counts may be incomplete, because the state
// of the replicas was lost.
const LostLabel = "lost"

// principalLabelsFor is how long the shared labels of a principal are kept after they were last
// used, if labels are kept by principal.
const principalLabelsFor = 7 * 24 * time.Hour

// Reasons of denials.
const (
	sharedUnavailable = "shared state is not available"
	sharedLost        = "shared state was lost, and limits and labels may be incomplete"
)

// replicaState has what all replicas know about a session. The zero value means that the replica's
// own memory is all there is.
type replicaState struct {
	known  bool
	labels []string       // of the session, and of the principal if labels are kept by principal
	calls  map[string]int // as session.calls
	// as rateWindow.calls; nil if no rule reads it
	minute map[string]int
	undo   func(context.Context) // takes the count of the message back
}

// needsShared reports whether a message needs the state of the replicas.
func (s *Stage) needsShared(m *mcp.Message, session *session, mc messageContext) (bool, error) {
	if len(mc.labels) > 0 || s.countsShared(m) {
		return true, nil
	}
	if !readsSharedState(s.reads) {
		return false, nil
	}
	if canonical, err := canonicalMessage(m); err != nil || canonical != nil {
		return true, err // other rules can hold for the canonical spelling
	}
	q, err := s.selector.query(s.all, s.classOf(m, session, mc))
	if err != nil {
		return false, err
	}
	return readsSharedState(q.reads) ||
		len(s.hides.rules) > 0 && readsSharedState(s.hides.reads), nil
}

// countsShared reports whether a message is counted, and a rule reads the counts.
func (s *Stage) countsShared(m *mcp.Message) bool {
	key, _ := callKey(m)
	session := s.reads.below("session")
	_, calls := session.wants("calls")
	_, minute := session.wants("minute")
	return key != "" && (calls || minute)
}

// readsSharedState reports whether r has a member of input.session that all replicas know.
func readsSharedState(r readSet) bool {
	session := r.below("session")
	for _, name := range []string{"labels", "calls", "minute"} {
		if _, ok := session.wants(name); ok {
			return true
		}
	}
	return false
}

// share counts a message in the state of the replicas, adds the labels of earlier stages, and
// learns what the other replicas know. reason is why the message must be denied, or "".
func (s *Stage) share(ctx context.Context, session *session, m *mcp.Message,
	mc *messageContext) (state replicaState, reason string, err error) {
	state.undo = func(context.Context) {}
	if s.shared == nil {
		return state, "", nil
	}
	needed, err := s.needsShared(m, session, *mc)
	if err != nil {
		return state, "", err
	}
	if !needed {
		s.renewShared(ctx, session, m)
		return state, "", nil
	}
	_, minute := s.reads.below("session").wants("minute")
	c := shared.Change{Labels: mc.labels, Minute: minute, TTL: s.shared.ttl()}
	if s.countsShared(m) {
		key, tool := callKey(m)
		c.Counts = map[string]int{key: 1}
		if tool {
			c.Counts[""] = 1
		}
	}
	known, reason := s.track(ctx, sessionKey(m), c)
	if reason != "" {
		return state, reason, nil
	}
	session.setRenewal(time.Now().Add(s.shared.renewal()))
	undo := c.Counts
	state = replicaState{known: true, calls: known.Counts, minute: known.Minute,
		undo: func(ctx context.Context) {
			if len(undo) == 0 {
				return
			}
			back := map[string]int{}
			for name, n := range undo {
				back[name] = -n
			}
			// If this fails, the count is too high, which denies too much, not too little.
			_, _ = s.shared.State.Track(context.WithoutCancel(ctx), sessionKey(m),
				shared.Change{Counts: back, Minute: minute, At: known.At})
		}}
	labels := known.Labels
	if s.labelsByPrincipal {
		own, reason := s.track(ctx, principalKey(m),
			shared.Change{Labels: mc.labels, TTL: principalLabelsFor})
		if reason != "" {
			state.undo(ctx)
			return state, reason, nil
		}
		labels = union(labels, own.Labels)
	}
	if s.shared.isIncomplete() {
		if !slices.Contains(labels, LostLabel) { // other replicas may not know of the loss
			if reason := s.shareLabels(ctx, m, []string{LostLabel}); reason != "" {
				state.undo(ctx)
				return state, reason, nil
			}
			labels = append(slices.Clip(labels), LostLabel)
		}
		if s.shared.DenyLost {
			state.undo(ctx)
			return state, sharedLost, nil
		}
	}
	state.labels = labels
	mc.labels = union(slices.Clip(mc.labels), labels)
	return state, "", nil
}

// renewal is the time between two renewals of the state of a session that is in use.
func (s *SharedSessions) renewal() time.Duration { return s.Idle / 4 }

// ttl is how long the state of a session is kept after a renewal.
func (s *SharedSessions) ttl() time.Duration { return s.Idle + s.renewal() }

// isIncomplete reports whether the state of a session that is in use may have been lost lately. A
// session in use is renewed within this time after a loss, however few messages it has.
func (s *SharedSessions) isIncomplete() bool {
	since := s.State.Lost()
	return !since.IsZero() && time.Since(since) < s.ttl()
}

// renewShared keeps the state of a session that is in use, although its messages need nothing of
// it: otherwise, a session could wait until its labels are forgotten, or until the loss of its
// labels is. If the state is not available now, a later message tries again, long before the time
// is over.
func (s *Stage) renewShared(ctx context.Context, session *session, m *mcp.Message) {
	now := time.Now()
	if !readsSharedState(s.reads) || !session.takeRenewal(now, now.Add(s.shared.renewal()/4)) {
		return
	}
	_, reason := s.track(ctx, sessionKey(m), shared.Change{TTL: s.shared.ttl()})
	if reason == "" && s.shared.isIncomplete() {
		reason = s.shareLabels(ctx, m, []string{LostLabel})
	}
	if reason == "" {
		session.setRenewal(now.Add(s.shared.renewal()))
	}
}

// takeRenewal reports whether the shared state of the session must be renewed, and sets the time of
// the next attempt. The first message on this replica renews it.
func (s *session) takeRenewal(now, next time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.nextRenewal) {
		return false
	}
	s.nextRenewal = next
	return true
}

func (s *session) setRenewal(next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextRenewal = next
}

// shareLabels adds labels in the state of the replicas. reason is why the message that sets them
// must be denied, or "".
func (s *Stage) shareLabels(ctx context.Context, m *mcp.Message, labels []string) (reason string) {
	if s.shared == nil || len(labels) == 0 {
		return ""
	}
	_, reason = s.track(ctx, sessionKey(m), shared.Change{Labels: labels, TTL: s.shared.ttl()})
	if reason == "" && s.labelsByPrincipal {
		_, reason = s.track(ctx, principalKey(m),
			shared.Change{Labels: labels, TTL: principalLabelsFor})
	}
	return reason
}

// track changes the state of the replicas. If the state was lost, it tries once more: then the
// state is empty, and Lost tells so.
func (s *Stage) track(ctx context.Context, k shared.Key, c shared.Change) (known shared.Tracked,
	reason string) {
	known, err := s.shared.State.Track(ctx, k, c)
	if errors.Is(err, shared.ErrLost) {
		known, err = s.shared.State.Track(ctx, k, c)
	}
	switch {
	case errors.Is(err, shared.ErrFull):
		return known, "the session has too many labels, or has called too many different tools"
	case err != nil:
		return known, sharedUnavailable
	}
	return known, ""
}

// sharedDenial returns the verdict about a message that is denied for its shared state.
func sharedDenial(reason string) pipeline.Verdict {
	return pipeline.Verdict{Action: pipeline.Deny, Reason: reason,
		Temporary: reason == sharedUnavailable}
}

func sessionKey(m *mcp.Message) shared.Key {
	return shared.Key{Kind: "session", Principal: m.Principal.ID(), Name: m.Session}
}

func principalKey(m *mcp.Message) shared.Key {
	return shared.Key{Kind: "principal", Principal: m.Principal.ID()}
}
