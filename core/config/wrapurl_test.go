package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/core/config"
)

func TestWrapURLReadsTheURLAndItsHeaders(t *testing.T) {
	t.Setenv("TOKEN", "hush-hush")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("key", []byte("quiet-quiet\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.WrapURL("far", "https://example.com/mcp?a=\"b\"", map[string]string{
		"Authorization": "Bearer ${env:TOKEN}", "x-key": "${file:key}"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Servers) != 1 || !c.Listen.Stdio || c.Names.Prefix != "never" || c.File != "" {
		t.Fatalf("got %+v, want one server on stdio without prefix", c)
	}
	s := c.Servers[0]
	if s.Name != "far" || s.URL != "https://example.com/mcp?a=\"b\"" || s.Command != "" ||
		s.Cwd != "" || s.Position != (config.Position{}) || s.Era != "auto" {
		t.Errorf("got the server %+v", s)
	}
	if a, k := s.Headers["Authorization"], s.Headers["x-key"]; a != "Bearer hush-hush" ||
		k != "quiet-quiet" {
		t.Errorf("got the headers %q and %q", string(a), string(k))
	}
	for _, secret := range []string{"hush-hush", "quiet-quiet"} {
		if !slices.Contains(c.Substituted(), secret) {
			t.Errorf("the secret %q is not masked", secret)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if hidden, _ := c.ProtectedFiles(); !slices.Contains(hidden, filepath.Join(dir, "key")) {
		t.Errorf("the hidden files are %q, want the file of the secret", hidden)
	}
}

func TestWrapURLReportsMistakes(t *testing.T) {
	for _, c := range []struct{ url, header, want string }{
		{"example.com", "a", "must be a URL"},
		{"https://me:hush@example.com", "a", "contains credentials"},
		{"https://example.com/#a", "a", "has a fragment"},
		{"https://example.com", "Host", "is set by the protocol"},
		{"https://example.com", "a b", "is not a valid header name"},
		{"https://example.com/${env:NOT_SET_AT_ALL}", "a", "is not set in the environment"},
	} {
		got, err := config.WrapURL("far", c.url, map[string]string{c.header: "x"})
		if got != nil || err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), ":1") {
			t.Errorf("WrapURL(%q) returned %v, want the error %q without a position", c.url, err,
				c.want)
		}
	}
}
