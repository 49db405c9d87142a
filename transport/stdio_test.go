package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gatekit/core/conn"
	"gatekit/transport"
)

// stdioPeer has the other ends of the two pipes of a StdioPipe.
type stdioPeer struct {
	toPipe   *os.File // to write the bytes that the StdioPipe reads
	fromPipe *os.File // to read the bytes that the StdioPipe writes
}

func openStdio(t *testing.T, maxMessage int) (*transport.StdioPipe, stdioPeer) {
	t.Helper()
	in, toPipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromPipe, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := transport.NewStdioPipe(in, out, maxMessage)
	t.Cleanup(func() {
		p.Close()
		for _, f := range []*os.File{in, out, toPipe, fromPipe} {
			f.Close()
		}
	})
	return p, stdioPeer{toPipe, fromPipe}
}

func TestStdioRead(t *testing.T) {
	longLine := `{"x":"` + strings.Repeat("x", 150<<10) + `"}`
	tooLongLine := strings.Repeat("y", 200<<10+1)
	const tooLong = "too long"
	for _, c := range []struct {
		name, input string
		want        []string
	}{
		{"lines", "{\"id\":1}\n{\"id\":2}\n", []string{`{"id":1}`, `{"id":2}`}},
		{"carriage returns before the line feed", "{\"id\":1}\r\n{\"id\":2}\r\n",
			[]string{`{"id":1}`, `{"id":2}`}},
		{"blank lines", "\n\r\n  \t\n{\"id\":1}\n\n", []string{`{"id":1}`}},
		{"spaces around a message are kept", " {\"id\":1} \n", []string{` {"id":1} `}},
		{"a last line without a line feed", "{\"id\":1}\n{\"id\":2}",
			[]string{`{"id":1}`, `{"id":2}`}},
		{"a last line of spaces", "{\"id\":1}\n  ", []string{`{"id":1}`}},
		{"bytes that are not JSON", "\x00\xff\n", []string{"\x00\xff"}},
		{"long lines between short ones",
			"{}\n" + longLine + "\n{}\n" + longLine + longLine[:10] + "\n{}\n",
			[]string{"{}", longLine, "{}", longLine + longLine[:10], "{}"}},
		{"a line over the limit", "{}\n" + tooLongLine + "\n{}\n", []string{"{}", tooLong, "{}"}},
		{"a line at the limit", tooLongLine[1:] + "\r\n{}\n", []string{tooLongLine[1:], "{}"}},
		{"a line over the limit at the end", tooLongLine, []string{tooLong}},
		{"two lines over the limit", tooLongLine + tooLongLine + "\n" + tooLongLine + "\n{}\n",
			[]string{tooLong, tooLong, "{}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, peer := openStdio(t, 200<<10)
			go func() {
				io.WriteString(peer.toPipe, c.input)
				peer.toPipe.Close()
			}()
			var got []string
			for {
				b, err := p.Read(t.Context())
				if errors.As(err, new(*conn.TooLargeError)) {
					got = append(got, tooLong)
					continue
				}
				if err != nil {
					if err != io.EOF {
						t.Errorf("got %v, want io.EOF", err)
					}
					break
				}
				got = append(got, string(b))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %.200q, want %.200q", got, c.want)
			}
		})
	}
}

func TestStdioReadDoesNotReuseBuffers(t *testing.T) {
	p, peer := openStdio(t, 0)
	var input strings.Builder
	var want []string
	for i := range 2000 {
		line := fmt.Sprintf(`{"i":%d,"x":"%s"}`, i, strings.Repeat("x", i*i%4099*i%90000))
		want = append(want, line)
		input.WriteString(line + "\n")
	}
	go func() {
		io.WriteString(peer.toPipe, input.String())
		peer.toPipe.Close()
	}()
	var got [][]byte
	for {
		b, err := p.Read(t.Context())
		if err != nil {
			break
		}
		got = append(got, b)
	}
	for i := range want {
		if i >= len(got) || string(got[i]) != want[i] {
			t.Fatalf("message %d is missing, or changed after it was read", i)
		}
	}
}

func TestStdioWriteRemovesLineBreaks(t *testing.T) {
	p, peer := openStdio(t, 0)
	write(t, p, "{\r\n  \"a\": \"b\\nc\",\n\t\"d\": [1,\r 2]\n}\n")
	got := make([]byte, 100)
	n, _ := peer.fromPipe.Read(got)
	if want := "{  \"a\": \"b\\nc\",\t\"d\": [1, 2]}\n"; string(got[:n]) != want {
		t.Errorf("got %q, want %q", got[:n], want)
	}
}

