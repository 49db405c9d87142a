package policies

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/shared"
)

// All replicas serve the session of a modern client, which describes itself with each request. So
// the descriptions that came before the session had labels are in the shared state. Otherwise a
// client could put data into another description, and send it through a replica that has seen none
// yet.

// clientKeptFor is how long the descriptions of clients are kept after a replica has learned them
// last. The sessions of modern clients never end.
const clientKeptFor = 90 * 24 * time.Hour

// maxClientAttempts bounds the attempts to change the descriptions that other replicas change at
// the same time.
const maxClientAttempts = 8

// sharedClient has what the replicas know about the client that a message describes. The zero value
// means that this replica's own memory is all that is needed.
type sharedClient struct {
	isNew      bool     // the client may become known, if the message passes without labels
	digest     []byte   // of its description
	known      [][]byte // the digests of the descriptions that are known
	generation uint64   // of known
}

// readsKnownClient reports whether r has input.session.known_client.
func readsKnownClient(r readSet) bool {
	_, ok := r.below("session").wants("known_client")
	return ok
}

// sharesClients reports whether the descriptions of the client of m are in the shared state. Those
// in an initialize belong to a session that only one replica serves.
func (s *Stage) sharesClients(m *mcp.Message) bool {
	return s.shared != nil && m.Method != "initialize" && readsKnownClient(s.reads)
}

// knowClient finds out whether the replicas know the client that m describes, and sets
// mc.knownClient. reason is why the message must be denied, or "".
func (s *Stage) knowClient(ctx context.Context, session *session, m *mcp.Message,
	mc *messageContext) (c sharedClient, reason string, err error) {
	client, capabilities, ok := description(m)
	if !ok || !s.sharesClients(m) {
		return c, "", nil
	}
	d := descriptionDigest(client, capabilities)
	if session.hasDescription(d) {
		return c, "", nil
	}
	needed, err := s.needsKnownClient(m, session, *mc)
	if err != nil {
		return c, "", err
	}
	known := false
	c, known, err = s.learnClient(ctx, session, m, d[:],
		len(client)+len(capabilities) <= maxFirstDescription)
	switch {
	case err == nil:
	case needed:
		return c, sharedUnavailable, nil
	default: // no rule asks, and a later message tries again
		return sharedClient{}, "", nil
	}
	if known {
		session.addDescription(d)
	}
	mc.knownClient = &known
	return c, "", nil
}

// needsKnownClient reports whether a rule that can hold for m reads input.session.known_client.
func (s *Stage) needsKnownClient(m *mcp.Message, session *session, mc messageContext) (bool,
	error) {
	if len(s.hides.rules) > 0 && readsKnownClient(s.hides.reads) {
		return true, nil
	}
	if canonical, err := canonicalMessage(m); err != nil || canonical != nil {
		return true, err // other rules can hold for the canonical spelling
	}
	q, err := s.selector.query(s.all, s.classOf(m, session, mc))
	if err != nil {
		return false, err
	}
	return readsKnownClient(q.reads), nil
}

// learnClient gets the known descriptions from the shared state, and reports whether the one with
// this digest is among them. The first description of all is known if it is short. If the state was
// lost, those that this replica remembers take its place.
func (s *Stage) learnClient(ctx context.Context, session *session, m *mcp.Message, digest []byte,
	isShort bool) (c sharedClient, known bool, err error) {
	key := clientKey(m)
	for range maxClientAttempts {
		value, generation, err := s.shared.State.Get(ctx, key)
		if errors.Is(err, shared.ErrLost) {
			continue
		}
		if err != nil {
			return c, false, err
		}
		if own := session.descriptionDigests(); generation == 0 && own != nil {
			// If this fails, another replica was faster, or the next Get fails, too.
			_, _ = s.shared.State.Swap(ctx, key, 0, own, clientKeptFor)
			continue
		}
		c = sharedClient{digest: digest, generation: generation,
			known: slices.Collect(slices.Chunk(value, sha256.Size))}
		if slices.ContainsFunc(c.known, func(k []byte) bool { return bytes.Equal(k, digest) }) {
			// If this fails, the descriptions are forgotten somewhat earlier.
			_, _ = s.shared.State.Swap(ctx, key, generation, value, clientKeptFor)
			return sharedClient{}, true, nil
		}
		if generation != 0 || !isShort || m.Kind != mcp.Request {
			c.isNew = m.Kind == mcp.Request
			return c, false, nil
		}
		_, err = s.shared.State.Swap(ctx, key, 0, digest, clientKeptFor)
		switch {
		case err == nil:
			return sharedClient{}, true, nil
		case !errors.Is(err, shared.ErrChanged) && !errors.Is(err, shared.ErrLost):
			return c, false, err
		}
	}
	return c, false, shared.ErrUnavailable
}

// recordClient makes the client known that an allowed message describes, unless the session has
// labels. If this fails, the client stays unknown, and a later message tries again.
func (s *Stage) recordClient(ctx context.Context, session *session, m *mcp.Message,
	c sharedClient, mc messageContext, labels []string) {
	if !c.isNew || len(labels) > 0 || len(session.currentLabels()) > 0 {
		return
	}
	if !mc.replicas.known {
		key := sessionKey(m)
		known, reason := s.track(ctx, key, shared.Change{TTL: s.shared.ttl()})
		if reason == "" && s.labelsByPrincipal && len(known.Labels) == 0 {
			known, reason = s.track(ctx, principalKey(m), shared.Change{TTL: principalLabelsFor})
		}
		if reason != "" || len(known.Labels) > 0 {
			return
		}
	} else if len(mc.replicas.labels) > 0 {
		return
	}
	all := append(slices.Clip(c.known), c.digest)
	all = all[max(0, len(all)-maxDescriptions):]
	if _, err := s.shared.State.Swap(ctx, clientKey(m), c.generation, slices.Concat(all...),
		clientKeptFor); err == nil {
		session.addDescription([sha256.Size]byte(c.digest))
	}
}

func clientKey(m *mcp.Message) shared.Key {
	return shared.Key{Kind: "client", Principal: m.Principal.ID(), Name: m.Session}
}

func (s *session) hasDescription(d [sha256.Size]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.descriptions, d)
}

// descriptionDigests returns the digests of the descriptions, one after the other; nil if there are
// none.
func (s *session) descriptionDigests() (all []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.descriptions {
		all = append(all, d[:]...)
	}
	return all
}

// addDescription remembers a description that the shared state has. The oldest one makes room.
func (s *session) addDescription(d [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.updateSize()
	if !slices.Contains(s.descriptions, d) {
		s.descriptions = append(s.descriptions, d)
		s.descriptions = s.descriptions[max(0, len(s.descriptions)-maxDescriptions):]
	}
}
