package sink

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/audit/format"
)

// WebhookOptions configure a webhook receiver.
type WebhookOptions struct {
	URL     string
	Headers map[string]string
	// key that signs requests: "whsec_" followed by base64, or any other text. If SigningKey is
	// "", requests are not signed.
	SigningKey string
	TLS        *tls.Config    // nil trusts the certificate authorities of the system
	Encoder    format.Encoder // must encode JSON lines
}

// NewWebhook returns a receiver that posts batches as JSON lines (application/x-ndjson). Any 2xx
// response means that the receiver has the batch. A checkpoint is sent as {"checkpoint":"…"}.
//
// Requests have the headers of Standard Webhooks 1.0 (standardwebhooks.com): webhook-id,
// webhook-timestamp and, with a key, webhook-signature. A batch that is sent again unchanged has
// the same id, so that a receiver can recognise duplicates. The signature is an HMAC-SHA256 over
// id, timestamp and body.
func NewWebhook(o WebhookOptions) (Receiver, error) {
	p, err := newHTTPPoster(o.URL, o.Headers, o.TLS)
	if err != nil {
		return nil, err
	}
	w := &webhook{httpPoster: p, encoder: o.Encoder, key: []byte(o.SigningKey)}
	if text, ok := strings.CutPrefix(o.SigningKey, "whsec_"); ok {
		if w.key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("the key after whsec_ is not base64: %w", err)
		}
	}
	return w, nil
}

type webhook struct {
	*httpPoster
	encoder format.Encoder
	key     []byte
}

func (w *webhook) Send(ctx context.Context, b Batch) error {
	var body []byte
	if b.Checkpoint != nil {
		body, _ = json.Marshal(map[string]string{"checkpoint": string(b.Checkpoint)})
		body = append(body, '\n')
	}
	for i := range b.Records {
		body = encoderOf(w.encoder, b.Short).Append(body, &b.Records[i])
	}
	sum := sha256.Sum256(body)
	id, now := "gatekit_"+hex.EncodeToString(sum[:16]), strconv.FormatInt(time.Now().Unix(), 10)
	header := http.Header{"Content-Type": {"application/x-ndjson"}, "Webhook-Id": {id},
		"Webhook-Timestamp": {now}}
	if len(w.key) > 0 {
		header.Set("Webhook-Signature", signature(w.key, id, now, body))
	}
	_, err := w.post(ctx, body, header)
	return err
}

// signature returns the signature that Standard Webhooks 1.0 defines.
func signature(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, timestamp)
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
