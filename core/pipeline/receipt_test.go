package pipeline_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// receiptSigner is a pipeline.ReceiptSigner that writes the fields down.
type receiptSigner struct{ err error }

func (s receiptSigner) SignReceipt(r pipeline.Receipt) ([]byte, error) {
	return fmt.Appendf(nil, `"%s %s %x %x %s %s %d"`, r.Server, r.Tool, r.Arguments[:4],
		r.Result[:4], r.Policy, r.Decision, r.Record), s.err
}

func TestWithReceipt(t *testing.T) {
	answer := func(result string) func(*testing.T) *mcp.Message {
		return func(t *testing.T) *mcp.Message {
			return answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"result":`+result+`}`)
		}
	}
	receipt := func(arguments, result, decision string) string {
		sum := func(s string) string {
			b := sha256.Sum256([]byte(s))
			return fmt.Sprintf("%x", b[:4])
		}
		return `"gatekit/receipt":"files read ` + sum(arguments) + " " + sum(result) + " rev7 " +
			decision + ` 1"`
	}
	const empty = `{"content":[]}`
	denial := `{"content":[{"type":"text","text":"refused by policy"}],"isError":true,` +
		`"_meta":{"gatekit/denied":{"action":"deny","stage":"guard","record":1}`
	for _, tt := range []struct {
		name      string
		stage     stage
		arguments string
		in        func(*testing.T) *mcp.Message
		want      string // the body
		err       string
	}{
		{"a result", allow, `{"b":1.0,"a":2}`, answer(empty),
			`{"content":[],"_meta":{` + receipt(`{"a":2,"b":1}`, empty, "pass") + `}}`, ""},
		{"no arguments", allow, ``, answer(empty),
			`{"content":[],"_meta":{` + receipt(`{}`, empty, "pass") + `}}`, ""},
		{"a result with _meta", allow, `{}`, answer(`{"_meta":{"a":1},"content":[]}`),
			`{"_meta":{"a":1,` + receipt(`{}`, `{"_meta":{"a":1},"content":[]}`, "pass") +
				`},"content":[]}`, ""},
		{"a result with null as _meta", allow, `{}`, answer(`{"content":[],"_meta":null}`),
			`{"content":[],"_meta":{` + receipt(`{}`, empty, "pass") + `}}`, ""},
		{"a receipt of a server is removed", allow, `{}`,
			answer(`{"content":[],"_meta":{"gatekit/receipt":{"forged":1}}}`),
			`{"content":[],"_meta":{` + receipt(`{}`, empty, "modify") + `}}`, ""},
		{"a modified result", modify(mcp.Set("/content", []byte(`[1]`))), `{}`, answer(empty),
			`{"content":[1],"_meta":{` + receipt(`{}`, `{"content":[1]}`, "modify") + `}}`, ""},
		{"a denial that is a result", always(pipeline.Verdict{Reason: "no"}), `{}`, answer(empty),
			denial + `,` + receipt(`{}`, `{"_meta":{"gatekit/denied":{"action":"deny","record":1,`+
				`"stage":"guard"}},"content":[{"text":"refused by policy","type":"text"}],`+
				`"isError":true}`, "deny") + `}}`, ""},
		{"a question", allow, `{}`, answer(`{"resultType":"input_required","requestState":"x"}`),
			`{"resultType":"input_required","requestState":"x"}`, ""},
		{"an error", allow, `{}`, func(t *testing.T) *mcp.Message {
			return answerTo(t, call(t), `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}`)
		}, `{"code":1,"message":"m"}`, ""},
		{"another method", allow, `{}`, func(t *testing.T) *mcp.Message {
			m := answer(empty)(t)
			m.Method = "prompts/get"
			return m
		}, empty, ""},
		{"a result with a number that is no double", allow, `{}`,
			answer(`{"structuredContent":{"n":9007199254740993}}`),
			`{"structuredContent":{"n":9007199254740993},"_meta":{"gatekit/noReceipt":` +
				`"no receipt for the result: a number is no IEEE 754 double"}}`,
			"no receipt for the result: a number is no IEEE 754 double"},
		{"arguments with a number that is no double", allow, `{"n":9007199254740993}`,
			answer(empty), `{"content":[],"_meta":{"gatekit/noReceipt":` +
				`"no receipt for the arguments: a number is no IEEE 754 double"}}`,
			"no receipt for the arguments: a number is no IEEE 754 double"},
		{"a result that is not Unicode", allow, `{}`, answer(`{"content":["\ud800"]}`),
			`{"content":["\ud800"],"_meta":{"gatekit/noReceipt":` +
				`"no receipt for the result: it has no form in RFC 8785"}}`,
			"no receipt for the result: it has no form in RFC 8785"},
		{"a _meta that is no object", allow, `{}`, answer(`{"content":[],"_meta":"x"}`),
			`{"content":[],"_meta":"x"}`, "neither an object nor an array"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pipeline.New(&record{}, pipeline.Options{Receipts: receiptSigner{},
				PolicyRevision: "rev7", DenyToolCallsAsResult: true},
				pipeline.StageConfig{Name: "guard", Stage: tt.stage})
			passed, err := p.Pass(t.Context(), tt.in(t))
			if d := (*pipeline.DeniedError)(nil); errors.As(err, &d) {
				passed = d.Response("7")
			}
			got, err := passed.WithReceipt(callWithArguments(t, tt.arguments))
			if string(got.Message().Body()) != tt.want {
				t.Errorf("got  %s\nwant %s", got.Message().Body(), tt.want)
			}
			if (err == nil) != (tt.err == "") || err != nil &&
				!strings.Contains(err.Error(), tt.err) {
				t.Errorf("got the error %v, want %q", err, tt.err)
			}
		})
	}
}

