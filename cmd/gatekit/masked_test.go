package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gatekit/core/config"
)

// TestSecretsOfAllConfigurationsAreMasked reads many configurations, each with another secret. If
// reloads refuse the later configurations, the first configuration stays active, so its secrets
// must stay masked, too.
func TestSecretsOfAllConfigurationsAreMasked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gatekit.toml")
	text := "[server.remote]\nurl = \"https://example.com/${env:GATEKIT_TEST_TOKEN}\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var m masked
	for i := range 100 {
		t.Setenv("GATEKIT_TEST_TOKEN", fmt.Sprintf("token-%d", i))
		c, err := config.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		m.add(c)
	}
	for _, secret := range []string{"token-0", "token-50", "token-99"} {
		if got := m.mask("GET /" + secret + "/x"); got != "GET /[redacted]/x" {
			t.Errorf("the text with %s is masked as %q", secret, got)
		}
	}
}
