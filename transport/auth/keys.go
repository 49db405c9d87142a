package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"

	"gatekit/core/display"
)

const (
	refreshInterval    = 10 * time.Minute // between two fetches of the keys
	retryInterval      = 30 * time.Second // after a fetch that failed
	unknownKeyInterval = 30 * time.Second // between two fetches for keys that are not known
	keysLifetime       = time.Hour        // of keys since the last fetch that succeeded
	maxKeys            = 100              // of one issuer
)

// errUnavailable is the error for an issuer that could not be asked. The request may be repeated.
var errUnavailable = errors.New("the issuer cannot be asked")

// key is a public key of an issuer.
type key struct {
	id         string
	algorithm  string // the only one that the key is for; "" for all that fit it
	public     crypto.PublicKey
	thumbprint string
	withdrawn  atomic.Bool // the issuer no longer publishes the key
}

// fits reports whether the key can verify signatures of an algorithm.
func (k *key) fits(algorithm string) bool {
	if k.algorithm != "" && k.algorithm != algorithm {
		return false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}[algorithm] ==
			public.Curve.Params().BitSize
	case ed25519.PublicKey:
		return algorithm == "EdDSA" || algorithm == "Ed25519"
	}
	return false
}

// keySource holds the keys of one issuer. Only run fetches them.
type keySource struct {
	fetch func(context.Context) ([]byte, error) // returns the JSON Web Key Set
	log   *slog.Logger
	wake  chan struct{} // asks run for a fetch; has room for one

	mu        sync.Mutex
	keys      []*key
	goodUntil time.Time     // when keys end, unless they are fetched again
	asked     time.Time     // when wake was last sent to
	awaited   chan struct{} // closed when the first fetch, or that of wake, has ended; nil: none
}

func newKeySource(fetch func(context.Context) ([]byte, error), log *slog.Logger) *keySource {
	return &keySource{fetch: fetch, log: log, wake: make(chan struct{}, 1),
		awaited: make(chan struct{})}
}

// run fetches the keys now, on the schedule and when find asks for it, until ctx ends.
func (s *keySource) run(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for asked := true; ; asked = false {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-s.wake:
			asked = true
		}
		delay := refreshInterval
		if err := s.refresh(ctx); err != nil {
			delay = retryInterval
			if ctx.Err() == nil {
				s.log.Warn("keys of an issuer not fetched", "error", err)
			}
		}
		next.Reset(delay)
		if asked {
			s.mu.Lock()
			s.endWait()
			s.mu.Unlock()
		}
	}
}

// endWait lets the callers of find go on. The caller holds mu.
func (s *keySource) endWait() {
	close(s.awaited)
	s.awaited = nil
}

// refresh replaces the keys by those that the issuer publishes now.
func (s *keySource) refresh(ctx context.Context) error {
	b, err := s.fetch(ctx)
	if err != nil {
		return err
	}
	fetched, err := parseKeys(b, s.log)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goodUntil = time.Now().Add(keysLifetime)
	for _, old := range s.keys {
		kept := false
		for i, k := range fetched {
			if k.id == old.id && k.algorithm == old.algorithm && k.thumbprint == old.thumbprint {
				fetched[i], kept = old, true
			}
		}
		if !kept {
			old.withdrawn.Store(true)
			s.log.Info("key of an issuer withdrawn", "kid", display.Quote(old.id, maxQuoted))
		}
	}
	s.keys = fetched
	return nil
}

// refreshOnce fetches the keys where run does not. Then find does not wait for run.
func (s *keySource) refreshOnce(ctx context.Context) error {
	err := s.refresh(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now()
	if s.awaited != nil {
		s.endWait()
	}
	return err
}

// find returns the key for a token. If it is not known, find waits for a fetch, at most one in
// unknownKeyInterval.
func (s *keySource) find(ctx context.Context, id, algorithm string) (*key, error) {
	s.mu.Lock()
	k, err := s.lookup(id, algorithm)
	if err == nil {
		s.mu.Unlock()
		return k, nil
	}
	if s.awaited == nil {
		if now := time.Now(); now.Sub(s.asked) >= unknownKeyInterval {
			s.asked, s.awaited = now, make(chan struct{})
			s.wake <- struct{}{}
		}
	}
	awaited := s.awaited
	s.mu.Unlock()
	if awaited == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case <-awaited:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: its keys were not fetched in time", errUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookup(id, algorithm)
}

// lookup returns the key with the id. A token without key id has the only key that fits. The caller
// holds mu.
func (s *keySource) lookup(id, algorithm string) (*key, error) {
	if !s.good(time.Now()) {
		return nil, fmt.Errorf("%w: its keys could not be fetched", errUnavailable)
	}
	var found *key
	for _, k := range s.keys {
		if id != "" && k.id != id || !k.fits(algorithm) {
			continue
		}
		if found != nil {
			return nil, errors.New("the token has no key id, and the issuer has several keys")
		}
		found = k
	}
	if found == nil {
		return nil, fmt.Errorf("the issuer has no key %s for %s", display.Quote(id, maxQuoted),
			algorithm)
	}
	return found, nil
}

func (s *keySource) good(now time.Time) bool { return now.Before(s.goodUntil) }

// isGood reports whether k may still verify tokens.
func (s *keySource) isGood(k *key, now time.Time) bool {
	if k.withdrawn.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.good(now)
}

// parseKeys returns the keys of a JSON Web Key Set that can verify signatures. It leaves out keys
// that it does not know, weak keys, and keys that share their id with another.
func parseKeys(b []byte, log *slog.Logger) ([]*key, error) {
	set, err := jwk.Parse(b, jwk.WithMaxKeys(maxKeys), jwk.WithIgnoreParseError(true))
	if err != nil {
		return nil, fmt.Errorf("read the JSON Web Key Set: %w", err)
	}
	byID := map[string]int{}
	var keys []*key
	for i := range set.Len() {
		one, _ := set.Key(i)
		if k := newKey(one); k != nil {
			keys = append(keys, k)
			byID[k.id]++
		}
	}
	unique := keys[:0]
	for _, k := range keys {
		if byID[k.id] > 1 && k.id != "" {
			log.Warn("key of an issuer ignored: several keys have its id",
				"kid", display.Quote(k.id, maxQuoted))
			continue
		}
		unique = append(unique, k)
	}
	if len(unique) == 0 {
		return nil, errors.New("the JSON Web Key Set has no key that can verify signatures")
	}
	return unique, nil
}

// newKey returns the public key of a JSON Web Key, or nil if it cannot verify signatures.
func newKey(from jwk.Key) *key {
	if use, ok := from.KeyUsage(); ok && use != "sig" {
		return nil
	}
	if operations, ok := from.KeyOps(); ok {
		verifies := false
		for _, o := range operations {
			verifies = verifies || o == jwk.KeyOpVerify
		}
		if !verifies {
			return nil
		}
	}
	public, err := jwk.PublicRawKeyOf(from)
	if err != nil {
		return nil
	}
	switch public := public.(type) {
	case *rsa.PublicKey:
		if bits := public.N.BitLen(); bits < 2048 || bits > 8192 {
			return nil
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return nil // a symmetric key, or one that Gatekit does not know
	}
	thumbprint, err := from.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil
	}
	k := &key{public: public, thumbprint: string(thumbprint)}
	k.id, _ = from.KeyID()
	if algorithm, ok := from.Algorithm(); ok {
		k.algorithm = algorithm.String()
	}
	return k
}
