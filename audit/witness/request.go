package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/audit"
	"gatekit/core/display"
)

// Bounds of the protocol.
const (
	maxAnswer    = 64 << 10 // bytes of an answer
	maxHashes    = 63       // hashes of a consistency proof
	maxErrorText = 200      // bytes of an answer that an error quotes
)

// refusedError means that a witness has seen another history of the log.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

// log names the audit log whose checkpoints are sent.
type log struct {
	file string
	key  note.Verifier
}

// add asks a witness to cosign a checkpoint. old is the size of the checkpoint that the witness has
// cosigned last, as far as it is known. If the witness answers that it has cosigned another size,
// add asks once more, with a proof from that size. The error is a *refusedError if the witness has
// seen another history of the log.
func (w *Witness) add(ctx context.Context, l log, c *audit.Checkpoint,
	old int64) (*audit.Cosignature, error) {
	if old > c.Size {
		old = 0
	}
	for retry := range 2 {
		proof, err := audit.ProveConsistency(l.file, c, old)
		if err != nil {
			return nil, err
		}
		answer, err := w.post(ctx, old, proof, c)
		if err != nil {
			return nil, err
		}
		switch {
		case answer.status == http.StatusOK:
			return w.open(l, c, answer.body)
		case answer.status == http.StatusUnprocessableEntity && old > 0:
			return nil, &refusedError{fmt.Sprintf("it has cosigned %d records that are not the "+
				"first %[1]d records of this log: the log was forked or rewritten", old)}
		case answer.status != http.StatusConflict:
			return nil, w.statusError(answer, c)
		}
		size, err := answer.size()
		switch {
		case err != nil && old == c.Size, err == nil && size == old:
			return nil, &refusedError{fmt.Sprintf("it has cosigned %d records with another root: "+
				"the log was forked or rewritten", old)}
		case err != nil:
			return nil, err
		case size > c.Size:
			return nil, &refusedError{fmt.Sprintf("it has cosigned %d records, but the log has "+
				"only %d: the log was cut, or an older copy has replaced it", size, c.Size)}
		case retry > 0:
			return nil, fmt.Errorf("it answers that it has cosigned %d records, and before it "+
				"answered %d", size, old)
		}
		old = size
	}
	panic("unreachable")
}

// answer is the answer of a witness.
type answer struct {
	status      int
	contentType string
	body        []byte
}

// post sends one request.
func (w *Witness) post(ctx context.Context, old int64, proof tlog.TreeProof,
	c *audit.Checkpoint) (*answer, error) {
	if len(proof) > maxHashes {
		return nil, fmt.Errorf("the consistency proof has %d hashes, more than %d", len(proof),
			maxHashes)
	}
	b := fmt.Appendf(nil, "old %d\n", old)
	for _, h := range proof {
		b = fmt.Appendf(b, "%s\n", h)
	}
	b = append(append(b, '\n'), c.Note...)
	target := strings.TrimSuffix(w.URL, "/") + "/add-checkpoint"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	response, err := w.Client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the method and the URL
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("its answer has more than %d bytes", maxAnswer)
	}
	return &answer{response.StatusCode, response.Header.Get("Content-Type"), body}, nil
}

// size returns the size in the answer to a request that conflicts with the state of the witness.
func (a *answer) size() (int64, error) {
	media, _, _ := mime.ParseMediaType(a.contentType)
	text, ok := strings.CutSuffix(string(a.body), "\n")
	n, err := strconv.ParseInt(text, 10, 64)
	if media != "text/x.tlog.size" || !ok || err != nil || n < 0 ||
		strconv.FormatInt(n, 10) != text {
		return 0, fmt.Errorf("it answered 409, without the size that it has cosigned: %s",
			a.quote())
	}
	return n, nil
}

// quote returns the beginning of the answer, for people.
func (a *answer) quote() string {
	return display.EscapeLine(strings.TrimSpace(string(a.body)), maxErrorText)
}

// statusError returns the error for another status than those of the protocol's success.
func (w *Witness) statusError(a *answer, c *audit.Checkpoint) error {
	switch a.status {
	case http.StatusNotFound:
		return fmt.Errorf("it does not know the log %s (404)\nhint: add the origin and the public "+
			"key of the log at the witness; check that the url is its submission prefix", c.Origin)
	case http.StatusForbidden:
		return fmt.Errorf("it knows the log %s with another key (403)\nhint: add the public key "+
			"of the log, as gatekit audit key prints it, at the witness", c.Origin)
	}
	return fmt.Errorf("it answered %d %s: %s", a.status, http.StatusText(a.status), a.quote())
}

// open returns the cosignature in the answer of a witness, after verifying it. Signatures of other
// keys are ignored.
func (w *Witness) open(l log, c *audit.Checkpoint, lines []byte) (*audit.Cosignature, error) {
	signed := append(slices.Clip(c.Note), lines...)
	cosigned, err := audit.OpenCosigned(signed, l.key, []*audit.WitnessKey{w.Key})
	if err != nil {
		return nil, fmt.Errorf("its answer cannot be used: %w", err)
	}
	if len(cosigned.Cosignatures) == 0 {
		return nil, errors.New("its answer has no cosignature with its key\nhint: compare the " +
			"key in the configuration with the key that the witness publishes")
	}
	return &cosigned.Cosignatures[0], nil
}
