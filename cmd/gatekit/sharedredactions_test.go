package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/pipeline"
	"gatekit/core/shared"
	"gatekit/core/shared/sharedtest"
)

// TestSharedRedactions has two replicas that share a store.
func TestSharedRedactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := sharedtest.NewFaulty(&shared.Memory{})
		var log bytes.Buffer
		var replicas []*sharedRedactions
		for range 2 {
			replicas = append(replicas, &sharedRedactions{state: state,
				log: slog.New(slog.NewTextHandler(&log, nil))})
		}
		a, b := replicas[0], replicas[1]
		key := pipeline.SharedKey{Principal: "ann", Session: "principal-ann", Placeholder: "[p]"}
		put := func(k pipeline.SharedKey, server, value string) {
			t.Helper()
			if err := a.Put(t.Context(), k, pipeline.SharedValue{Stage: "secrets", Server: server,
				Value: value, Expires: time.Now().Add(time.Hour)}); err != nil {
				t.Errorf("put %s: %v", value, err)
			}
		}
		want := func(what string, k pipeline.SharedKey, value string) {
			t.Helper()
			v, ok, err := b.Get(t.Context(), k)
			if err != nil || ok != (value != "") || v.Value != value ||
				ok && (v.Stage != "secrets" || v.Server != "files") {
				t.Errorf("%s: got %+v, %t and the error %v, want %q", what, v, ok, err, value)
			}
		}
		want("before", key, "")
		put(key, "files", "s3cret\xff")
		want("a value that is no text", key, "s3cret\xff")
		put(key, "mail", "other")
		want("a value of another server", key, "s3cret\xff")
		time.Sleep(59 * time.Minute)
		put(key, "files", "new")
		time.Sleep(59 * time.Minute)
		want("stored again", key, "new")
		for what, k := range map[string]pipeline.SharedKey{
			"another principal":   {Principal: "bob", Session: "principal-ann", Placeholder: "[p]"},
			"another session":     {Principal: "ann", Session: "principal-bob", Placeholder: "[p]"},
			"another placeholder": {Principal: "ann", Session: "principal-ann", Placeholder: "[q]"},
		} {
			want(what, k, "")
		}
		time.Sleep(time.Minute)
		want("expired", key, "")

		legacy := pipeline.SharedKey{Principal: "ann", Session: "session-1", Placeholder: "[p]"}
		state.Fail(shared.ErrUnavailable)
		put(legacy, "files", "v")
		want("a legacy session", legacy, "")
		if err := a.Remove(t.Context(), legacy); err != nil {
			t.Errorf("remove a value of a legacy session: %v", err)
		}
		if log.Len() > 0 {
			t.Errorf("the log is %s", &log)
		}
		for range 2 {
			if err := a.Put(t.Context(), key, pipeline.SharedValue{
				Expires: time.Now().Add(time.Hour)}); !errors.Is(err, shared.ErrUnavailable) {
				t.Errorf("put without the store: %v", err)
			}
			if _, ok, err := a.Get(t.Context(), key); ok || !errors.Is(err,
				shared.ErrUnavailable) {
				t.Errorf("get without the store: %t, %v", ok, err)
			}
			if err := a.Remove(t.Context(), key); !errors.Is(err, shared.ErrUnavailable) {
				t.Errorf("remove without the store: %v", err)
			}
		}
		state.Fail(nil)
		put(key, "files", "v")
		put(key, "files", "v")
		if got := log.String(); strings.Count(got, "redacted values not shared") != 1 ||
			strings.Count(got, "redacted values are shared again") != 1 {
			t.Errorf("the log is %s, want one line each", got)
		}

		state.Lose()
		put(key, "files", "after the loss")
		want("after the loss", key, "after the loss")
		state.Lose()
		want("lost", key, "")
		put(key, "files", "v")
		if err := a.Remove(t.Context(), key); err != nil {
			t.Error(err)
		}
		want("removed", key, "")
		state.Lose()
		if err := a.Remove(t.Context(), key); err != nil {
			t.Errorf("remove a lost value: %v", err)
		}
	})
}
