package injection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// Classifier scores texts: 0 is harmless, 1 an attack. It answers as many scores as it got texts,
// or an error; it may be asked from many goroutines at once.
type Classifier interface {
	Score(ctx context.Context, texts []string) ([]float64, error)
}

type classifierSettings struct {
	url         string
	timeout     time.Duration
	threshold   float64
	skipOnError bool
	maxBytes    int
}

// classifierDefaults hold for what a configuration does not say.
var classifierDefaults = classifierSettings{timeout: time.Second, threshold: 0.8,
	maxBytes: 256 << 10}

// Bounds of what is put to a classifier, and of its answer.
const (
	minTextLength = 24      // bytes; what is shorter says too little
	chunkBytes    = 8 << 10 // of one text
	chunkOverlap  = 256     // so that a sentence is whole in one of them
	maxResponse   = 256 << 10
)

// httpClassifier is a classifier behind an address.
type httpClassifier struct {
	url    string
	client *http.Client
}

func newHTTPClassifier(address string) *httpClassifier {
	// no Proxy: texts go where the configuration says
	transport := &http.Transport{MaxConnsPerHost: 16, MaxIdleConnsPerHost: 16,
		IdleConnTimeout: time.Minute, DisableCompression: true}
	return &httpClassifier{address, &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// Score implements Classifier.
func (c *httpClassifier) Score(ctx context.Context, texts []string) ([]float64, error) {
	body, err := json.Marshal(map[string][]string{"texts": texts})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", w.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(w.Body, maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxResponse {
		return nil, fmt.Errorf("an answer of more than %d bytes", maxResponse)
	}
	var answer struct {
		Scores []float64 `json:"scores"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return answer.Scores, nil
}

// Close lets its connections go.
func (c *httpClassifier) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

// splitText cuts a text into what is put to a classifier at once.
func splitText(s string) (cut []string) {
	for len(s) > chunkBytes {
		cut = append(cut, s[:chunkBytes])
		s = s[chunkBytes-chunkOverlap:]
	}
	return append(cut, s)
}

var errTooMuch = errors.New("more text than max_bytes")

// findAttacks answers which of the texts the classifier takes for attacks.
func (s *stage) findAttacks(ctx context.Context, texts []string) ([]bool, error) {
	c := s.scoring
	found := make([]bool, len(texts))
	var asked []string
	var of []int
	size := 0
	for i, t := range texts {
		if len(t) < minTextLength {
			continue
		}
		for _, piece := range splitText(t) {
			if size += len(piece); size > c.maxBytes {
				return nil, errTooMuch
			}
			asked, of = append(asked, piece), append(of, i)
		}
	}
	if len(asked) == 0 {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	scores, err := s.classifier.Score(ctx, asked)
	if err != nil {
		return nil, err
	}
	if len(scores) != len(asked) {
		return nil, fmt.Errorf("%d scores for %d texts", len(scores), len(asked))
	}
	for i, score := range scores {
		if !(score >= 0 && score <= 1) { // NaN, too
			return nil, errors.New("a score that is not from 0 to 1")
		}
		if score >= c.threshold {
			found[of[i]] = true
		}
	}
	return found, nil
}
