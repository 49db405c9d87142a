package valkey

import (
	"context"
	"strconv"
	"time"

	"gatekit/core/shared"
)

// Admit implements shared.Admitter.
func (s *Store) Admit(ctx context.Context, a shared.Admission) (shared.Admitted, error) {
	if err := a.Check(); err != nil {
		return shared.Admitted{}, err
	}
	args := []string{s.lease(a.Lease), millis(a.TTL)}
	var keys []string
	for _, l := range a.Limits {
		interval := l.Interval().Microseconds()
		keys = append(keys, s.keys(l.Key, "rate", "open")...)
		args = append(args, strconv.FormatInt(interval, 10),
			strconv.FormatInt(interval*int64(max(l.Burst, 1)-1), 10), strconv.Itoa(l.Concurrent))
	}
	answer, err := s.run(ctx, "admit", call{script: s.scripts.admit, keys: keys, args: args})
	if err != nil {
		return shared.Admitted{}, err
	}
	text, err := texts(answer, 1)
	switch {
	case err != nil:
		return shared.Admitted{}, s.unavailable(err)
	case text[0] == "ok":
		return shared.Admitted{Refused: -1}, nil
	case len(text) != 3:
		return shared.Admitted{}, s.unavailable(errAnswer)
	}
	index, err := strconv.Atoi(text[0])
	if err != nil || index < 0 || index >= len(a.Limits) {
		return shared.Admitted{}, s.unavailable(errAnswer)
	}
	wait, err := strconv.ParseInt(text[2], 10, 64)
	if err != nil {
		return shared.Admitted{}, s.unavailable(errAnswer)
	}
	return shared.Admitted{Refused: index, TooMany: text[1] == "1",
		RetryAfter: time.Duration(wait) * time.Microsecond}, nil
}

// lease returns the hidden name of a lease; "" if there is none.
func (s *Store) lease(name string) string {
	if name == "" {
		return ""
	}
	return s.o.Ring.Name(shared.Key{Kind: "lease"}, name).String()
}

// Renew implements shared.Admitter.
func (s *Store) Renew(ctx context.Context, l shared.Lease, ttl time.Duration) error {
	if err := shared.CheckLease(l, ttl); err != nil {
		return err
	}
	_, err := s.run(ctx, "renew", call{script: s.scripts.renew, keys: s.leaseKeys(l),
		args: []string{s.lease(l.Name), millis(ttl)}})
	return err
}

// Release implements shared.Admitter.
func (s *Store) Release(ctx context.Context, l shared.Lease) error {
	if err := shared.CheckLease(l, time.Second); err != nil {
		return err
	}
	_, err := s.run(ctx, "release", call{script: s.scripts.release, keys: s.leaseKeys(l),
		args: []string{s.lease(l.Name)}})
	return err
}

func (s *Store) leaseKeys(l shared.Lease) (keys []string) {
	for _, k := range l.Keys {
		keys = append(keys, s.key("open", k))
	}
	return keys
}
