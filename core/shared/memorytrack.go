package shared

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// What a label and a count of one second need, roughly, in addition to their names.
const (
	labelBytes  = 16
	bucketBytes = 40
)

// memoryTrack has the labels and counts of a key in a Memory.
type memoryTrack struct {
	labels  []string
	counts  map[string]int
	minute  map[string]map[int64]int // by name and second
	buckets int                      // the number of counts in minute
	expires time.Time
	bytes   int
}

// track returns what is tracked for a key, or nil. m.mu must be held.
func (m *Memory) track(k Key, now time.Time) *memoryTrack {
	t := m.tracked[k]
	if t != nil && hasExpired(t.expires, now) {
		delete(m.tracked, k)
		m.bytes -= keyBytes(k) + t.bytes
		return nil
	}
	return t
}

// Track implements Tracker.
func (m *Memory) Track(ctx context.Context, k Key, c Change) (Tracked, error) {
	if err := c.Check(k); err != nil {
		return Tracked{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	t := m.track(k, now)
	isNew := t == nil
	if isNew {
		t = &memoryTrack{counts: map[string]int{}, minute: map[string]map[int64]int{}}
	}
	if len(c.Labels)+len(c.Counts) == 0 && (isNew || c.TTL == 0) {
		return t.read(c.Minute, now), nil
	}
	t.dropOldSeconds(now)
	second := cmp.Or(c.At, now.Unix())
	need, fits := t.growth(c, second)
	if !fits {
		return Tracked{}, fmt.Errorf("%w: too many labels or counts of one %s", ErrFull, k.Kind)
	}
	if isNew {
		need += keyBytes(k)
	}
	if err := m.reserve(need, now); err != nil {
		return Tracked{}, err
	}
	if isNew {
		if m.tracked == nil {
			m.tracked = map[Key]*memoryTrack{}
		}
		m.tracked[k] = t
		m.bytes += keyBytes(k)
	}
	t.apply(c, second, now)
	m.bytes -= t.bytes
	t.bytes = t.size()
	m.bytes += t.bytes
	known := t.read(c.Minute, now)
	known.At = second
	return known, nil
}

// growth returns how many bytes a change needs at most. fits is false if the change would exceed a
// bound.
func (t *memoryTrack) growth(c Change, second int64) (bytes int, fits bool) {
	labels, counts, buckets := len(t.labels), len(t.counts), t.buckets
	for i, l := range c.Labels {
		if !slices.Contains(t.labels, l) && !slices.Contains(c.Labels[:i], l) {
			labels++
			bytes += labelBytes + len(l)
		}
	}
	for name, n := range c.Counts {
		if n <= 0 {
			continue
		}
		if t.counts[name] == 0 {
			counts++
			bytes += entryBytes + len(name)
		}
		if c.Minute && t.minute[name][second] == 0 {
			buckets++
			bytes += bucketBytes + entryBytes + len(name)
		}
	}
	return bytes, labels <= MaxLabels && counts <= MaxCounts && buckets <= MaxBuckets
}

func (t *memoryTrack) apply(c Change, second int64, now time.Time) {
	for _, l := range c.Labels {
		if !slices.Contains(t.labels, l) {
			t.labels = append(t.labels, l)
		}
	}
	for name, n := range c.Counts {
		if t.counts[name] = t.counts[name] + n; t.counts[name] <= 0 {
			delete(t.counts, name)
		}
		if !c.Minute {
			continue
		}
		seconds := t.minute[name]
		if seconds == nil {
			seconds = map[int64]int{}
			t.minute[name] = seconds
		}
		before := len(seconds)
		if seconds[second] += n; seconds[second] <= 0 {
			delete(seconds, second)
		}
		t.buckets += len(seconds) - before
	}
	if c.TTL > 0 {
		t.expires = now.Add(c.TTL)
	}
}

// isOldSecond reports whether what was counted in a second is more than a minute old.
func isOldSecond(second int64, now time.Time) bool { return second < now.Unix()-60 }

func (t *memoryTrack) dropOldSeconds(now time.Time) {
	for name, seconds := range t.minute {
		before := len(seconds)
		maps.DeleteFunc(seconds, func(s int64, _ int) bool { return isOldSecond(s, now) })
		t.buckets += len(seconds) - before
		if len(seconds) == 0 {
			delete(t.minute, name)
		}
	}
}

// size returns roughly how many bytes the labels and counts need.
func (t *memoryTrack) size() int {
	n := 0
	for _, l := range t.labels {
		n += len(l) + labelBytes
	}
	for name := range t.counts {
		n += len(name) + entryBytes
	}
	for name, seconds := range t.minute {
		n += len(name) + entryBytes + bucketBytes*len(seconds)
	}
	return n
}

func (t *memoryTrack) read(minute bool, now time.Time) Tracked {
	known := Tracked{Labels: slices.Clone(t.labels), Counts: maps.Clone(t.counts)}
	if minute {
		known.Minute = map[string]int{}
		for name, seconds := range t.minute {
			for second, n := range seconds {
				if !isOldSecond(second, now) {
					known.Minute[name] += n
				}
			}
		}
	}
	return known
}
