package format

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/audit"
)

// boundedEncoder bounds the length of lines.
type boundedEncoder struct {
	Encoder
	max int
}

func (f boundedEncoder) Append(b []byte, r *audit.Record) []byte {
	from := len(b)
	b = f.Encoder.Append(b, r)
	for keep := maxText; len(b)-from > f.max && keep >= 16; keep /= 4 {
		b = appendShortRecord(b[:from], f.Encoder, r, keep)
	}
	return b
}

// maxText bounds the texts of a shortened record, in bytes.
const maxText = 256

// ShortEncoder returns an encoder that shortens every record. Options.MaxBytes shortens only
// records whose lines are too long.
func ShortEncoder(f Encoder) Encoder {
	if bound, ok := f.(boundedEncoder); ok {
		return boundedEncoder{ShortEncoder(bound.Encoder), bound.max}
	}
	return shortEncoder{f}
}

// shortEncoder shortens every record.
type shortEncoder struct{ Encoder }

func (f shortEncoder) Append(b []byte, r *audit.Record) []byte {
	return appendShortRecord(b, f.Encoder, r, maxText)
}

// appendShortRecord appends the line of the shortened record, with texts of at most keep bytes.
func appendShortRecord(b []byte, f Encoder, r *audit.Record, keep int) []byte {
	short := shortenRecord(r, keep)
	if inner, ok := f.(shortEncoder); ok {
		f = inner.Encoder
	}
	if _, ok := f.(jsonlEncoder); ok {
		return appendShortJSON(b, &short)
	}
	return f.Append(b, &short)
}

// ShortRecord returns a shortened record, as [ShortEncoder] encodes it. The field Line is the full
// line.
func ShortRecord(r *audit.Record) audit.Record { return shortenRecord(r, maxText) }

// shortenRecord returns the record without bodies, values and findings, with only the deciding
// step, and with texts of at most keep bytes. The field Line is the full line.
func shortenRecord(r *audit.Record, keep int) audit.Record {
	s := *r
	s.Steps, s.Values, s.Prev = nil, nil, truncate(r.Prev, sha256.Size*2)
	for _, step := range r.Steps {
		if stage := decidingStage(r); stage != "" && step.Stage == stage &&
			step.Action == r.Action {
			s.Steps = []audit.Step{{Stage: truncate(stage, keep), Action: truncate(step.Action,
				keep)}}
		}
	}
	for _, body := range []**audit.Body{&s.Before, &s.After} {
		if *body != nil {
			*body = &audit.Body{Size: (*body).Size, SHA256: truncate((*body).SHA256,
				sha256.Size*2), HMAC: truncate((*body).HMAC, sha256.Size*2)}
		}
	}
	for _, text := range []*string{&s.Session, &s.Exchange, &s.Principal, &s.Client,
		&s.Authentication, &s.Scope, &s.Direction, &s.Kind, &s.Method, &s.Server, &s.Name,
		&s.Action, &s.Reason, &s.Error} {
		*text = truncate(*text, keep)
	}
	return s
}

// truncate returns the first n bytes of s, and "…" if s is longer. It does not split a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// appendShortJSON appends a shortened record in the JSON of the log, with the size and hash of the
// full line.
func appendShortJSON(b []byte, r *audit.Record) []byte {
	sum := sha256.Sum256(r.Line)
	type short struct {
		Bytes  int    `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
	line, _ := json.Marshal(struct { // cannot fail: texts and numbers only
		Seq            uint64 `json:"seq"`
		Time           string `json:"time"`
		Prev           string `json:"prev"`
		Session        string `json:"session,omitzero"`
		Exchange       string `json:"exchange,omitzero"`
		Principal      string `json:"principal,omitzero"`
		Client         string `json:"client,omitzero"`
		Authentication string `json:"authentication,omitzero"`
		Scope          string `json:"scope,omitzero"`
		Direction      string `json:"direction,omitzero"`
		Kind           string `json:"kind,omitzero"`
		Method         string `json:"method,omitzero"`
		Server         string `json:"server,omitzero"`
		Name           string `json:"name,omitzero"`
		Action         string `json:"action"`
		Reason         string `json:"reason,omitzero"`
		Steps          []step `json:"steps,omitzero"`
		Before         *body  `json:"before,omitzero"`
		After          *body  `json:"after,omitzero"`
		Code           int64  `json:"code,omitzero"`
		Failed         bool   `json:"failed,omitzero"`
		Micros         int64  `json:"micros,omitzero"`
		Error          string `json:"error,omitzero"`
		Short          short  `json:"short"`
	}{
		r.Seq, r.Time.UTC().Format(timeLayout), r.Prev, r.Session, r.Exchange, r.Principal,
		r.Client, r.Authentication, r.Scope, r.Direction, r.Kind, r.Method, r.Server, r.Name,
		r.Action, r.Reason,
		stepsFrom(r), bodyFrom(r.Before), bodyFrom(r.After), r.Code, r.Failed, r.Micros, r.Error,
		short{len(r.Line), hex.EncodeToString(sum[:])},
	}, jsontext.AllowInvalidUTF8(true))
	return append(appendVisibleJSON(b, line), '\n')
}
