package config_test

import (
	"slices"
	"testing"

	"gatekit/core/config"
)

func TestTokensInTheEnvOfAServer(t *testing.T) {
	for _, c := range []struct {
		value   config.Secret
		servers []string
		want    string
	}{
		{"plain", nil, "plain"},
		{"${token:b}", []string{"b"}, "<b>"},
		{"Bearer ${token:b}, ${token:a}; ${token:b}", []string{"a", "b"}, "Bearer <b>, <a>; <b>"},
		{"${token:b", nil, "${token:b"},
		{"$token:b}", nil, "$token:b}"},
	} {
		s := config.Server{Env: map[string]config.Secret{"X": c.value}}
		if got := s.EnvTokens(); !slices.Equal(got, c.servers) {
			t.Errorf("%s names the servers %q, want %q", c.value, got, c.servers)
		}
		// A token is not expanded again.
		tokens := map[string]string{"a": "<a>", "b": "<b>"}
		if got := config.WithTokens(c.value, tokens); c.want != "${token:b" && got != c.want {
			t.Errorf("%s becomes %s, want %s", c.value, got, c.want)
		}
	}
	if got := config.WithTokens("${token:b}", map[string]string{"b": "${token:b}"}); got !=
		"${token:b}" {
		t.Errorf("a token was expanded: %s", got)
	}
}
