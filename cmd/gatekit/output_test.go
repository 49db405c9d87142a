package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
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
	commands := []*cobra.Command{(&program{}).root()}
	for i := 0; i < len(commands); i++ { // a command adds the commands below it
		c := commands[i]
		commands = append(commands, c.Commands()...)
		for _, width := range []int{minHelpWidth, 55, 80, 99, 132} {
			text := c.Long + "\n\n" + c.UsageString()
			wrapped := wrapText(text, width)
			for line := range strings.Lines(wrapped) {
				line = strings.TrimRight(line, "\n")
				// a word that is longer than the width is alone on its line
				if n := utf8.RuneCountInString(line); n > width && strings.Contains(
					strings.TrimSpace(line), " ") {
					t.Errorf("%s: a line has %d characters, want at most %d: %q", c.CommandPath(),
						n, width, line)
				}
			}
			if got, want := strings.Join(strings.Fields(wrapped), " "),
				strings.Join(strings.Fields(text), " "); got != want {
				t.Errorf("%s: wrapping to %d columns changed the words", c.CommandPath(), width)
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
