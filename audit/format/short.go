package format

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/audit"
)

// bounded is a form with lines of bounded length.
type bounded struct {
	Encoder
	max int
}

func (f bounded) Append(b []byte, r *audit.Record) []byte {
	from := len(b)
	b = f.Encoder.Append(b, r)
	for keep := maxText; len(b)-from > f.max && keep >= 16; keep /= 4 {
		b = appendShortened(b[:from], f.Encoder, r, keep)
	}
	return b
}

// maxText bounds the texts of a record that was made short, in bytes.
const maxText = 256

// ShortEncoder answers the form with each record made short, as with MaxBytes those are that are
// too long.
func ShortEncoder(f Encoder) Encoder {
	if bound, ok := f.(bounded); ok {
		return bounded{ShortEncoder(bound.Encoder), bound.max}
	}
	return brief{f}
}

// brief is a form of records that were made short.
type brief struct{ Encoder }

func (f brief) Append(b []byte, r *audit.Record) []byte {
	return appendShortened(b, f.Encoder, r, maxText)
}

// appendShortened appends the line of the record made short.
func appendShortened(b []byte, f Encoder, r *audit.Record, keep int) []byte {
	short := shortened(r, keep)
	if is, ok := f.(brief); ok {
		f = is.Encoder
	}
	if _, ok := f.(native); ok {
		return appendShort(b, &short)
	}
	return f.Append(b, &short)
}

// ShortRecord is the record made short, as the form [ShortEncoder] has it. Its Line is whole.
func ShortRecord(r *audit.Record) audit.Record { return shortened(r, maxText) }

// shortened is the record without bodies, values and findings, of its steps only the one that
// decided, and of each text the first bytes. Its Line is whole.
func shortened(r *audit.Record, keep int) audit.Record {
	s := *r
	s.Steps, s.Values, s.Prev = nil, nil, beginning(r.Prev, sha256.Size*2)
	for _, step := range r.Steps {
		if by := decided(r); by != "" && step.Stage == by && step.Action == r.Action {
			s.Steps = []audit.Step{{Stage: beginning(by, keep), Action: beginning(step.Action,
				keep)}}
		}
	}
	for _, body := range []**audit.Body{&s.Before, &s.After} {
		if *body != nil {
			*body = &audit.Body{Size: (*body).Size, SHA256: beginning((*body).SHA256,
				sha256.Size*2), HMAC: beginning((*body).HMAC, sha256.Size*2)}
		}
	}
	for _, text := range []*string{&s.Session, &s.Exchange, &s.Principal, &s.Direction, &s.Kind,
		&s.Method, &s.Server, &s.Name, &s.Action, &s.Reason, &s.Error} {
		*text = beginning(*text, keep)
	}
	return s
}

// beginning is at most that many bytes of s, and a mark where there was more.
func beginning(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	for bytes > 0 && !utf8.RuneStart(s[bytes]) {
		bytes--
	}
	return s[:bytes] + "…"
}

// appendShort appends a record as JSON with the names of the log, and says what it stands for.
func appendShort(b []byte, r *audit.Record) []byte {
	sum := sha256.Sum256(r.Line)
	type short struct {
		Bytes  int    `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
	line, _ := json.Marshal(struct { // of texts and numbers: it cannot fail
		Seq       uint64 `json:"seq"`
		Time      string `json:"time"`
		Prev      string `json:"prev"`
		Session   string `json:"session,omitzero"`
		Exchange  string `json:"exchange,omitzero"`
		Principal string `json:"principal,omitzero"`
		Direction string `json:"direction,omitzero"`
		Kind      string `json:"kind,omitzero"`
		Method    string `json:"method,omitzero"`
		Server    string `json:"server,omitzero"`
		Name      string `json:"name,omitzero"`
		Action    string `json:"action"`
		Reason    string `json:"reason,omitzero"`
		Steps     []step `json:"steps,omitzero"`
		Before    *body  `json:"before,omitzero"`
		After     *body  `json:"after,omitzero"`
		Code      int64  `json:"code,omitzero"`
		Failed    bool   `json:"failed,omitzero"`
		Micros    int64  `json:"micros,omitzero"`
		Error     string `json:"error,omitzero"`
		Short     short  `json:"short"`
	}{
		r.Seq, r.Time.UTC().Format(timeLayout), r.Prev, r.Session, r.Exchange, r.Principal,
		r.Direction, r.Kind, r.Method, r.Server, r.Name, r.Action, r.Reason,
		stepsOf(r), sizeOf(r.Before), sizeOf(r.After), r.Code, r.Failed, r.Micros, r.Error,
		short{len(r.Line), hex.EncodeToString(sum[:])},
	}, jsontext.AllowInvalidUTF8(true))
	return append(appendPlainJSON(b, line), '\n')
}
