package injection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Classifier scores texts. Its method may be called from many goroutines.
type Classifier interface {
	// Score returns a score for each text, from 0 (harmless) to 1 (attack).
	Score(ctx context.Context, texts []string) ([]float64, error)
}

// classifierSettings is the option "classifier".
type classifierSettings struct {
	url         string
	timeout     time.Duration // for the texts of one message
	threshold   float64       // the score from which a text is an attack
	skipOnError bool          // a message that cannot be scored passes, with a finding
	maxBytes    int           // of text in one message
}

// classifierDefaults are the settings that hold unless a configuration sets them.
var classifierDefaults = classifierSettings{timeout: time.Second, threshold: 0.8,
	maxBytes: 256 << 10}

// Limits of a request to a classifier and of its response, in bytes.
const (
	minTextLength = 24        // a shorter text is not scored
	chunkBytes    = 8 << 10   // a longer text is split
	chunkOverlap  = 256       // shared by two chunks, so that one of them has the whole sentence
	maxResponse   = 256 << 10 // a longer response is an error
)

// httpClassifier is a classifier behind HTTP.
type httpClassifier struct {
	url    string
	client *http.Client
}

func newHTTPClassifier(address string) *httpClassifier {
	// No proxy is used, since texts must go to the configured address only.
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
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("classifier: status %d", response.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxResponse {
		return nil, fmt.Errorf("classifier: the response has more than %d bytes", maxResponse)
	}
	var result struct {
		Scores []float64 `json:"scores"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, fmt.Errorf("classifier: parse the response: %w", err)
	}
	return result.Scores, nil
}

// Close closes the idle connections.
func (c *httpClassifier) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

// splitText splits a text into chunks that overlap. A character that is cut at the end of a chunk
// is left out there, because JSON cannot hold a part of it. The next chunk has the whole character.
func splitText(s string) (chunks []string) {
	for len(s) > chunkBytes {
		chunks = append(chunks, strings.ToValidUTF8(s[:chunkBytes], ""))
		s = s[chunkBytes-chunkOverlap:]
	}
	return append(chunks, strings.ToValidUTF8(s, ""))
}

// errTooMuch is the error for a message with more text than the option max_bytes allows.
var errTooMuch = errors.New("classifier: the message has more text than max_bytes")

// findAttacks reports for each text whether the classifier scores it as an attack.
func (s *stage) findAttacks(ctx context.Context, texts []string) ([]bool, error) {
	c := s.scoring
	attacks := make([]bool, len(texts))
	var chunks []string
	var owners []int // for each chunk, the index of its text
	size := 0
	for i, t := range texts {
		if len(t) < minTextLength {
			continue
		}
		for _, chunk := range splitText(t) {
			if size += len(chunk); size > c.maxBytes {
				return nil, errTooMuch
			}
			chunks, owners = append(chunks, chunk), append(owners, i)
		}
	}
	if len(chunks) == 0 {
		return attacks, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	scores, err := s.classifier.Score(ctx, chunks)
	if err != nil {
		return nil, err
	}
	if len(scores) != len(chunks) {
		return nil, fmt.Errorf("classifier: %d scores for %d texts", len(scores), len(chunks))
	}
	for i, score := range scores {
		if !(score >= 0 && score <= 1) { // true for NaN, too
			return nil, errors.New("classifier: a score is not between 0 and 1")
		}
		if score >= c.threshold {
			attacks[owners[i]] = true
		}
	}
	return attacks, nil
}