// callWithArguments returns a request with these arguments, or without arguments if they are "".
func callWithArguments(t *testing.T, arguments string) *mcp.Message {
	t.Helper()
	if arguments != "" {
		arguments = `,"arguments":` + arguments
	}
	m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` +
		`{"name":"read"` + arguments + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A receipt lacks the name of a tool that the record lacks.
func TestReceiptWithoutName(t *testing.T) {
	p := pipeline.New(&record{}, pipeline.Options{Receipts: receiptSigner{},
		DenyToolCallsAsResult: true}, pipeline.StageConfig{Name: "guard",
		Stage: always(pipeline.Verdict{Action: pipeline.Deny,
			Findings: []pipeline.Finding{{Type: "key", Pointer: "/name"}}})})
	_, err := p.Pass(t.Context(), call(t))
	d := (*pipeline.DeniedError)(nil)
	if !errors.As(err, &d) {
		t.Fatalf("got %v, want a denial", err)
	}
	got, err := d.Response("7").WithReceipt(call(t))
	if err != nil || !strings.Contains(text(got.Message()), `"gatekit/receipt":"files  `) {
		t.Errorf("got %s, %v, want a receipt without a name", text(got.Message()), err)
	}
}

func TestWithoutReceipt(t *testing.T) {
	result := `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`
	p := pipeline.New(&record{}, pipeline.Options{})
	passed, err := p.Pass(t.Context(), answerTo(t, call(t), result))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := passed.WithReceipt(call(t)); err != nil || got.Message() != passed.Message() {
		t.Errorf("without a signer got %s, %v, want the message itself", text(got.Message()), err)
	}
	if got, err := (pipeline.Passed{}).WithReceipt(call(t)); err != nil || got.Message() != nil {
		t.Errorf("the zero Passed got %s, %v, want nothing", text(got.Message()), err)
	}

	p = pipeline.New(&record{}, pipeline.Options{Receipts: receiptSigner{errors.New("no key")}})
	passed = p.PassOwn(t.Context(), answerTo(t, call(t), result))
	got, err := passed.WithReceipt(call(t))
	want := `{"content":[],"_meta":{"gatekit/noReceipt":"the receipt could not be signed: no key"}}`
	if err == nil || string(got.Message().Body()) != want {
		t.Errorf("without a key got %s, %v, want %s and an error", got.Message().Body(), err, want)
	}

	p = pipeline.New(&record{}, pipeline.Options{Receipts: receiptSigner{}})
	passed = p.PassOwn(t.Context(), answerTo(t, call(t), result))
	if got, err := passed.WithReceipt(call(t)); err != nil ||
		!strings.Contains(text(got.Message()), `"files read `) ||
		!strings.Contains(text(got.Message()), ` answer 1"`) {
		t.Errorf("a result of Gatekit itself got %s, %v, want record 1", text(got.Message()), err)
	}

	// a denial whose record could not be written
	p = pipeline.New(failingRecorder(), pipeline.Options{Receipts: receiptSigner{},
		DenyToolCallsAsResult: true})
	_, err = p.Pass(t.Context(), answerTo(t, call(t), result))
	d := (*pipeline.DeniedError)(nil)
	if !errors.As(err, &d) {
		t.Fatalf("got %v, want a denial", err)
	}
	got, err = d.Response("7").WithReceipt(call(t))
	if err == nil || !strings.Contains(text(got.Message()),
		`"gatekit/noReceipt":"the result has no record"`) {
		t.Errorf("a result without a record got %s, %v", text(got.Message()), err)
	}
}

func failingRecorder() *record {
	return &record{fail: func() error { return errors.New("disk full") }}
}
