package plugins_test

import (
	"fmt"
	"strings"
	"testing"
)

// A process that uses more than 256 MiB is killed. The log says how much memory it used.
func TestProcessThatUsesTooMuchMemoryIsKilled(t *testing.T) {
	t.Parallel()
	h := startHost(t, programSpec("scripted", "scripted"))
	_, err := h.pass(messagesByKind["a request"]("use 320 MiB"))
	if d := requireDenied(t, err); !strings.Contains(fmt.Sprint(d.Err), "killed") {
		t.Fatalf("denied because of %v, want that the process was killed", d.Err)
	}
	_, line, _ := strings.Cut(h.log.text(), `msg="plugin killed: memory limit exceeded" `)
	const limit = 256 << 20
	var used, logged int64
	if _, err := fmt.Sscanf(line, "plugin=scripted bytes=%d limit=%d", &used,
		&logged); err != nil || used <= limit || used > 8*limit || logged != limit {
		t.Errorf("logged %q, want more than %d bytes and this limit; error %v", line, limit, err)
	}
	h.waitForEvent("scripted plugin_restarted", 1)
	h.waitUntilAllowed("a request")
}
