package pii_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// Each test in this file covers a defect of the PII filter of the first Gatekit.

func TestAllFindingsInALongTextAreRedacted(t *testing.T) {
	var b strings.Builder
	b.WriteString(strings.Repeat("lorem ipsum ", 8<<10))
	for i := range 2000 {
		fmt.Fprintf(&b, "user%d@corp%d.io ", i, i)
	}
	v := inspect(t, newStage(t, `{}`), textResult(b.String()))
	got := redacted(t, `{}`, b.String())
	if n := strings.Count(got, "[email]"); n != 2000 || strings.Contains(got, "@") {
		t.Errorf("%d of 2000 addresses are redacted, want all", n)
	}
	if v.Reason != "personal data: 2000 email" || len(v.Findings) != 100 {
		t.Errorf("reason %q with %d findings, want one with 2000 addresses, and 100 findings",
			v.Reason, len(v.Findings))
	}
}

func TestErrorsAreSearched(t *testing.T) {
	m := mcp.NewError("1", -32603, "no such user bob@corp.io", []byte(`{"card":4111111111111111}`))
	m.Method, m.Direction = "tools/call", mcp.ToClient
	const want = `{"code":-32603,"message":"no such user b***@corp.io",` +
		`"data":{"card":"************1111"}}`
	if got := bodyAfter(t, newStage(t, `{"replace":"mask"}`), m); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMemberNamesAreSearched(t *testing.T) {
	m := rawResult(`{"structuredContent":{"bob@corp.io":{"n":1}}}`)
	const want = `{"structuredContent":{"b***@corp.io":{"n":1}}}`
	if got := bodyAfter(t, newStage(t, `{"replace":"mask"}`), m); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNotificationsAreRedacted(t *testing.T) {
	m := mcp.NewNotification("notifications/message",
		[]byte(`{"level":"info","data":"login of bob@corp.io"}`))
	m.Direction = mcp.ToClient
	const want = `{"level":"info","data":"login of b***@corp.io"}`
	if got := bodyAfter(t, newStage(t, `{"replace":"mask"}`), m); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOverlappingMatchesDoNotCorruptTheText(t *testing.T) {
	for text, want := range map[string]string{
		"x 4111 1111 1111 1111@corp.io y":           "x [card]@corp.io y",
		"x GB82WEST12345698765432@corp.io y":        "x [iban]@corp.io y",
		"SSN 536-90-4399 4111 1111 1111 1111 end":   "SSN [us-ssn] [card] end",
		"+44 20 7946 0958+44 20 7946 0958":          "[phone]+44 20 7946 0958",
		"81.2.69.142@corp.io":                       "[ip]@corp.io",
		"call 2125550123@gmail.com or 2125550123 !": "call [phone]@gmail.com or [phone] !",
	} {
		got := redacted(t, `{}`, text)
		if got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestServerRequestsAndTheirAnswersAreSearched(t *testing.T) {
	request := mcp.NewRequest("1", "sampling/createMessage", []byte(`{"messages":[`+
		`{"role":"user","content":{"type":"text","text":"mail bob@corp.io"}}],"maxTokens":9}`))
	request.Direction = mcp.ToClient
	answer := mcp.NewResponse("1",
		[]byte(`{"action":"accept","content":{"card":"4111 1111 1111 1111"}}`))
	answer.Method, answer.Direction, answer.Request = "elicitation/create", mcp.ToServer, request
	for _, m := range []*mcp.Message{request, answer} {
		if v := inspect(t, newStage(t, `{}`), m); v.Action != pipeline.Modify ||
			len(v.Findings) != 1 {
			t.Errorf("%s: action %d with %v, want one value redacted", m.Body(), v.Action,
				v.Findings)
		}
	}
}

func TestLargeMessagesAreSearched(t *testing.T) {
	text := strings.Repeat("lorem ipsum ", 200_000) + "bob@corp.io"
	for _, m := range []*mcp.Message{textResult(text), mcp.NewNotification("notifications/message",
		[]byte(`{"data":`+string(mcp.Quote(text))+`}`))} {
		if v := inspect(t, newStage(t, `{}`), m); v.Action != pipeline.Modify {
			t.Errorf("action %d, want it redacted", v.Action)
		}
	}
}

func TestDataURLsAreSearched(t *testing.T) {
	for text, forbidden := range map[string][]string{
		"data:text/plain,bob@corp.io and 4111 1111 1111 1111":             {"bob@", "4111"},
		"data:text/plain;base64,bWFpbCBib2JAY29ycC5pbyBub3cgcGxlYXNlIQ==": {"Ym9i", "bWFpb"},
	} {
		got := redacted(t, `{}`, text)
		for _, part := range forbidden {
			if strings.Contains(got, part) {
				t.Errorf("got %q, which holds %q", got, part)
			}
		}
	}
}

// In the first Gatekit, a finding in base64 carried fifty characters of the text into the audit
// log.
func TestReasonsAndFindingsHoldNoContent(t *testing.T) {
	v := inspect(t, newStage(t, `{"action":"block"}`),
		textResult("bob@corp.io bWFpbCBib2JAY29ycC5pbyBub3cgcGxlYXNlIQ== 4111 1111 1111 1111"))
	recorded := fmt.Sprint(v.Reason, v.Findings)
	for _, part := range []string{"bob", "bWF", "4111"} {
		if strings.Contains(recorded, part) {
			t.Errorf("%q is recorded in %s", part, recorded)
		}
	}
	if len(v.Edits) > 0 {
		t.Error("a denied message has edits")
	}
}

// The first Gatekit skipped words that look like base64.
func TestWordsThatCouldBeBase64AreSearched(t *testing.T) {
	for _, text := range []string{"4111111111111111", "DE89370400440532013000",
		"RSSMRA85T10A562S"} {
		if v := inspect(t, newStage(t, `{}`), textResult(text)); v.Action != pipeline.Modify {
			t.Errorf("%s: action %d, want it redacted", text, v.Action)
		}
	}
}

// The first Gatekit accepted octets above 255. It missed short forms of IPv6, and all phone numbers
// but American ones.
func TestInternationalFormatsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"host 999.999.999.999":                    "host 999.999.999.999",
		"host 2a00:1450::1":                       "host [ip]",
		"+49 30 22730000":                         "[phone]",
		"2221 0000 0000 0009":                     "[card]",
		"4111-1111 1111 1111":                     "[card]",
		"Überweisung DE89 3704 0044 0532 0130 00": "Überweisung [iban]",
	} {
		if got := redacted(t, `{}`, text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
