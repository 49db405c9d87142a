package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"gatekit/audit"
)

// logLines writes a log of n records, and returns its lines, each with its line feed.
func logLines(t testing.TB, n int) [][]byte {
	t.Helper()
	var log bytes.Buffer
	l := open(t, audit.Options{Writer: &log})
	for i := range n {
		record(t, l, event(fmt.Sprintf("reason %d", i+1)))
	}
	return slices.Collect(bytes.Lines(log.Bytes()))
}

func TestVerify(t *testing.T) {
	log := logLines(t, 5)
	edit := func(f func(l [][]byte) [][]byte) []byte {
		var copied [][]byte
		for _, line := range log {
			copied = append(copied, bytes.Clone(line))
		}
		return bytes.Join(f(copied), nil)
	}
	tests := []struct {
		name string
		log  []byte
		want string // "" for a valid log
	}{
		{"an unchanged log", edit(func(l [][]byte) [][]byte { return l }), ""},
		{"an empty log", nil, ""},
		{"a word changed", edit(func(l [][]byte) [][]byte {
			l[1] = bytes.Replace(l[1],
				[]byte("reason"), []byte("Reason"), 1)
			return l
		}), "line 3: prev is not"},
		{"a line missing", edit(func(l [][]byte) [][]byte {
			return slices.Delete(l, 2, 3)
		}), "line 3: seq is 4, but the seq of the previous line is 2"},
		{"the first line missing", edit(func(l [][]byte) [][]byte {
			return l[1:]
		}), "line 1: seq is 2, but the first record must be 1"},
		{"two lines swapped", edit(func(l [][]byte) [][]byte {
			l[1], l[2] = l[2],
				l[1]
			return l
		}), "line 2: seq is 3"},
		{"a line twice", edit(func(l [][]byte) [][]byte {
			return slices.Insert(l, 2, l[1])
		}), "line 3: seq is 2"},
		{"an empty line", edit(func(l [][]byte) [][]byte {
			return slices.Insert(l, 2, []byte("\n"))
		}), "line 3: the line does not begin"},
		{"a line removed and the next renumbered", edit(func(l [][]byte) [][]byte {
			l[3] = bytes.Replace(l[3], []byte(`{"seq":4`), []byte(`{"seq":3`), 1)
			return slices.Delete(l, 2, 3)
		}), "line 3: prev is not"},
		{"a seq with a leading zero", edit(func(l [][]byte) [][]byte {
			l[4] = bytes.Replace(l[4], []byte(`{"seq":5`), []byte(`{"seq":05`), 1)
			return l
		}), `line 5: seq "05" is not a valid record number`},
		{"a record with the seq 0", edit(func(l [][]byte) [][]byte {
			l[0] = bytes.Replace(l[0], []byte(`{"seq":1`), []byte(`{"seq":0`), 1)
			return l
		}), `line 1: seq "0" is not a valid record number`},
		{"a hash in upper case", edit(func(l [][]byte) [][]byte {
			i := bytes.Index(l[4], []byte(`"prev":"`)) + len(`"prev":"`)
			copy(l[4][i:i+64], bytes.ToUpper(l[4][i:i+64]))
			return l
		}), "line 5: prev is not a SHA-256 hash"},
		{"no line feed at the end", edit(func(l [][]byte) [][]byte { l[4] = l[4][:40]; return l }),
			"line 5: the line is incomplete"},
		{"a last line that is not JSON", edit(func(l [][]byte) [][]byte {
			l[4] = append(l[4][:120],
				'\n')
			return l
		}), "line 5: the line is not valid JSON"},
		{"a last line that ends within prev", edit(func(l [][]byte) [][]byte {
			i := bytes.Index(l[4], []byte(`"prev":"`)) + len(`"prev":"`)
			l[4] = append(l[4][:i+63], '\n')
			return l
		}), "line 5: the line does not begin with seq, time and prev"},
		{"a last line that ends with prev", edit(func(l [][]byte) [][]byte {
			i := bytes.Index(l[4], []byte(`"prev":"`)) + len(`"prev":"`)
			l[4] = append(l[4][:i+65], '\n')
			return l
		}), "line 5: the line is not valid JSON"},
		{"a last line that repeats the first",
			edit(func(l [][]byte) [][]byte { l[4] = l[0]; return l }),
			"line 5: seq is 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := audit.Verify(bytes.NewReader(tt.log))
			if tt.want == "" {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			var lineErr *audit.LineError
			if !errors.As(err, &lineErr) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v, want a *LineError that begins with %q", err, tt.want)
			}
		})
	}
	t.Run("an error of the reader is returned", func(t *testing.T) {
		err := audit.Verify(io.MultiReader(bytes.NewReader(log[0]), iotest.ErrReader(errFull)))
		if !errors.Is(err, errFull) {
			t.Errorf("error %v, want %v", err, errFull)
		}
	})
	t.Run("lines longer than the read buffer", func(t *testing.T) {
		var log bytes.Buffer
		l := open(t, audit.Options{Writer: &log, Bodies: audit.BodiesRedacted})
		m := parse(t, `{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"`+strings.Repeat("a",
			300<<10)+`"}}`)
		for range 3 {
			o := event("")
			o.Before, o.After = m, m
			record(t, l, o)
		}
		verify(t, log.Bytes())
	})
}

// FuzzTampering replaces a part of a log. Verify must find every change before the last line.
func FuzzTampering(f *testing.F) {
	log := bytes.Join(logLines(f, 6), nil)
	last := bytes.LastIndexByte(log[:len(log)-1], '\n') + 1
	f.Add(uint16(0), uint16(1), []byte("{"))
	f.Add(uint16(300), uint16(0), []byte(" "))
	f.Add(uint16(10), uint16(200), []byte{})
	f.Fuzz(func(t *testing.T, from, length uint16, piece []byte) {
		i := int(from) % last
		j := min(i+int(length), last)
		tampered := slices.Concat(log[:i], piece, log[j:])
		if bytes.Equal(tampered, log) {
			return
		}
		if err := audit.Verify(bytes.NewReader(tampered)); err == nil {
			t.Errorf("Verify accepted %q in place of %q", piece, log[i:j])
		}
	})
}

// TestVerifyFindsEveryFlippedBit flips every single bit before the last line.
func TestVerifyFindsEveryFlippedBit(t *testing.T) {
	log := bytes.Join(logLines(t, 3), nil)
	last := bytes.LastIndexByte(log[:len(log)-1], '\n') + 1
	for i := range last {
		for bit := range 8 {
			log[i] ^= 1 << bit
			if err := audit.Verify(bytes.NewReader(log)); err == nil {
				t.Fatalf("Verify accepted the log with bit %d of byte %d flipped", bit, i)
			}
			log[i] ^= 1 << bit
		}
	}
}
