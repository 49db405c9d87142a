package valkey

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gatekit/core/shared"

	"github.com/valkey-io/valkey-go"
)

// key returns the name of a key of the server. what tells the uses of one shared.Key apart.
func (s *Store) key(what string, k shared.Key) string { return s.keys(k, what)[0] }

// keys returns the names of the keys of the server for several uses of one shared.Key.
func (s *Store) keys(k shared.Key, uses ...string) []string {
	group, name := s.o.Ring.Group(k), s.o.Ring.Key(k).String()
	names := make([]string, len(uses))
	for i, what := range uses {
		names[i] = s.groupPrefix(what, group) + name
	}
	return names
}

// groupPrefix returns the beginning of the names of all keys of a group.
func (s *Store) groupPrefix(what string, group shared.Hidden) string {
	return s.o.Prefix + what + "{" + group.String() + "}"
}

// valueKeys returns the keys of a value: its own, and those of its kind if it is listed.
func (s *Store) valueKeys(k shared.Key) []string {
	keys := []string{s.key("value", k)}
	if k.Listed {
		keys = append(keys, s.kindKeys(k.Kind)...)
	}
	return keys
}

// kindKeys returns the keys of the index and of the version of a kind.
func (s *Store) kindKeys(kind string) []string {
	group := s.o.Ring.Kind(kind)
	return []string{s.groupPrefix("index", group), s.groupPrefix("version", group)}
}

// seal returns a value as it is stored. A listed value also has the principal and the name, which
// List returns.
func (s *Store) seal(k shared.Key, value []byte) (string, error) {
	h := s.o.Ring.Key(k)
	if k.Listed {
		h = s.o.Ring.Kind(k.Kind)
		b := binary.AppendUvarint(nil, uint64(len(k.Principal)))
		b = append(b, k.Principal...)
		b = binary.AppendUvarint(b, uint64(len(k.Name)))
		b = append(b, k.Name...)
		value = append(b, value...)
	}
	sealed, err := s.o.Ring.Seal(h, value)
	return string(sealed), err
}

// open returns a value, and its key if the value is listed.
func (s *Store) open(k shared.Key, sealed string) (shared.Key, []byte, error) {
	if !k.Listed {
		value, err := s.o.Ring.Open(s.o.Ring.Key(k), []byte(sealed))
		return k, value, err
	}
	b, err := s.o.Ring.Open(s.o.Ring.Kind(k.Kind), []byte(sealed))
	if err != nil {
		return k, nil, err
	}
	for _, part := range []*string{&k.Principal, &k.Name} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return k, nil, s.unavailable(errAnswer)
		}
		*part = string(b[size : size+int(n)])
		b = b[size+int(n):]
	}
	return k, b, nil
}

