package valkey_test

import (
	"strings"
	"testing"
	"time"

	"gatekit/core/shared"
	"gatekit/test/redistest"
	"gatekit/transport/valkey"
)

// BenchmarkStore measures one caller at a server on the same machine.
func BenchmarkStore(b *testing.B) {
	server := redistest.Start(b)
	ring, err := shared.NewRing([]byte(strings.Repeat("k", 32)))
	if err != nil {
		b.Fatal(err)
	}
	s, err := valkey.Open(b.Context(), valkey.Options{Address: server.Addr, Ring: ring,
		Prefix: "gatekit:", Timeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	limits := []shared.Limit{
		{Key: shared.Key{Kind: "rate", Principal: "p", Name: "tool"}, Rate: 1e6, Per: time.Second,
			Burst: 1e6},
		{Key: shared.Key{Kind: "rate", Principal: "p"}, Rate: 1e6, Per: time.Second, Burst: 1e6},
	}
	for name, call := range map[string]func() error{
		"Get": func() error { _, _, err := s.Get(b.Context(), aKey); return err },
		"Admit": func() error {
			_, err := s.Admit(b.Context(), shared.Admission{Limits: limits})
			return err
		},
		"Track": func() error {
			_, err := s.Track(b.Context(), aKey, shared.Change{Counts: map[string]int{"": 1,
				"files read": 1}, TTL: time.Hour})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
