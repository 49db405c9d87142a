package secrets

import (
	"context"
	"strings"
	"testing"
)

func TestRedactText(t *testing.T) {
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	for _, c := range []struct{ name, text, want string }{
		{"empty text", "", ""},
		{"no secret", "listening\non stdio\n", "listening\non stdio\n"},
		{"two secrets", "a " + token + "\n\"b\" " + token + "\x1b", "a S\n\"b\" S\x1b"},
		{"invalid UTF-8", "a\xff " + token, "a\ufffd S"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := RedactText(t.Context(), c.text)
			if err != nil {
				t.Fatal(err)
			}
			for {
				before, rest, found := strings.Cut(got, "[secret:github-pat:")
				if !found {
					break
				}
				_, after, _ := strings.Cut(rest, "]")
				got = before + "S" + after
			}
			if got != c.want {
				t.Errorf("got %q, want %q, where S stands for a placeholder", got, c.want)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := RedactText(ended, token); err == nil || got != "" {
		t.Errorf("got %q and %v after the context ended, want an error only", got, err)
	}
}
