package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/mcp"
)

const (
	maxValues = 16      // of one message
	maxValue  = 4 << 10 // bytes; a longer text has the digest of the body it is in
	valueSize = 16      // bytes of a hash that are kept
)

// ValueHasher hashes with the key of one log. Equal values have equal hashes there and in no other
// log, and who has not the key cannot try which value it was. It is safe for many goroutines.
type ValueHasher struct {
	key  []byte
	free sync.Pool // of hash.Hash
}

// newValues makes the key of a log from the one that signs its checkpoints, and its origin.
func newValues(private, origin string) *ValueHasher {
	h := hmac.New(sha256.New, []byte(private))
	h.Write([]byte("values of " + origin))
	v := &ValueHasher{key: h.Sum(nil)}
	v.free.New = func() any { return hmac.New(sha256.New, v.key) }
	return v
}

// OpenValueHasher reads the key of a log that was begun. key is the file of the key that signs its
// checkpoints; "" is the one beside the log.
func OpenValueHasher(file, key string) (*ValueHasher, error) {
	if key == "" {
		key = file + ".key"
	}
	private, _, _, err := readKey(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w\nhint: it is made when the log begins; if key in [audit] "+
			"names another file, name that with --key", err)
	}
	if err != nil {
		return nil, err
	}
	origin, err := os.ReadFile(filepath.Join(file+".tree", "origin"))
	if err != nil {
		return nil, fmt.Errorf("read the origin of the log: %w", err)
	}
	return newValues(private, strings.TrimSpace(string(origin))), nil
}

// Hash is that of an argument's text, as it is in values.
func (v *ValueHasher) Hash(text string) string {
	sum := v.sum([]byte(text))
	return hex.EncodeToString(sum[:valueSize])
}

func (v *ValueHasher) sum(b []byte) (sum [sha256.Size]byte) {
	h := v.free.Get().(hash.Hash)
	defer v.free.Put(h)
	h.Reset()
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

// appendValues appends the hashes of what is veiled, and of the texts in the arguments of a
// request, in their order, and nothing of where they are: the names in there are a client's words,
// too.
func (v *ValueHasher) appendValues(b []byte, m *mcp.Message, veiled []string) []byte {
	n := 0
	add := func(text []byte) {
		if len(text) == 0 || len(text) > maxValue || n == maxValues {
			return
		}
		if n++; n == 1 {
			b = append(b, `,"values":["`...)
		} else {
			b = append(b, `,"`...)
		}
		sum := v.sum(text)
		b = append(hex.AppendEncode(b, sum[:valueSize]), '"')
	}
	for _, text := range veiled {
		add([]byte(text))
	}
	if m != nil && m.Kind == mcp.Request {
		arguments, _ := m.Get("/arguments")
		for n < maxValues {
			var quoted []byte
			if quoted, arguments = nextText(arguments); quoted == nil {
				break
			}
			text := quoted[1 : len(quoted)-1]
			if len(text) > maxValue {
				continue
			}
			if bytes.IndexByte(text, '\\') >= 0 {
				text, _ = jsontext.AppendUnquote(nil, quoted) // a lone surrogate is a U+FFFD in it
			}
			add(text)
		}
	}
	if n > 0 {
		b = append(b, ']')
	}
	return b
}

// nextText is the next string in valid JSON that is not the name of a member, in its quotes, and
// what follows it; nil when there is none.
func nextText(b []byte) (quoted, rest []byte) {
	for {
		from := bytes.IndexByte(b, '"')
		if from < 0 {
			return nil, nil
		}
		to := from + 1
		for to += bytes.IndexByte(b[to:],
			'"'); escaped(b[from+1 : to]); to += bytes.IndexByte(b[to:], '"') {
			to++
		}
		to++
		quoted, rest = b[from:to], b[to:]
		if after := bytes.TrimLeft(rest, " \t\r\n"); len(after) == 0 || after[0] != ':' {
			return quoted, rest
		}
		b = rest
	}
}

// escaped says whether what follows b in a string is.
func escaped(b []byte) bool {
	n := len(b) - len(bytes.TrimRight(b, `\`))
	return n%2 == 1
}
