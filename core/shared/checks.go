package shared

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// The checks below are the same in all stores, so that a mistake of a caller is found with each of
// them.

// CheckSwap returns an error if Swap cannot be called with these values.
func CheckSwap(k Key, value []byte, ttl time.Duration) error {
	limit := MaxValue
	if k.Listed {
		limit = MaxListedValue
	}
	switch err := k.check(); {
	case err != nil:
		return err
	case len(value) > limit:
		return fmt.Errorf("%w: a %s has %d bytes, and may have %d", ErrFull, k.Kind, len(value),
			limit)
	}
	return checkTTL(ttl)
}

// CheckKey returns an error if no value can have the key.
func CheckKey(k Key) error { return k.check() }

// Check returns an error if the admission cannot be used.
func (a Admission) Check() error {
	if len(a.Limits) > MaxLimits {
		return fmt.Errorf("%w: an admission has %d limits, and may have %d", ErrFull,
			len(a.Limits), MaxLimits)
	}
	concurrent := false
	for i, l := range a.Limits {
		if err := l.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(a.Limits[:i], func(o Limit) bool { return o.Key == l.Key }) {
			return fmt.Errorf("two limits of an admission have the same key %q", l.Key.Kind)
		}
		concurrent = concurrent || l.Concurrent > 0
	}
	switch {
	case concurrent && a.Lease == "":
		return errors.New("an admission with open requests has no name for its lease")
	case concurrent && a.TTL <= 0:
		return errors.New("an admission with open requests has no time for its lease")
	case len(a.Lease) > MaxName:
		return fmt.Errorf("%w: the name of a lease has more than %d bytes", ErrFull, MaxName)
	}
	return checkTTL(a.TTL)
}

func (l Limit) check() error {
	if err := l.Key.check(); err != nil {
		return err
	}
	switch {
	case l.Rate < 0 || l.Concurrent < 0 || l.Concurrent > MaxLeases:
		return fmt.Errorf("limit %q: invalid numbers", l.Key.Kind)
	case l.Rate > 0 && (l.Burst < 1 || l.Per < time.Millisecond || l.Interval() == 0):
		return fmt.Errorf("limit %q: a rate needs a burst of at least 1 and a time of at least 1ms",
			l.Key.Kind)
	}
	if l.Rate > 0 && l.Burst > int(maxTTL/l.Interval()) {
		return fmt.Errorf("limit %q: the burst is too large", l.Key.Kind)
	}
	return nil
}

// Interval returns the time that one event takes from the rate, rounded up to microseconds, so that
// no store admits more than the rate.
func (l Limit) Interval() time.Duration {
	if l.Rate == 0 {
		return 0
	}
	micros := (l.Per.Microseconds() + int64(l.Rate) - 1) / int64(l.Rate)
	return time.Duration(micros) * time.Microsecond
}

// CheckLease returns an error if the lease cannot be renewed for ttl.
func CheckLease(l Lease, ttl time.Duration) error {
	if l.Name == "" || ttl <= 0 {
		return errors.New("a lease needs a name, and a time")
	}
	if len(l.Keys) > MaxLimits || len(l.Name) > MaxName {
		return fmt.Errorf("%w: a lease has too many keys, or its name is too long", ErrFull)
	}
	for _, k := range l.Keys {
		if err := k.check(); err != nil {
			return err
		}
	}
	return checkTTL(ttl)
}

// Check returns an error if the change cannot be used.
func (c Change) Check(k Key) error {
	if err := k.check(); err != nil {
		return err
	}
	for _, l := range c.Labels {
		if len(l) > MaxName {
			return fmt.Errorf("%w: a label has more than %d bytes", ErrFull, MaxName)
		}
	}
	for name := range c.Counts {
		if len(name) > MaxName {
			return fmt.Errorf("%w: a counted name has more than %d bytes", ErrFull, MaxName)
		}
	}
	if len(c.Labels) > MaxLabels || len(c.Counts) > MaxCounts {
		return fmt.Errorf("%w: a change has too many labels or counts", ErrFull)
	}
	return checkTTL(c.TTL)
}

// maxTTL is the longest time for which something can be kept, if not for ever.
const maxTTL = 10 * 365 * 24 * time.Hour

func checkTTL(ttl time.Duration) error {
	if ttl < 0 || ttl > maxTTL || ttl > 0 && ttl < time.Millisecond {
		return fmt.Errorf("%v is not a time for which shared state can be kept", ttl)
	}
	return nil
}