func TestStdioConcurrentWritesDoNotMixLines(t *testing.T) {
	p, peer := openStdio(t, 0)
	const writers, linesOfEach = 16, 50
	var wg sync.WaitGroup
	for writer := range writers {
		wg.Go(func() {
			for i := range linesOfEach {
				if err := p.Write(t.Context(), fmt.Appendf(nil, "%d %d %s", writer, i,
					strings.Repeat(string(rune('a'+writer)), i*500))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, writers)
	reader := transport.NewStdioPipe(peer.fromPipe, peer.toPipe, 0)
	defer reader.Close()
	for range writers * linesOfEach {
		var writer, i int
		line := read(t, reader)
		fmt.Sscan(line, &writer, &i)
		if i != next[writer] {
			t.Fatalf("writer %d: got line %d, want %d", writer, i, next[writer])
		}
		next[writer]++
		if want := fmt.Sprintf("%d %d %s", writer, i, strings.Repeat(string(rune('a'+writer)),
			i*500)); line != want {
			t.Fatalf("line %d of writer %d is mixed with other lines", i, writer)
		}
	}
	wg.Wait()
}

func TestStdioBlockedWriteEndsWithContext(t *testing.T) {
	p, peer := openStdio(t, 0)
	big := strings.Repeat("x", 3<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 2 {
		if err := p.Write(ctx, []byte(big)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want a deadline error", err)
		}
	}
	// Both messages are still written: a part of the first message was in the pipe already, and the
	// second message waited for the first.
	reader := transport.NewStdioPipe(peer.fromPipe, peer.toPipe, 0)
	defer reader.Close()
	for range 2 {
		if got := read(t, reader); got != big {
			t.Errorf("got %d bytes, want the message of %d bytes", len(got), len(big))
		}
	}
}

func TestStdioWriteBoundsPendingBytes(t *testing.T) {
	p, peer := openStdio(t, 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 20 {
		// returns when ctx ends, even while it waits because the pending bytes are at their limit
		p.Write(ctx, make([]byte, 1<<20))
	}
	go p.Write(t.Context(), []byte("last"))
	reader := transport.NewStdioPipe(peer.fromPipe, peer.toPipe, 1<<20)
	defer reader.Close()
	accepted := 0
	for read(t, reader) != "last" {
		accepted++
	}
	// One message is being written, and two are pending.
	if accepted > 3 {
		t.Errorf("%d messages were accepted while the client did not read, want at most 3",
			accepted)
	}
}

func TestStdioWriteFailsWhenTheClientIsGone(t *testing.T) {
	p, peer := openStdio(t, 0)
	peer.fromPipe.Close()
	for range 2 {
		if err := p.Write(t.Context(), []byte("{}")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("got %v, want a broken pipe", err)
		}
	}
}

func TestStdioCloseEndsReadAndWrite(t *testing.T) {
	p, _ := openStdio(t, 0)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := p.Read(t.Context()); err == nil {
			t.Error("Read returned a message, although the client sent none")
		}
	})
	wg.Go(func() {
		if err := p.Write(t.Context(), make([]byte, 3<<20)); err == nil {
			t.Error("Write succeeded, although the client does not read")
		}
	})
	time.Sleep(20 * time.Millisecond)
	p.Close()
	wg.Wait()
}

// TestStdioOnBlockingFiles uses files that are not in the runtime's poller. Blocking pipes are what
// a program gets from a shell, and regular files cannot be polled at all.
func TestStdioOnBlockingFiles(t *testing.T) {
	blockingPipe := func(t *testing.T) (r, w *os.File) {
		var fds [2]int
		if err := syscall.Pipe(fds[:]); err != nil {
			t.Fatal(err)
		}
		r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	t.Run("pipes are non-blocking until Close", func(t *testing.T) {
		in, toPipe := blockingPipe(t)
		fromPipe, out := blockingPipe(t)
		p := transport.NewStdioPipe(in, out, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := p.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a deadline error", err)
		}
		go toPipe.WriteString("{}\n")
		if got := read(t, p); got != "{}" {
			t.Errorf("got %q, want {}", got)
		}
		write(t, p, "{}")
		if n, _ := fromPipe.Read(make([]byte, 10)); n != 3 {
			t.Errorf("read %d bytes, want 3", n)
		}
		p.Close()
		if nonblocking(in) || nonblocking(out) {
			t.Error("the pipes are non-blocking after Close, want blocking")
		}
	})
	t.Run("a file is read to its end", func(t *testing.T) {
		name := t.TempDir() + "/in"
		os.WriteFile(name, []byte("{\"id\":1}\n"+strings.Repeat("x", 20000)+"\n"), 0o600)
		in, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := os.Create(name + "out")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		p := transport.NewStdioPipe(in, out, 0)
		defer p.Close()
		for _, want := range []int{8, 20000} {
			if got := read(t, p); len(got) != want {
				t.Errorf("got %d bytes, want %d", len(got), want)
			}
		}
		if _, err := p.Read(t.Context()); err != io.EOF {
			t.Errorf("got %v, want io.EOF", err)
		}
		write(t, p, "{}")
		if b, _ := os.ReadFile(name + "out"); string(b) != "{}\n" {
			t.Errorf("the output file holds %q, want {} and a line feed", b)
		}
	})
}

func nonblocking(f *os.File) bool {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var flags uintptr
	c.Control(func(fd uintptr) {
		flags, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd,
			syscall.F_GETFL, 0)
	})
	return flags&syscall.O_NONBLOCK != 0
}