// opened returns the value of a key. The value must not be that of another key.
func (s *Store) opened(k shared.Key, sealed string) ([]byte, error) {
	found, value, err := s.open(k, sealed)
	if err == nil && found != k {
		err = s.unavailable(errMoved)
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

var errMoved = fmt.Errorf("a value was put in the place of another one")

// generationOf parses a generation.
func (s *Store) generationOf(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, s.unavailable(errAnswer)
	}
	return n, nil
}

// Get implements shared.Values.
func (s *Store) Get(ctx context.Context, k shared.Key) (value []byte, generation uint64,
	err error) {
	if err := shared.CheckKey(k); err != nil {
		return nil, 0, err
	}
	answer, err := s.run(ctx, "get", call{script: s.scripts.get, keys: []string{s.key("value", k)}})
	if err != nil || len(answer) == 0 {
		return nil, 0, err
	}
	text, err := texts(answer, 2)
	if err != nil {
		return nil, 0, s.unavailable(err)
	}
	if generation, err = s.generationOf(text[0]); err != nil {
		return nil, 0, err
	}
	if value, err = s.opened(k, text[1]); err != nil {
		return nil, 0, err
	}
	return value, generation, nil
}

// Swap implements shared.Values.
func (s *Store) Swap(ctx context.Context, k shared.Key, was uint64, value []byte,
	ttl time.Duration) (generation uint64, err error) {
	if err := shared.CheckSwap(k, value, ttl); err != nil {
		return 0, err
	}
	args := []string{strconv.FormatUint(was, 10), s.o.Ring.Key(k).String(), millis(ttl),
		strconv.Itoa(shared.MaxListed)}
	if value != nil {
		sealed, err := s.seal(k, value)
		if err != nil {
			return 0, err
		}
		args = append(args, sealed)
	}
	_, epoch, _ := s.state()
	answer, err := s.run(ctx, "swap", call{script: s.scripts.swap, keys: s.valueKeys(k), args: args,
		copies: true})
	if err != nil {
		return 0, err
	}
	text, err := texts(answer, 1)
	switch {
	case err != nil:
		return 0, s.unavailable(err)
	case text[0] == "changed":
		return 0, shared.ErrChanged
	case text[0] == "full":
		return 0, fmt.Errorf("%w: there are %d values of the kind %s", shared.ErrFull,
			shared.MaxListed, k.Kind)
	case text[0] != "ok" || len(text) < 2:
		return 0, s.unavailable(errAnswer)
	}
	if generation, err = s.generationOf(text[1]); err != nil {
		return 0, err
	}
	s.sawGeneration(epoch, generation)
	if value == nil {
		return 0, nil
	}
	return generation, nil
}

// millis returns a time as the scripts take it, rounded up.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// Take implements shared.Values.
func (s *Store) Take(ctx context.Context, k shared.Key) (value []byte, ok bool, err error) {
	if err := shared.CheckKey(k); err != nil {
		return nil, false, err
	}
	_, epoch, _ := s.state()
	answer, err := s.run(ctx, "take", call{script: s.scripts.take, keys: s.valueKeys(k),
		args: []string{s.o.Ring.Key(k).String()}, copies: true})
	if err != nil || len(answer) == 0 {
		return nil, false, err
	}
	text, err := texts(answer, 2)
	if err != nil {
		return nil, false, s.unavailable(err)
	}
	generation, err := s.generationOf(text[0])
	if err != nil {
		return nil, false, err
	}
	s.sawGeneration(epoch, generation)
	if value, err = s.opened(k, text[1]); err != nil {
		return nil, false, err
	}
	return value, true, nil
}

// List implements shared.Values.
func (s *Store) List(ctx context.Context, kind string, seen uint64) (shared.Listing, error) {
	if err := shared.CheckKey(shared.Key{Kind: kind}); err != nil {
		return shared.Listing{}, err
	}
	_, epoch, _ := s.state()
	answer, err := s.run(ctx, "list", call{script: s.scripts.list, keys: s.kindKeys(kind),
		args: []string{strconv.FormatUint(seen, 10),
			s.groupPrefix("value", s.o.Ring.Kind(kind))}})
	if err != nil {
		return shared.Listing{}, err
	}
	l, err := s.listing(kind, seen, answer)
	if err != nil {
		return shared.Listing{}, s.unavailable(err)
	}
	s.sawGeneration(epoch, l.Version)
	return l, nil
}

func (s *Store) listing(kind string, seen uint64, answer []valkey.ValkeyMessage) (
	l shared.Listing, err error) {
	text, err := texts(answer, 1)
	if err != nil {
		return l, err
	}
	if l.Version, err = s.generationOf(text[0]); err != nil {
		return l, err
	}
	l.Changed = l.Version != seen
	for entry := range slices.Chunk(text[1:], 3) {
		if len(entry) < 3 {
			return l, errAnswer
		}
		k, value, err := s.open(shared.Key{Kind: kind, Listed: true}, entry[2])
		if err != nil {
			return l, err
		}
		if s.o.Ring.Key(k).String() != entry[0] {
			return l, errMoved
		}
		generation, err := s.generationOf(entry[1])
		if err != nil {
			return l, err
		}
		l.Entries = append(l.Entries, shared.Entry{Key: k, Value: value, Generation: generation})
	}
	slices.SortFunc(l.Entries, func(a, b shared.Entry) int {
		return cmp.Compare(a.Generation, b.Generation)
	})
	return l, nil
}
