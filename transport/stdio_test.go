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

// client is the other side of a StdioPipe.
type client struct {
	to, from *os.File
}

func openStdio(t *testing.T, maxMessage int) (*transport.StdioPipe, client) {
	t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := transport.NewStdioPipe(in, out, maxMessage)
	t.Cleanup(func() {
		p.Close()
		for _, f := range []*os.File{in, out, to, from} {
			f.Close()
		}
	})
	return p, client{to, from}
}

func TestStdioRead(t *testing.T) {
	long := `{"x":"` + strings.Repeat("x", 150<<10) + `"}`
	over := strings.Repeat("y", 200<<10+1)
	const tooLong = "too long"
	for _, c := range []struct {
		name, input string
		want        []string
	}{
		{"lines", "{\"id\":1}\n{\"id\":2}\n", []string{`{"id":1}`, `{"id":2}`}},
		{"carriage returns before the line feed", "{\"id\":1}\r\n{\"id\":2}\r\n",
			[]string{`{"id":1}`, `{"id":2}`}},
		{"blank lines", "\n\r\n  \t\n{\"id\":1}\n\n", []string{`{"id":1}`}},
		{"spaces around a message as they are", " {\"id\":1} \n", []string{` {"id":1} `}},
		{"a last line without an end", "{\"id\":1}\n{\"id\":2}", []string{`{"id":1}`, `{"id":2}`}},
		{"a last line of blanks", "{\"id\":1}\n  ", []string{`{"id":1}`}},
		{"bytes that are no JSON", "\x00\xff\n", []string{"\x00\xff"}},
		{"long lines between short ones", "{}\n" + long + "\n{}\n" + long + long[:10] + "\n{}\n",
			[]string{"{}", long, "{}", long + long[:10], "{}"}},
		{"a line over the limit", "{}\n" + over + "\n{}\n", []string{"{}", tooLong, "{}"}},
		{"a line at the limit", over[1:] + "\r\n{}\n", []string{over[1:], "{}"}},
		{"a line over the limit at the end", over, []string{tooLong}},
		{"two lines over the limit", over + over + "\n" + over + "\n{}\n",
			[]string{tooLong, tooLong, "{}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, peer := openStdio(t, 200<<10)
			go func() {
				io.WriteString(peer.to, c.input)
				peer.to.Close()
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

func TestStdioMessagesBelongToTheCaller(t *testing.T) {
	p, peer := openStdio(t, 0)
	var input strings.Builder
	var want []string
	for i := range 2000 {
		line := fmt.Sprintf(`{"i":%d,"x":"%s"}`, i, strings.Repeat("x", i*i%4099*i%90000))
		want = append(want, line)
		input.WriteString(line + "\n")
	}
	go func() {
		io.WriteString(peer.to, input.String())
		peer.to.Close()
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
			t.Fatalf("message %d changed after it was read", i)
		}
	}
}

func TestStdioWritesOneLineAMessage(t *testing.T) {
	p, peer := openStdio(t, 0)
	write(t, p, "{\r\n  \"a\": \"b\\nc\",\n\t\"d\": [1,\r 2]\n}\n")
	got := make([]byte, 100)
	n, _ := peer.from.Read(got)
	if want := "{  \"a\": \"b\\nc\",\t\"d\": [1, 2]}\n"; string(got[:n]) != want {
		t.Errorf("got %q, want %q", got[:n], want)
	}
}

func TestStdioWritersDoNotTearLines(t *testing.T) {
	p, peer := openStdio(t, 0)
	const writers, each = 16, 50
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if err := p.Write(t.Context(), fmt.Appendf(nil, "%d %d %s", w, i,
					strings.Repeat(string(rune('a'+w)), i*500))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, writers)
	back := transport.NewStdioPipe(peer.from, peer.to, 0)
	defer back.Close()
	for range writers * each {
		var w, i int
		line := read(t, back)
		fmt.Sscan(line, &w, &i)
		if i != next[w] {
			t.Fatalf("writer %d: got line %d, want %d", w, i, next[w])
		}
		next[w]++
		if want := fmt.Sprintf("%d %d %s", w, i, strings.Repeat(string(rune('a'+w)),
			i*500)); line != want {
			t.Fatalf("line %d of writer %d is torn", i, w)
		}
	}
	all.Wait()
}

func TestStdioWriteToAClientThatDoesNotReadEndsWithItsContext(t *testing.T) {
	p, peer := openStdio(t, 0)
	big := strings.Repeat("x", 3<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 2 {
		if err := p.Write(ctx, []byte(big)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	// What was begun is finished all the same, and so is what waited behind it.
	back := transport.NewStdioPipe(peer.from, peer.to, 0)
	defer back.Close()
	for range 2 {
		if got := read(t, back); got != big {
			t.Errorf("got %d bytes, want %d", len(got), len(big))
		}
	}
}

func TestStdioWriteBoundsPendingBytes(t *testing.T) {
	p, _ := openStdio(t, 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	waiting := 0
	for range 20 {
		if p.Write(ctx, make([]byte, 1<<20)) != nil {
			waiting++
		}
	}
	if waiting == 0 {
		t.Error("all was taken, though nobody reads")
	}
}

func TestStdioWriteFailsWhenTheClientIsGone(t *testing.T) {
	p, peer := openStdio(t, 0)
	peer.from.Close()
	for range 2 {
		if err := p.Write(t.Context(), []byte("{}")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("got %v, want a broken pipe", err)
		}
	}
}

func TestStdioCloseEndsReadAndWrite(t *testing.T) {
	p, _ := openStdio(t, 0)
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := p.Read(t.Context()); err == nil {
			t.Error("Read answered a message")
		}
	})
	all.Go(func() {
		if err := p.Write(t.Context(), make([]byte, 3<<20)); err == nil {
			t.Error("Write to a client that does not read answered")
		}
	})
	time.Sleep(20 * time.Millisecond)
	p.Close()
	all.Wait()
}

// A shell hands blocking pipes on, and shares them; a terminal or a file cannot wait in the poller
// at all.
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
	t.Run("pipes wait in the poller, and are blocking again afterwards", func(t *testing.T) {
		in, to := blockingPipe(t)
		from, out := blockingPipe(t)
		p := transport.NewStdioPipe(in, out, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := p.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		go to.WriteString("{}\n")
		if got := read(t, p); got != "{}" {
			t.Errorf("got %q", got)
		}
		write(t, p, "{}")
		if n, _ := from.Read(make([]byte, 10)); n != 3 {
			t.Errorf("read %d bytes", n)
		}
		p.Close()
		if nonblocking(in) || nonblocking(out) {
			t.Error("the pipes were left non-blocking")
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
			t.Errorf("got %q", b)
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
