package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/audit/witness"
	"gatekit/core/config"
	"gatekit/core/tlsconfig"
	"gatekit/transport/ssrfguard"
)

// witnesses sends the checkpoints of the audit log to the configured witnesses.
type witnesses struct {
	all []witness.Witness
	log *slog.Logger

	mu        sync.Mutex
	submitter *witness.Submitter // nil before start, and without witnesses
	queued    []byte             // newest checkpoint before start

	stop context.CancelFunc // nil before start
	run  sync.WaitGroup
}

const (
	// witnessTimeout limits a request to a witness.
	witnessTimeout = 10 * time.Second
	// witnessDrain limits how long a stop waits for witnesses.
	witnessDrain = 5 * time.Second
)

// newWitnesses returns the witnesses of a configuration. It opens no connection.
func newWitnesses(c config.Audit, log *slog.Logger) (*witnesses, error) {
	w := &witnesses{log: log}
	for _, c := range c.Witnesses {
		one, err := newWitness(c)
		if err != nil {
			return nil, fmt.Errorf("audit witness %s: %w", c, err)
		}
		w.all = append(w.all, *one)
	}
	return w, nil
}

func newWitness(c config.Witness) (*witness.Witness, error) {
	key, err := audit.ParseWitnessKey(c.Key)
	if err != nil {
		return nil, err
	}
	guard := ssrfguard.Options{Configured: c.URL, Timeout: witnessTimeout, MaxBytes: 128 << 10}
	for _, network := range c.Networks {
		prefix, err := netip.ParsePrefix(network) // core/config has checked it
		if err != nil {
			return nil, err
		}
		guard.Networks = append(guard.Networks, prefix.Masked())
	}
	if c.CA != "" {
		secure, err := tlsconfig.Files{CA: c.CA}.Load()
		if err != nil {
			return nil, err
		}
		guard.RootCAs = secure.RootCAs
	}
	client, err := ssrfguard.Client(guard)
	if err != nil {
		return nil, err
	}
	return &witness.Witness{URL: c.URL, Key: key, Client: client}, nil
}

// queue sends a checkpoint to the witnesses, unless a newer one follows. It does not wait.
func (w *witnesses) queue(checkpoint []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.submitter == nil {
		w.queued = checkpoint
		return
	}
	w.submitter.Queue(checkpoint)
}

