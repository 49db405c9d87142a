package valkey

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gatekit/core/shared"

	"github.com/valkey-io/valkey-go"
)

// Track implements shared.Tracker.
func (s *Store) Track(ctx context.Context, k shared.Key, c shared.Change) (shared.Tracked, error) {
	if err := c.Check(k); err != nil {
		return shared.Tracked{}, err
	}
	minute := "0"
	if c.Minute {
		minute = "1"
	}
	args := []string{millis(c.TTL), minute, strconv.FormatInt(c.At, 10),
		strconv.Itoa(shared.MaxLabels), strconv.Itoa(shared.MaxCounts),
		strconv.Itoa(shared.MaxBuckets), strconv.Itoa(len(c.Labels))}
	for _, l := range c.Labels {
		sealed, err := s.o.Ring.Seal(s.o.Ring.Key(k), []byte(l))
		if err != nil {
			return shared.Tracked{}, err
		}
		args = append(args, s.o.Ring.Name(k, l).String(), string(sealed))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Counts)) {
		sealed, err := s.o.Ring.Seal(s.o.Ring.Key(k), []byte(name))
		if err != nil {
			return shared.Tracked{}, err
		}
		args = append(args, s.o.Ring.Name(k, name).String(), strconv.Itoa(c.Counts[name]),
			string(sealed))
	}
	_, epoch, _ := s.state()
	answer, err := s.run(ctx, "track", call{script: s.scripts.track,
		keys: s.keys(k, "track", "minute"), args: args,
		copies: len(c.Labels) > 0})
	if err != nil {
		return shared.Tracked{}, err
	}
	if len(answer) == 1 {
		if text, err := answer[0].ToString(); err == nil && text == "full" {
			return shared.Tracked{}, fmt.Errorf("%w: too many labels or counts of one %s",
				shared.ErrFull, k.Kind)
		}
	}
	known, generation, err := s.tracked(k, answer)
	if err != nil {
		return shared.Tracked{}, s.unavailable(err)
	}
	s.sawGeneration(epoch, generation)
	if !c.Minute {
		known.Minute = nil
	}
	if len(c.Labels)+len(c.Counts) == 0 {
		known.At = 0
	}
	return known, nil
}

// tracked returns the answer of the script.
func (s *Store) tracked(k shared.Key, answer []valkey.ValkeyMessage) (known shared.Tracked,
	generation uint64, err error) {
	if len(answer) != 5 {
		return known, 0, errAnswer
	}
	head, err := texts(answer[1:3], 2)
	if err != nil {
		return known, 0, err
	}
	if known.At, err = strconv.ParseInt(head[0], 10, 64); err != nil {
		return known, 0, errAnswer
	}
	if generation, err = s.generationOf(head[1]); err != nil {
		return known, 0, err
	}
	fields, err := pairs(answer[3])
	if err != nil {
		return known, 0, err
	}
	names, err := s.trackedFields(k, fields, &known)
	if err != nil {
		return known, 0, err
	}
	last, err := pairs(answer[4])
	if err != nil {
		return known, 0, err
	}
	known.Minute = map[string]int{}
	for field, text := range last {
		hidden, _, _ := strings.Cut(field, ":")
		n, err := strconv.Atoi(text)
		if err != nil {
			return known, 0, errAnswer
		}
		if name, ok := names[hidden]; ok {
			known.Minute[name] += n
		}
	}
	return known, generation, nil
}

// trackedFields stores the labels and counts in known, and returns the counted names by their
// hidden names.
func (s *Store) trackedFields(k shared.Key, fields map[string]string,
	known *shared.Tracked) (names map[string]string, err error) {
	type label struct {
		number int
		text   string
	}
	var labels []label
	names, known.Counts = map[string]string{}, map[string]int{}
	for field, stored := range fields {
		what, hidden, _ := strings.Cut(field, ":")
		switch what {
		case "l":
			number, sealed, _ := strings.Cut(stored, ":")
			n, err := strconv.Atoi(number)
			if err != nil {
				return nil, errAnswer
			}
			text, err := s.openName(k, hidden, sealed)
			if err != nil {
				return nil, err
			}
			labels = append(labels, label{n, text})
		case "n":
			if names[hidden], err = s.openName(k, hidden, stored); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.number, b.number) })
	for _, l := range labels {
		known.Labels = append(known.Labels, l.text)
	}
	for hidden, name := range names {
		if known.Counts[name], err = strconv.Atoi(fields["c:"+hidden]); err != nil {
			return nil, errAnswer
		}
	}
	return names, nil
}

// openName returns the text of a label or a counted name, whose hidden name must be hidden.
func (s *Store) openName(k shared.Key, hidden, sealed string) (string, error) {
	text, err := s.o.Ring.Open(s.o.Ring.Key(k), []byte(sealed))
	if err != nil {
		return "", err
	}
	if s.o.Ring.Name(k, string(text)).String() != hidden {
		return "", errMoved
	}
	return string(text), nil
}

// pairs returns an array of names and values as a map.
func pairs(m valkey.ValkeyMessage) (map[string]string, error) {
	list, err := m.ToArray()
	if err != nil {
		return nil, err
	}
	text, err := texts(list, 0)
	if err != nil || len(text)%2 != 0 {
		return nil, errAnswer
	}
	all := make(map[string]string, len(text)/2)
	for pair := range slices.Chunk(text, 2) {
		all[pair[0]] = pair[1]
	}
	return all, nil
}
