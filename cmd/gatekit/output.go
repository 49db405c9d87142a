package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// checkedOutput is stdout for the commands. It keeps the first write error. A command that ignores
// this error still fails, because nobody got its result.
type checkedOutput struct {
	w   io.Writer
	err error
}

func (o *checkedOutput) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(b)
	o.err = err
	return n, err
}

// result returns err, the error of the command. If err is nil, it returns the first write error.
func (o *checkedOutput) result(err error) error {
	switch {
	case err != nil || o.err == nil:
		return err
	case errors.Is(o.err, syscall.EPIPE):
		return errReported // the reader has closed the pipe
	}
	return fmt.Errorf("write the output: %w", o.err)
}

// maxHelpWidth is the width of the help texts in the code.
const maxHelpWidth = 100

// minHelpWidth is the least width to which help is wrapped.
const minHelpWidth = 30

// wrapHelp makes the help of all commands fit the width of the terminal, or maxHelpWidth.
func wrapHelp(root *cobra.Command) {
	print := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		width := maxHelpWidth
		size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
		if err == nil && size.Col > 0 {
			width = max(minHelpWidth, min(width, int(size.Col)))
		}
		out := c.OutOrStdout()
		var text bytes.Buffer
		c.SetOut(&text)
		print(c, args)
		c.SetOut(out)
		fmt.Fprint(out, wrapText(text.String(), width))
	})
}

// tableGap is the gap between the columns of a table in a help text.
var tableGap = regexp.MustCompile(`\S {2,}`)

// wrapText wraps the lines of a help text to a width. It first joins the lines of each paragraph. A
// line that is indented or contains a table is not joined with other lines. If such a line is too
// long, its continuation lines are indented.
func wrapText(text string, width int) string {
	var out strings.Builder
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			wrapLine(&out, strings.Join(paragraph, " "), 0, width)
			paragraph = nil
		}
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		gap := tableGap.FindStringIndex(line[indent:])
		switch {
		case line == "":
			flush()
			out.WriteString("\n")
		case indent == 0 && gap == nil && !strings.HasSuffix(line, ":"):
			paragraph = append(paragraph, line)
		case indent == 0 && gap == nil:
			paragraph = append(paragraph, line)
			flush()
		default:
			flush()
			hang := indent + 2
			if gap != nil && indent+gap[1] <= width/2 {
				hang = indent + gap[1]
			}
			wrapLine(&out, line, hang, width)
		}
	}
	flush()
	return out.String()
}

// wrapLine writes a line and breaks it at spaces so that it fits the width. The parameter hang is
// the number of spaces before each continuation line. A word that is longer than the width is not
// broken.
func wrapLine(out *strings.Builder, line string, hang, width int) {
	for utf8.RuneCountInString(line) > width {
		// end is the offset after width+1 characters, because character width+1 may be the space at
		// which the line breaks.
		end, n := len(line), 0
		for i := range line {
			if n++; n > width+1 {
				end = i
				break
			}
		}
		start := len(line) - len(strings.TrimLeft(line, " "))
		at := strings.LastIndexByte(line[:end], ' ')
		if at <= start {
			next := strings.IndexByte(line[start:], ' ')
			if next < 0 {
				break
			}
			at = start + next
		}
		out.WriteString(strings.TrimRight(line[:at], " ") + "\n")
		line = strings.Repeat(" ", hang) + strings.TrimLeft(line[at:], " ")
	}
	out.WriteString(line + "\n")
}