// start begins to send the checkpoints of the log. When a witness fails or works again, it calls
// event.
func (w *witnesses) start(file string, event func(action, reason string, err error)) error {
	if len(w.all) == 0 {
		return nil
	}
	key, err := audit.ReadPublicKey(audit.PublicKeyFile(file))
	if err != nil {
		return err
	}
	s, err := witness.New(witness.Options{File: file, Key: key, Witnesses: w.all, Logger: w.log,
		RecordEvent: event})
	if err != nil {
		return fmt.Errorf("audit witnesses: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.submitter, w.stop = s, stop
	if w.queued != nil {
		s.Queue(w.queued)
	}
	w.run.Go(func() { s.Run(ctx, witnessDrain) })
	return nil
}

// states returns the states of the witnesses.
func (w *witnesses) states() []witness.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.submitter == nil {
		return nil
	}
	return w.submitter.States()
}

// close sends the last checkpoint, and waits for at most witnessDrain. The log must already be
// closed.
func (w *witnesses) close() {
	if w.stop != nil {
		w.stop()
		w.run.Wait()
	}
	for _, one := range w.all {
		one.Client.CloseIdleConnections()
	}
}

// checkWitnesses describes each witness, and what it has cosigned according to the files beside the
// log. It asks no witness. A witness that fails is a note, because messages do not depend on it;
// one that has seen another history of the log is a failure.
func checkWitnesses(r *checkReport, cfg *config.Config) {
	states, stateErr := witness.States(cfg.Audit.File)
	for i, c := range cfg.Audit.Witnesses {
		one, err := newWitness(c)
		name := fmt.Sprintf("witness %d", i+1)
		if err == nil {
			name, err = one.Key.Name(), stateErr
		}
		if err != nil {
			r.fail("witness", name, fmt.Errorf("audit witness %s: %w", c, err))
			continue
		}
		text := fmt.Sprintf("audit witness %s: has cosigned nothing yet", c)
		var state witness.State
		for _, s := range states {
			if s.Name == name {
				state = s
			}
		}
		if state.Size > 0 {
			text = fmt.Sprintf("audit witness %s: has cosigned %s, the last time at %s", c,
				plural(int(state.Size), "record"), state.Time.Format("2006-01-02 15:04:05Z"))
		}
		fault := fmt.Errorf("%s; since %s: %s", text, state.Failing.Format("2006-01-02 15:04:05Z"),
			state.Error)
		switch {
		case state.Refused:
			r.fail("witness", name, fmt.Errorf("%w\nhint: the log is not the one that the witness "+
				"knows: keep its files, and compare it with a copy by gatekit audit verify "+
				"--since", fault))
		case state.Error != "":
			r.note("witness", name, oneLine(fault.Error()))
		default:
			r.ok("witness", name, text)
		}
	}
}

// readWitnessKeys returns the public keys of witnesses, each a line NAME+ID+KEY or a file.
func readWitnessKeys(texts []string) (keys []*audit.WitnessKey, err error) {
	for _, text := range texts {
		key, err := audit.ReadWitnessKey(text)
		if err != nil {
			return nil, err
		}
		for _, other := range keys {
			if key.Equal(other) {
				return nil, fmt.Errorf("the witness %s is given twice: each witness counts once",
					key.Name())
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// witnessFlags are the flags --witness and --quorum.
type witnessFlags struct {
	texts  []string
	quorum int
}

// required returns the keys, and the number of witnesses that must have cosigned: all of them
// without --quorum.
func (f *witnessFlags) required() ([]*audit.WitnessKey, int, error) {
	keys, err := readWitnessKeys(f.texts)
	switch {
	case err != nil:
	case f.quorum != 0 && len(keys) == 0:
		err = errors.New("--quorum needs --witness, the public key of each witness")
	case f.quorum < 0 || f.quorum > len(keys):
		err = fmt.Errorf("--quorum %d is impossible with %s", f.quorum, plural(len(keys),
			"witness key"))
	}
	return keys, cmp.Or(f.quorum, len(keys)), err
}

// add adds the flags to a command.
func (f *witnessFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.texts, "witness", nil,
		"public `key` of a witness, or the file with it; may be repeated")
	c.Flags().IntVar(&f.quorum, "quorum", 0,
		"`number` of these witnesses that must have cosigned (default: all)")
}

// describeCosignatures returns the witnesses, with the size and the time of each cosignature.
func describeCosignatures(all []*audit.CosignedCheckpoint) string {
	var texts []string
	for _, c := range all {
		for _, s := range c.Cosignatures {
			texts = append(texts, fmt.Sprintf("%s (%d at %s)", s.Witness.Name(), c.Size,
				s.Time.Format("2006-01-02 15:04:05Z")))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// checkProofWitnesses returns an error unless enough witnesses have cosigned the checkpoint of a
// proof.
func checkProofWitnesses(p *audit.Proof, key note.Verifier, witnesses []*audit.WitnessKey,
	quorum int) error {
	c, err := audit.OpenCosigned(p.Checkpoint, key, witnesses)
	if err != nil {
		return err
	}
	all := []*audit.CosignedCheckpoint{c}
	if audit.WitnessedSize(all, quorum) == 0 {
		return fmt.Errorf("fewer than %d of %s have cosigned the checkpoint of the proof: %s\n"+
			"hint: prove the record again after the witnesses have cosigned it", quorum,
			plural(len(witnesses), "witness key"), cmp.Or(describeCosignatures(all), "none"))
	}
	return nil
}
