package valkey

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"gatekit/core/shared"

	"github.com/valkey-io/valkey-go"
	"golang.org/x/sync/singleflight"
)

// Options describe the server, and how it is used.
type Options struct {
	Address  string      // host:port
	TLS      *tls.Config // nil means no encryption
	User     string      // "" means the default user
	Password string
	Database int
	// Ring hides names and values. All replicas need the same.
	Ring *shared.Ring
	// Prefix begins the name of each key, so that others can use the server, too.
	Prefix string
	// Copies is how many of the server's replicas must have a value, a removal or a label before
	// the call returns; 0 means none.
	Copies int
	// Timeout bounds each call. 0 means DefaultTimeout.
	Timeout time.Duration
	// Durable demands a server that still has the state after a restart. Without it, such a server
	// is demanded only if Copies is 0.
	Durable bool
	// Epoch was returned last by Store.Epoch in an earlier process of this replica. With it, Open
	// notices what the server has lost while no replica ran. The zero Epoch means that nothing is
	// known.
	Epoch Epoch
	// Observe, if not nil, is told of each call: the name of the method, how long it took, and its
	// error. ErrChanged and ErrFull are results, and no errors.
	Observe func(method string, took time.Duration, err error)
}

// Epoch tells two states of the server apart: the one before and the one after a loss.
type Epoch struct {
	ID         string `json:"id"`
	Generation uint64 `json:"generation"` // the largest one that was seen
}

// DefaultTimeout bounds a call if Options has no other time.
const DefaultTimeout = 50 * time.Millisecond

// Bounds of the connections.
const (
	dialTimeout      = 2 * time.Second // or Options.Timeout, if that is longer
	deadAfter        = time.Second     // without an answer, a connection is closed
	bufferBytes      = 64 << 10        // for reading and for writing, of each connection
	waitConnections  = 64              // that wait for copies at the same time
	reconnectAtMost  = time.Second     // between two new clients
	maxRepliedString = 200             // bytes of an error of the server that are shown
)

// Store is the state in Valkey or Redis. It implements shared.Store.
type Store struct {
	o       Options
	scripts scripts

	mu        sync.Mutex
	client    valkey.Client
	connected time.Time // when the last client was begun
	epoch     string
	seen      uint64 // the largest generation
	lost      time.Time
	closed    bool

	// all calls that need the epoch at the same time look for it once
	finding singleflight.Group

	connecting sync.WaitGroup // goroutines that replace client
}

var _ shared.Store = (*Store)(nil)

// Open connects to the server, and returns an error if it cannot be used. The error describes all
// settings that must change. The caller must close the Store.
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	if err = s.Check(ctx); err == nil {
		err = s.findEpoch(ctx, o.Epoch.ID)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// newStore returns a store that is connected, and does not know the epoch.
func newStore(o Options) (*Store, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	s := &Store{o: o, scripts: newScripts(), epoch: o.Epoch.ID, seen: o.Epoch.Generation}
	var err error
	if s.client, err = s.connect(); err != nil {
		return nil, s.unavailable(err)
	}
	return s, nil
}

// Close closes the connections. Later calls return ErrUnavailable.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.client.Close()
	s.mu.Unlock()
	s.connecting.Wait()
}

func (s *Store) connect() (valkey.Client, error) {
	o := valkey.ClientOption{InitAddress: []string{s.o.Address}, TLSConfig: s.o.TLS,
		Username: s.o.User, Password: s.o.Password, SelectDB: s.o.Database, ClientName: "gatekit",
		ForceSingleClient: true, DisableRetry: true, DisableCache: true,
		ConnWriteTimeout: max(deadAfter, 2*s.o.Timeout), ReadBufferEachConn: bufferBytes,
		WriteBufferEachConn: bufferBytes, BlockingPoolSize: waitConnections,
		// connections that wait for copies notice their end while nobody uses them, so that a
		// failover costs no call for each
		AlwaysPipelining: s.o.Copies > 0}
	o.Dialer.Timeout = max(dialTimeout, s.o.Timeout)
	return valkey.NewClient(o)
}

// reconnect replaces the client, because its connections lead to a server that takes no writes any
// more. The name of the server may have another address by now. No call waits for the new client:
// an address that leads nowhere would cost it more than its timeout.
func (s *Store) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || time.Since(s.connected) < reconnectAtMost {
		return
	}
	s.connected = time.Now()
	s.connecting.Go(func() {
		next, err := s.connect()
		if err != nil {
			return // a later call tries again
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			next.Close()
			return
		}
		s.client.Close()
		s.client = next
	})
}

// state returns the client, the id of the epoch and the largest generation that was seen.
func (s *Store) state() (client valkey.Client, epoch string, seen uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client, s.epoch, s.seen
}

// sawGeneration remembers the largest generation.
func (s *Store) sawGeneration(epoch string, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch {
		s.seen = max(s.seen, generation)
	}
}

// Epoch returns what the replica knows of the state of the server. A caller that keeps it for the
// next process must do so before that starts.
func (s *Store) Epoch() Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Epoch{s.epoch, s.seen}
}

