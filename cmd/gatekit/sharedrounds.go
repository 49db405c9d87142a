package main

import (
	"context"
	"errors"
	"time"

	"gatekit/core/shared"
)

// sharedRounds remembers for all replicas which questions of modern servers clients have answered.
// It implements proxy.AnsweredRounds.
type sharedRounds struct {
	state interface {
		shared.Values
		Lost() time.Time
	}
}

// clockSkew is how much the clocks of replicas may differ. Replicas refuse each other's requests if
// their clocks differ by more (transport/cluster).
const clockSkew = 30 * time.Second

// Use implements proxy.AnsweredRounds. If the state was lost since the server asked, nobody knows
// whether the client has answered, and Use returns false.
func (s sharedRounds) Use(ctx context.Context, principal, id string, made, until time.Time) (
	bool, error) {
	// A replica whose clock is behind takes the answers for longer.
	ttl := max(time.Until(until), 0) + 2*clockSkew
	_, err := s.state.Swap(ctx, shared.Key{Kind: "round", Principal: principal, Name: id}, 0,
		[]byte{}, ttl)
	switch {
	case errors.Is(err, shared.ErrChanged), errors.Is(err, shared.ErrLost):
		return false, nil
	case err != nil:
		return false, err
	}
	lost := s.state.Lost()
	if lost.IsZero() {
		return true, nil
	}
	// The replica that asked may have a clock that is ahead.
	return made.After(lost.Add(clockSkew)), nil
}
