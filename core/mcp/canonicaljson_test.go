package mcp_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"gatekit/core/mcp"
)

// The examples of RFC 8785, sections 3.2.2 to 3.2.4, and of its appendix B.
func TestCanonicalJSONOfRFC8785(t *testing.T) {
	whole := "{\n" +
		`  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],` +
		"\n" + `  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",` + "\n" +
		`  "literals": [null, true, false]` + "\n}"
	wholeHex := "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a5b" +
		"3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d32375d2c227374" +
		"72696e67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d"
	want, _ := hex.DecodeString(wholeHex)
	for _, tt := range []struct{ name, in, want string }{
		{"section 3.2.4", whole, string(want)},
		{"members are sorted by UTF-16 code units",
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With ` +
				`Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",` +
				`"\u00f6":"Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small ` +
				`Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" +
				`":"Hebrew Letter Dalet With Dagesh"}`},
		{"minus zero", `-0.0`, `0`},
		{"the smallest number", `5e-324`, `5e-324`},
		{"the largest number", `1.7976931348623157e308`, `1.7976931348623157e+308`},
		{"the largest safe integer", `9007199254740992`, `9007199254740992`},
		{"an integer that is written in full", `295147905179352830000`, `295147905179352830000`},
		{"an exponent", `1e+23`, `1e+23`},
		{"a number below one", `0.000001`, `0.000001`},
		{"17 digits", `333333333.33333325`, `333333333.33333325`},
		{"17 digits that are not the shortest form", `0.10000000000000001`, `0.1`},
		{"an exponent of zero", `0e99999999999999999999`, `0`},
		{"zeros at the ends", `0.0010000000000000000000`, `0.001`},
		{"an integer with an exponent", `-100e-2`, `-1`},
		{"a whole number with a point", `9007199254740994.0`, `9007199254740994`},
		{"a whole number of 17 digits with an exponent", `9.9999999999999992e22`, `1e+23`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mcp.CanonicalJSON([]byte(tt.in))
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestCanonicalJSONRefuses(t *testing.T) {
	for _, in := range []string{`9007199254740993`, `[{"a":-9007199254740993}]`, `1e400`, `-1e-400`,
		`0.100000000000000001`, `1` + strings.Repeat("0", 22) + `1`, `1.2345678901234567891`,
		`1e-99999999999999999999`, `12345678901234567890`, `9007199254740993.0`,
		`9007199254740.993e3`, `99999999999999992000000`} {
		if got, err := mcp.CanonicalJSON([]byte(in)); !errors.Is(err, mcp.ErrNotDouble) {
			t.Errorf("%s got %s, %v, want ErrNotDouble", in, got, err)
		}
	}
	for _, in := range []string{``, `{`, `{"a":1,"a":1}`, `"\ud800"`, "\"\xff\"", `1 2`, `01`} {
		if got, err := mcp.CanonicalJSON([]byte(in)); err == nil ||
			errors.Is(err, mcp.ErrNotDouble) {
			t.Errorf("%q got %s, %v, want another error", in, got, err)
		}
	}
	in := []byte(`{"b":1,"a":2}`)
	if _, err := mcp.CanonicalJSON(in); err != nil || string(in) != `{"b":1,"a":2}` {
		t.Errorf("CanonicalJSON changed its argument to %s (%v)", in, err)
	}
}

func TestBodyWithoutReceipt(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"content":[]}`, `{"content":[]}`},
		{`{"content":[],"_meta":{}}`, `{"content":[]}`},
		{`{"content":[],"_meta":null}`, `{"content":[]}`},
		{`{"content":[],"_meta":{"gatekit/receipt":{"a":1}}}`, `{"content":[]}`},
		{`{"content":[],"_meta":{"a":1,"gatekit/receipt":2}}`, `{"content":[],"_meta":{"a":1}}`},
		{`{"content":[],"_meta":{"gatekit/noReceipt":"no"}}`,
			`{"content":[],"_meta":{"gatekit/noReceipt":"no"}}`},
		{`{"content":[],"_meta":[]}`, `{"content":[],"_meta":[]}`},
	} {
		got, err := mcp.BodyWithoutReceipt(mcp.NewResponse("1", []byte(tt.in)))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s got %s, %v, want %s", tt.in, got, err, tt.want)
		}
	}
}
