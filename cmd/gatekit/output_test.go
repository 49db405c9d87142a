package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHelpIsWrappedToWidth(t *testing.T) {
	const text = `Check reads a configuration and starts each server, with
its own settings, once.

  gatekit check --config gatekit.toml --and-more-of-it here

Flags:
  -h, --help     help for check, which is longer than the width
      --a-very-long-flag-without-space   text
`
	const want = `Check reads a configuration and
starts each server, with its own
settings, once.

  gatekit check --config
    gatekit.toml --and-more-of-it
    here

Flags:
  -h, --help     help for check,
    which is longer than the
    width
      --a-very-long-flag-without-space
        text
`
	if got := wrapText(text, 33); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, c := range append((&program{}).root().Commands(), (&program{}).root()) {
		for _, width := range []int{40, 80} {
			text := c.Long + "\n\n" + c.UsageString()
			for line := range strings.Lines(wrapText(text, width)) {
				line = strings.TrimRight(line, "\n")
				if n := utf8.RuneCountInString(line); n > width && strings.Contains(
					strings.TrimSpace(line), " ") && width == 80 {
					t.Errorf("%s: a line has %d characters, want at most %d: %q", c.Name(), n,
						width, line)
				}
			}
			if got, want := strings.Join(strings.Fields(wrapText(text, width)), " "),
				strings.Join(strings.Fields(text), " "); got != want {
				t.Errorf("%s: wrapping to %d columns changed the words", c.Name(), width)
			}
		}
	}
}

// TestCommandsFailWhenOutputIsFull writes the output of commands to a device that is always full.
func TestCommandsFailWhenOutputIsFull(t *testing.T) {
	for _, args := range []string{"demo", "version", "plugin list", "policy list", "help",
		"help run", "audit"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		c := exec.Command("gatekit", strings.Fields(args)...)
		var stderr strings.Builder
		c.Stdout, c.Stderr = full, &stderr
		c.Run()
		full.Close()
		if code := c.ProcessState.ExitCode(); code != exitFailed ||
			!strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("gatekit %s > /dev/full exited with %d and printed %q, want %d and the error",
				args, code, stderr.String(), exitFailed)
		}
	}
}
