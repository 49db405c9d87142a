package process

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxLogLine   = 4 << 10  // logged bytes of one line
	maxLogRate   = 50       // logged lines in one second
	maxTailBytes = 64 << 10 // bytes of the end of stderr that are kept at least, twice that at most
	maxTailText  = 2 << 10  // bytes of the end of stderr in one error message
)

// Drain reads the stderr of the process to its end, so that the process never waits for Gatekit. It
// logs a limited number of lines per second and writes the other lines to the overflow file. It
// keeps the last bytes for StderrTail. Start runs Drain in a goroutine.
func (p *Process) Drain(stderr io.Reader) {
	var (
		chunk   [4 << 10]byte
		line    []byte
		cut     bool      // line is not whole: its end was dropped
		window  time.Time // start of the current second
		logged  int       // number of lines logged since window
		skipped int       // number of lines not logged
		file    string    // file with the lines that were not logged
		fault   error     // why a line was not written to the file
	)
	report := func() {
		switch {
		case skipped > 0 && fault != nil:
			p.log.Warn("stderr lines skipped: too many per second", "lines", skipped, "error",
				fault)
		case skipped > 0:
			p.log.Warn("stderr lines written to a file: too many per second", "lines", skipped,
				"file", file)
		}
		skipped, fault = 0, nil
	}
	emit := func() {
		now := time.Now()
		if now.Sub(window) > time.Second {
			report()
			window, logged = now, 0
		}
		text := Printable([]byte(p.masker.mask(string(line), cut)))
		if cut {
			text += "…"
		}
		line, cut = line[:0], false
		if strings.TrimSpace(text) == "" {
			return
		}
		if p.onStderr != nil {
			p.onStderr(text)
		}
		if logged++; logged > maxLogRate {
			skipped++
			path, err := p.overflow.write(now, text)
			if err != nil {
				fault = err
			} else {
				file = path
			}
			return
		}
		p.log.Info("stderr", "line", text)
	}
	for {
		n, err := stderr.Read(chunk[:])
		p.stderrTail.add(chunk[:n])
		for rest := chunk[:n]; len(rest) > 0; {
			part, after, whole := bytes.Cut(rest, []byte{'\n'})
			room := maxLogLine - len(line)
			cut = cut || len(part) > room
			line = append(line, part[:min(len(part), room)]...)
			if whole {
				emit()
			}
			rest = after
		}
		if err != nil {
			if len(line) > 0 {
				emit()
			}
			report()
			return
		}
	}
}

// tail keeps the last bytes that were added. Many goroutines may use it.
type tail struct {
	mu  sync.Mutex
	b   []byte
	cut bool // bytes before b were dropped
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*maxTailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-maxTailBytes:]...)
		t.cut = true
	}
}

// text returns the kept bytes. They begin with a whole line, unless they are part of a single line.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.b
	if t.cut {
		if _, rest, ok := bytes.Cut(b, []byte{'\n'}); ok {
			b = rest
		}
	}
	return string(b)
}

// lastLines returns the last n lines of a text, indented, printable and of limited length.
func lastLines(text string, n int) string {
	text = strings.TrimRight(text, "\r\n\t ")
	text = text[max(0, len(text)-maxTailText):]
	all := strings.Split(text, "\n")
	var s []string
	for _, line := range all[max(0, len(all)-n):] {
		if text := Printable([]byte(strings.TrimRight(line, "\r"))); text != "" {
			s = append(s, "  "+text)
		}
	}
	return strings.Join(s, "\n")
}

// Printable returns b with control characters and invalid UTF-8 escaped. It cuts b to the maximum
// length of a logged line.
func Printable(b []byte) string {
	b = b[:min(len(b), maxLogLine)]
	var s strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&s, `\x%02x`, b[0])
		case r == '\t' || unicode.IsPrint(r):
			s.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&s, `\x%02x`, r)
		default:
			fmt.Fprintf(&s, `\u%04x`, r)
		}
		b = b[size:]
	}
	return strings.TrimRight(s.String(), "\t ")
}

// reapOrphans reaps processes of the killed group that became children of Gatekit when their parent
// died. There are such processes only if Gatekit is process 1 (in a container) or a subreaper.
func reapOrphans(pgid int) {
	for {
		if _, err := syscall.Wait4(-pgid, nil, 0, nil); err != nil && err != syscall.EINTR {
			return
		}
	}
}
