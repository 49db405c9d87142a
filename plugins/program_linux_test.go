package plugins_test

import (
	"strings"
	"testing"

	"gatekit/plugins"
)

// The file /proc/self/mem is regular and cannot be read from its beginning.
func TestPinnedProgramThatCannotBeReadIsReported(t *testing.T) {
	t.Parallel()
	s := programSpec("scripted")
	s.Command, s.SHA256 = []string{"/proc/self/mem"}, make([]byte, 32)
	_, err := newHost(t, plugins.Options{}).Load(t.Context(), []plugins.Spec{s})
	const want = "copy /proc/self/mem: "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want %q in it", err, want)
	}
}
