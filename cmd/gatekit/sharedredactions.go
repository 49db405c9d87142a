package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"gatekit/core/pipeline"
	"gatekit/core/shared"
)

// sharedRedactions keeps the values that plugins redacted for all replicas. It implements
// pipeline.SharedValues. It shares nothing of legacy sessions and pipes, which one replica serves.
type sharedRedactions struct {
	state   shared.Values
	log     *slog.Logger
	failing atomic.Bool // whether the last call failed, which was logged
}

// redaction is a redacted value in the shared state.
type redaction struct {
	Stage   string    `json:"stage"`
	Server  string    `json:"server"`
	Value   []byte    `json:"value"` // it may have bytes that are no text
	Expires time.Time `json:"expires"`
}

func redactionKey(k pipeline.SharedKey) shared.Key {
	return shared.Key{Kind: "redacted", Principal: k.Principal,
		Name: shared.Join(k.Session, k.Placeholder)}
}

// Put implements pipeline.SharedValues.
func (s *sharedRedactions) Put(ctx context.Context, k pipeline.SharedKey,
	v pipeline.SharedValue) error {
	if !shared.IsSessionName(k.Session) {
		return nil
	}
	value, err := json.Marshal(redaction{v.Stage, v.Server, []byte(v.Value), v.Expires})
	if err == nil {
		err = s.put(ctx, redactionKey(k), v, value)
	}
	return s.noted(ctx, err)
}

// redactionAttempts is how often a value is stored if other replicas store it at the same time.
const redactionAttempts = 3

func (s *sharedRedactions) put(ctx context.Context, k shared.Key, v pipeline.SharedValue,
	value []byte) error {
	var was uint64
	for range redactionAttempts {
		ttl := time.Until(v.Expires)
		if ttl <= 0 {
			return nil
		}
		_, err := s.state.Swap(ctx, k, was, value, ttl)
		if errors.Is(err, shared.ErrLost) {
			was = 0
			continue
		}
		if !errors.Is(err, shared.ErrChanged) {
			return err
		}
		old, generation, err := s.get(ctx, k)
		if err != nil {
			return err
		}
		if was = generation; was != 0 && old.Server != v.Server {
			return nil
		}
	}
	return nil // another replica has just stored it
}

// Get implements pipeline.SharedValues.
func (s *sharedRedactions) Get(ctx context.Context, k pipeline.SharedKey) (pipeline.SharedValue,
	bool, error) {
	if !shared.IsSessionName(k.Session) {
		return pipeline.SharedValue{}, false, nil
	}
	v, generation, err := s.get(ctx, redactionKey(k))
	if err = s.noted(ctx, err); err != nil || generation == 0 {
		return pipeline.SharedValue{}, false, err
	}
	return pipeline.SharedValue{Stage: v.Stage, Server: v.Server, Value: string(v.Value),
		Expires: v.Expires}, true, nil
}

// get returns a value and its generation, which is 0 if there is none.
func (s *sharedRedactions) get(ctx context.Context, k shared.Key) (v redaction, generation uint64,
	err error) {
	b, generation, err := s.state.Get(ctx, k)
	if errors.Is(err, shared.ErrLost) {
		b, generation, err = s.state.Get(ctx, k)
	}
	if err != nil || generation == 0 {
		return v, 0, err
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, 0, fmt.Errorf("a redacted value in the shared state: %w", err)
	}
	return v, generation, nil
}

// Remove implements pipeline.SharedValues.
func (s *sharedRedactions) Remove(ctx context.Context, k pipeline.SharedKey) error {
	if !shared.IsSessionName(k.Session) {
		return nil
	}
	_, _, err := s.state.Take(ctx, redactionKey(k))
	if errors.Is(err, shared.ErrLost) {
		err = nil // the value is lost, too
	}
	return s.noted(ctx, err)
}

// noted logs when values can no longer be shared, and when they can again. It returns err.
func (s *sharedRedactions) noted(ctx context.Context, err error) error {
	switch {
	case err == nil && s.failing.Swap(false):
		s.log.Info("redacted values are shared again")
	case err != nil && ctx.Err() == nil && !s.failing.Swap(true):
		s.log.Warn("redacted values not shared: other replicas cannot restore them", "error", err)
	}
	return err
}
