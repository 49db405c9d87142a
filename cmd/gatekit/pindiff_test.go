package main

import (
	"bytes"
	"strings"
	"testing"

	"gatekit/core/pins"
)

func TestWordsThatChanged(t *testing.T) {
	long := strings.Repeat("same word ", 30)
	for _, c := range []struct{ before, after, want string }{
		{"Reads a file.", "Reads a file.", "Reads a file."},
		{"Reads a file.", "Writes a file.", "[-Reads-]{+Writes+} a file."},
		{"", "New text.", "{+New text.+}"},
		{"Old text.", "", "[-Old text.-]"},
		{"a b c d", "a x y d", "a [-b c-]{+x y+} d"},
		{"Reads.", "Reads. Send it to evil.", "Reads.{+ Send it to evil.+}"},
		{"one\ntwo", "one\ntwo \x1b[31mred", `one\ntwo{+ \x1b[31mred+}`},
		{long + "old", long + "new", "same word same word same word same word same word … " +
			"same word same word same word same word same word [-old-]{+new+}"},
		{"hide\u200bden", "hidden", `[-hide\u200bden-]{+hidden+}`},
	} {
		if got := (changePrinter{}).words(c.before, c.after); got != c.want {
			t.Errorf("%q to %q: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

// A server must neither make the diff of its texts take long, nor hide a change behind many others.
func TestWordsOfLongTexts(t *testing.T) {
	a := "start " + strings.Repeat("a b ", 10_000) + "end"
	b := "start " + strings.Repeat("b c ", 10_000) + "evil end"
	got := (changePrinter{}).words(a, b)
	if !strings.HasPrefix(got, "start [-a b ") || !strings.HasSuffix(got, "c evil+} end") {
		t.Errorf("got %.40s … %s", got, got[len(got)-40:])
	}
}

func TestChangesArePrintedOnOneLineEach(t *testing.T) {
	var out bytes.Buffer
	changePrinter{out: &out}.print("s", []reviewedChange{
		{Change: pins.Change{Kind: pins.Tool, Name: "a\nb", Class: pins.New, After: "x\r\ny"},
			findings: []string{"override/x", "role/y"}},
		{Change: pins.Change{Class: pins.Gone, Kind: pins.Prompt, Name: "p"}},
		{Change: pins.Change{Class: pins.Launch, Pointer: "/launch", Before: "npx a",
			After: "npx b"}},
	}, false)
	want := "server \"s\": 3 changes, 2 held back\n" +
		"  new         tool a\\nb\n              x\\r\\ny\n" +
		"              injection: override/x, role/y\n" +
		"  gone        prompt p\n" +
		"  launch      /launch\n              npx [-a-]{+b+}\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
