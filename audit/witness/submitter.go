package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/core/backoff"
)

// Witness is a witness that is asked.
type Witness struct {
	URL    string // submission prefix
	Key    *audit.WitnessKey
	Client *http.Client // its timeout bounds each request
}

// Options configure a Submitter.
type Options struct {
	File      string        // of the audit log
	Key       note.Verifier // of the audit log
	Witnesses []Witness     // no two have the same key
	Logger    *slog.Logger  // nil: nothing is logged
	// RecordEvent records that a witness was lost, is back or has refused the log.
	RecordEvent func(action, reason string, err error)
}

const (
	interval = 10 * time.Second // between two rounds
	// the delays after failures of a witness
	firstDelay, longestDelay = 10 * time.Second, 5 * time.Minute
	// number of failures in a row that are recorded
	failuresRecorded = 3
)

// Submitter sends checkpoints to witnesses. It is safe for concurrent use.
type Submitter struct {
	o   Options
	log *slog.Logger
	new chan struct{} // has an element if newest was set

	mu        sync.Mutex
	newest    []byte // checkpoint that was not sent; nil for none
	witnesses []*witnessState
	cosigned  []*audit.CosignedCheckpoint
}

// witnessState is the state of one witness. The fields below State belong to the goroutine that
// asks the witness.
type witnessState struct {
	*Witness
	State        // guarded by Submitter.mu
	failures int // in a row
	nextTry  time.Time
}

// New returns a Submitter that continues with the cosignatures that were kept. Run sends.
func New(o Options) (*Submitter, error) {
	s := &Submitter{o: o, log: o.Logger, new: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var keys []*audit.WitnessKey
	for i := range o.Witnesses {
		w := &o.Witnesses[i]
		if slices.ContainsFunc(keys, w.Key.Equal) {
			return nil, fmt.Errorf("two witnesses have the key of %s", w.Key.Name())
		}
		keys = append(keys, w.Key)
		s.witnesses = append(s.witnesses, &witnessState{Witness: w, State: State{
			Name: w.Key.Name()}})
	}
	var err error
	if s.cosigned, err = audit.ReadCosigned(o.File, o.Key, keys); err != nil {
		return nil, err
	}
	before, err := States(o.File)
	if err != nil { // only for people
		s.log.Warn("states of the witnesses forgotten", "error", err)
	}
	for _, w := range s.witnesses {
		for _, old := range before {
			if old.Name == w.Name {
				w.State = old
				if old.Error != "" {
					w.failures = failuresRecorded
				}
			}
		}
		w.Size, w.Time = 0, time.Time{}
		for _, c := range s.cosigned {
			for _, sig := range c.Cosignatures {
				if sig.Witness == w.Key {
					w.Size, w.Time = c.Size, sig.Time
				}
			}
		}
	}
	return s, nil
}

// Queue replaces the checkpoint that is sent next. It does not wait.
func (s *Submitter) Queue(checkpoint []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = checkpoint
	select {
	case s.new <- struct{}{}:
	default:
	}
}

// States returns the states of the witnesses.
func (s *Submitter) States() (all []State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.witnesses {
		all = append(all, w.State)
	}
	return all
}

// Run sends checkpoints until ctx ends. Then it sends the newest one to all witnesses once more,
// for at most drain.
func (s *Submitter) Run(ctx context.Context, drain time.Duration) {
	for _, state := range s.States() {
		if state.Refused { // the process before may have been too short to record it
			s.o.RecordEvent("witness refused", fmt.Sprintf("witness %q", state.Name),
				errors.New(state.Error))
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
			defer cancel()
			s.round(last, true)
			return
		case <-s.new:
		case <-timer.C:
		}
		again := s.round(ctx, false)
		if ctx.Err() != nil {
			continue
		}
		if backoff.Sleep(ctx, interval); again > 0 {
			timer.Reset(max(time.Millisecond, again-interval))
		}
	}
}

// round sends the newest checkpoint to the witnesses that are due, or with last to all that do not
// have it. It returns the time until the next witness is due that has failed, or 0 for none.
func (s *Submitter) round(ctx context.Context, last bool) (again time.Duration) {
	s.mu.Lock()
	newest := s.newest
	s.mu.Unlock()
	if newest == nil {
		return 0
	}
	c, err := audit.OpenCheckpoint(newest, s.o.Key)
	if err != nil {
		s.log.Error("checkpoint not sent to witnesses", "error", err)
		return 0
	}
	now := time.Now()
	var asked sync.WaitGroup
	for _, w := range s.witnesses {
		s.mu.Lock()
		size := w.Size
		s.mu.Unlock()
		if size >= c.Size && w.failures == 0 || !last && now.Before(w.nextTry) {
			continue
		}
		asked.Go(func() {
			sig, err := w.add(ctx, log{s.o.File, s.o.Key}, c, size)
			if err != nil && ctx.Err() != nil && !last {
				return // Gatekit stops, and asks once more
			}
			s.keep(w, c, sig, err)
		})
	}
	asked.Wait()
	for _, w := range s.witnesses {
		if wait := time.Until(w.nextTry); w.failures > 0 && (again == 0 || wait < again) {
			again = max(wait, time.Millisecond)
		}
	}
	return again
}

// keep keeps the answer of a witness.
func (s *Submitter) keep(w *witnessState, c *audit.Checkpoint, sig *audit.Cosignature, err error) {
	s.mu.Lock()
	if err == nil {
		cosigned := merge(s.cosigned, c, sig)
		if err = audit.WriteCosigned(s.o.File, cosigned); err == nil {
			s.cosigned = cosigned
			w.Size, w.Time = c.Size, sig.Time
		}
	}
	wasLost, wasRefused := w.failures >= failuresRecorded, w.Refused
	if err == nil {
		w.failures, w.nextTry = 0, time.Time{}
		w.Failing, w.Error, w.Refused = time.Time{}, "", false
	} else {
		if w.failures++; w.Failing.IsZero() {
			w.Failing = time.Now().UTC()
		}
		_, w.Refused = errors.AsType[*refusedError](err)
		w.Error = err.Error()
		w.nextTry = time.Now().Add(backoff.Delay(firstDelay, longestDelay, w.failures))
	}
	isLost, isRefused := w.failures == failuresRecorded, w.Refused
	var states []State
	for _, each := range s.witnesses {
		states = append(states, each.State)
	}
	saveErr := saveStates(s.o.File, states)
	s.mu.Unlock()
	if saveErr != nil {
		s.log.Warn("states of the witnesses not saved", "error", saveErr)
	}
	name := fmt.Sprintf("witness %q", w.Name)
	switch {
	case isRefused && !wasRefused:
		s.log.Error("witness has seen another history of the audit log", "witness", w.Name,
			"error", err)
		s.o.RecordEvent("witness refused", name, err)
	case !isRefused && isLost:
		s.log.Error("witness lost", "witness", w.Name, "error", err)
		s.o.RecordEvent("witness lost", name, err)
	case err == nil && (wasLost || wasRefused):
		s.log.Info("witness cosigns again", "witness", w.Name)
		s.o.RecordEvent("witness back", name, nil)
	}
}