// Lost implements shared.Store.
func (s *Store) Lost() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// unavailable returns an error that matches shared.ErrUnavailable.
func (s *Store) unavailable(err error) error {
	if errors.Is(err, shared.ErrUnavailable) {
		return err
	}
	text := err.Error()
	if len(text) > maxRepliedString {
		text = text[:maxRepliedString]
	}
	switch _, isReply := valkey.IsValkeyErr(err); {
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("no answer within %v", s.o.Timeout)
	case isReply:
		text = fmt.Sprintf("the server says %q%s", text, s.o.advice(text))
	}
	return fmt.Errorf("%w: %s: %s", shared.ErrUnavailable, s.o.Address, text)
}

// call is one run of a script.
type call struct {
	script script
	keys   []string // after that of the epoch
	args   []string // after the id of the epoch and the generation
	copies bool     // whether to wait for the copies
}

// epochKey is the key of the epoch.
func (s *Store) epochKey() string { return s.o.Prefix + "epoch" }

// run runs a script for a method, and returns its answer.
func (s *Store) run(ctx context.Context, method string, c call) ([]valkey.ValkeyMessage, error) {
	began := time.Now()
	answer, err := s.runScript(ctx, c)
	if s.o.Observe != nil {
		s.o.Observe(method, time.Since(began), err)
	}
	return answer, err
}

func (s *Store) runScript(ctx context.Context, c call) ([]valkey.ValkeyMessage, error) {
	client, epoch, seen := s.state()
	limited, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	answer, err := s.eval(limited, client, c, append([]string{epoch,
		strconv.FormatUint(seen, 10)}, c.args...))
	if err == nil {
		return answer, nil
	}
	if reply, ok := valkey.IsValkeyErr(err); ok {
		switch text := reply.Error(); {
		case strings.HasPrefix(text, statusLost):
			// beyond the time of this call: all later calls need the epoch
			if err := s.findEpoch(context.WithoutCancel(ctx), epoch); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("%w: %s", shared.ErrLost, s.o.Address)
		case strings.HasPrefix(text, "READONLY"):
			s.reconnect()
		}
	}
	return nil, s.unavailable(err)
}

// eval sends a script, and once more with its source if the server does not know it. The server has
// then not run it before.
func (s *Store) eval(ctx context.Context, client valkey.Client, c call,
	args []string) ([]valkey.ValkeyMessage, error) {
	keys := append([]string{s.epochKey()}, c.keys...)
	run := func(eval valkey.Completed) ([]valkey.ValkeyMessage, error) {
		if !c.copies || s.o.Copies == 0 {
			return client.Do(ctx, eval).ToArray()
		}
		// shorter than the timeout of the call, so that the server's answer arrives
		wait := client.B().Wait().Numreplicas(int64(s.o.Copies)).Timeout(max(1,
			s.o.Timeout.Milliseconds()*3/4)).Build()
		results := client.DoMulti(ctx, eval, wait)
		answer, err := results[0].ToArray()
		if err != nil {
			return nil, err
		}
		copies, err := results[1].ToInt64()
		if err != nil {
			return nil, err
		}
		if copies < int64(s.o.Copies) {
			return nil, fmt.Errorf("%w: %s: %d of %d copies have the change", shared.ErrUnavailable,
				s.o.Address, copies, s.o.Copies)
		}
		return answer, nil
	}
	answer, err := run(client.B().Evalsha().Sha1(c.script.sha).Numkeys(int64(len(keys))).
		Key(keys...).Arg(args...).Build())
	if reply, ok := valkey.IsValkeyErr(err); ok && reply.IsNoScript() {
		answer, err = run(client.B().Eval().Script(c.script.source).Numkeys(int64(len(keys))).
			Key(keys...).Arg(args...).Build())
	}
	return answer, err
}

// findEpoch learns of the present epoch, unless another goroutine has done so since the caller used
// the epoch was. If another goroutine is doing so, findEpoch returns the result of that one.
func (s *Store) findEpoch(ctx context.Context, was string) error {
	_, err, _ := s.finding.Do(was, func() (any, error) { return nil, s.askEpoch(ctx, was) })
	return err
}

func (s *Store) askEpoch(ctx context.Context, was string) error {
	client, known, seen := s.state()
	if known != was {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	answer, err := s.eval(ctx, client, call{script: s.scripts.begin, copies: true}, []string{known,
		strconv.FormatUint(seen, 10), rand.Text()})
	if err != nil {
		return s.unavailable(err)
	}
	text, err := texts(answer, 4)
	if err != nil {
		return s.unavailable(err)
	}
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], err = strconv.ParseUint(text[i+1], 10, 64); err != nil {
			return s.unavailable(err)
		}
	}
	lost, now, generation := numbers[0], numbers[1], numbers[2]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch, s.seen = text[0], generation
	if lost > 0 {
		s.lost = time.Now().Add(-time.Duration(max(now, lost)-lost) * time.Millisecond)
	}
	return nil
}

// errAnswer is the error for answers that no script gives.
var errAnswer = errors.New("the answer of a script has another form")

// texts returns the texts of an answer, of which there must be at least n.
func texts(answer []valkey.ValkeyMessage, n int) ([]string, error) {
	if len(answer) < n {
		return nil, errAnswer
	}
	all := make([]string, len(answer))
	for i := range answer {
		var err error
		if all[i], err = answer[i].ToString(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
