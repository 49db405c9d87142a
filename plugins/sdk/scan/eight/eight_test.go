package eight_test

import (
	"strings"
	"testing"

	"gatekit/plugins/sdk/scan/eight"
)

// TestFlags compares the flags of all pairs of neighbouring bytes with the bytes.
func TestFlags(t *testing.T) {
	type test struct {
		name     string
		flags    func(x uint64) uint64
		fits     func(c byte) bool
		reliable bool // all flags, and not only the lowest one
	}
	tests := []test{
		{"NonASCII", eight.NonASCII, func(c byte) bool { return c >= 0x80 }, true},
	}
	for _, n := range []byte{0, 1, ' ', '+', 'a', 127, 128} {
		tests = append(tests,
			test{"Below", func(x uint64) uint64 { return eight.Below(x, n) },
				func(c byte) bool { return c < n }, false},
			test{"Equal", func(x uint64) uint64 { return eight.Equal(x, n) },
				func(c byte) bool { return c == n }, false})
	}
	for _, r := range [][2]byte{{1, 126}, {'0', ':'}, {'a', 'z'}, {'_', '_'}} {
		tests = append(tests, test{"Between",
			func(x uint64) uint64 { return eight.Between(x, r[0], r[1]) },
			func(c byte) bool { return c >= r[0] && c <= r[1] }, true})
	}
	for _, test := range tests {
		for a := range 256 {
			for b := range 256 {
				s := "x" + string([]byte{byte(a), byte(b), byte(a), 'q', byte(b), 0, 0xff, 127})
				got, first := test.flags(eight.Load(s, 1)), 8
				for i := range 8 {
					want := test.fits(s[i+1])
					if want && first == 8 {
						first = i
					}
					if has := got>>(8*i)&0x80 != 0; test.reliable && has != want {
						t.Fatalf("%s %x: flag %d is %v, want %v", test.name, s[1:], i, has, want)
					}
				}
				if n := eight.First(got); n != first {
					t.Fatalf("%s %x: the first flag is %d, want %d", test.name, s[1:], n, first)
				}
			}
		}
	}
}

func TestASCIIPrefix(t *testing.T) {
	for n := range 40 {
		s := strings.Repeat("a", n)
		for _, rest := range []string{"", "é", "é and more text than eight bytes"} {
			if got := eight.ASCIIPrefix(s + rest); got != n {
				t.Errorf("%q: got %d, want %d", s+rest, got, n)
			}
		}
	}
}
