package pipeline

import (
	"container/list"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"gatekit/core/mcp"
)

const (
	maxKeptValue       = 64 << 10 // bytes of one value
	maxValuesOfServer  = 1000     // values of one server that are kept for one session
	maxBytesOfServer   = 1 << 20  // their bytes
	maxKeptBytes       = 32 << 20 // bytes of all values
	maxKeptServers     = 4096     // pairs of a session and a server with values
	expiryInterval     = time.Minute
	placeholderStart   = "[secret:"
	placeholderDigits  = 26  // of the random part: 128 bits in base32
	maxPlaceholderSize = 128 // bytes
)

// Redacted is a value that a stage replaced by a placeholder. [IsPlaceholder] must accept the
// placeholder.
type Redacted struct{ Placeholder, Value string }

// IsPlaceholder reports whether s has the form of a placeholder that may be restored:
// [secret:KIND:DIGITS], with a kind of a-z, 0-9 and "-", and 26 digits of base32 (a-z, 2-7), which
// are 128 bits.
func IsPlaceholder(s string) bool {
	rest, ok := strings.CutPrefix(s, placeholderStart)
	kind, digits, found := strings.Cut(rest, ":")
	digits, closed := strings.CutSuffix(digits, "]")
	if !ok || !found || !closed || kind == "" || len(digits) != placeholderDigits ||
		len(s) > maxPlaceholderSize {
		return false
	}
	for i := range len(kind) {
		if c := kind[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	for i := range len(digits) {
		if c := digits[i]; !(c >= 'a' && c <= 'z' || c >= '2' && c <= '7') {
			return false
		}
	}
	return true
}

// EachPlaceholder calls yield for each placeholder in s, with its place, until yield returns false.
// It takes linear time.
func EachPlaceholder(s string, yield func(from, to int) bool) {
	for at := 0; ; {
		i := strings.Index(s[at:], placeholderStart)
		if i < 0 {
			return
		}
		from := at + i
		at = from + len(placeholderStart)
		end := strings.IndexByte(s[at:min(len(s), from+maxPlaceholderSize)], ']')
		if end < 0 || !IsPlaceholder(s[from:at+end+1]) {
			continue
		}
		at += end + 1
		if !yield(from, at) {
			return
		}
	}
}

// RedactedValues keeps the values that stages redacted, so that the pipeline can restore them
// ([Restore]). A value belongs to the principal, the session and the server of the message that had
// it. Values are encrypted with a key that only this process has, and expire. After a reload, the
// new pipeline uses the same RedactedValues. The zero RedactedValues is empty and ready. Many
// goroutines may use it.
type RedactedValues struct {
	// Shared also keeps the values for other replicas. It must be set before the first use; nil
	// means that only this process keeps them.
	Shared SharedValues

	once sync.Once   // sets aead
	aead cipher.AEAD // used only through cipher

	mu       sync.Mutex // guards the fields below
	byClient map[clientKey]map[string]*valuesOfServer
	servers  int // number of valuesOfServer
	bytes    int // of all values
	// of all values that servers got; see noteRestored
	restoredBytes int
	nextExpiry    time.Time
	// values in Shared that were forgotten here to make room; share removes them
	forgotten []SharedKey
}

// clientKey identifies the client of a value. Without a session, it is the principal.
type clientKey struct{ principal, session string }

func clientOf(m *mcp.Message) clientKey { return clientKey{m.Principal.ID(), m.Session} }

// valuesOfServer has the values that one server sent to one client.
type valuesOfServer struct {
	byPlaceholder map[string]*list.Element // of order
	order         list.List                // of *keptValue, the oldest first
	bytes         int
	added         time.Time    // when the last value was added, or restored
	restored      []*keptValue // values that the server got, the latest last
	lastRestored  time.Time
}

// keptValue is an encrypted value. It does not change.
type keptValue struct {
	stage, server string // the stage that redacted the value, and the server that sent it
	placeholder   string
	sealed        []byte
	expires       time.Time
}

// keep keeps the values that the stage redacted in m, for the given time. If there is no room, it
// forgets the oldest values. When it returns, the values are shared, too, if that is possible.
func (r *RedactedValues) keep(ctx context.Context, stage string, m *mcp.Message, values []Redacted,
	d time.Duration) {
	kept := r.keepHere(stage, m, values, d)
	if r.Shared != nil {
		r.share(ctx, clientOf(m), kept)
	}
}

// keepHere keeps values in this process. It returns those that must be shared.
func (r *RedactedValues) keepHere(stage string, m *mcp.Message, values []Redacted,
	d time.Duration) (kept []*keptValue) {
	now, client := time.Now(), clientOf(m)
	aead := r.cipher()
	var sealed []*keptValue
	for _, v := range values[:min(len(values), maxValuesOfServer)] {
		if len(v.Value) == 0 || len(v.Value) > maxKeptValue || !IsPlaceholder(v.Placeholder) {
			continue
		}
		sealed = append(sealed, &keptValue{stage: stage, server: strings.Clone(m.Server),
			placeholder: strings.Clone(v.Placeholder), expires: now.Add(d),
			sealed: aead.Seal(nil, nil, []byte(v.Value),
				boundTo(client, m.Server, v.Placeholder))})
	}
	if len(sealed) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	of := r.valuesOf(client, m.Server)
	of.added = now
	for _, v := range sealed {
		r.forget(of, of.byPlaceholder[v.placeholder])
		for of.order.Len() >= maxValuesOfServer || of.bytes+len(v.sealed) > maxBytesOfServer {
			r.forgetShared(client, of.order.Front().Value.(*keptValue).placeholder)
			r.forget(of, of.order.Front())
		}
		of.byPlaceholder[v.placeholder] = of.order.PushBack(v)
		of.bytes += len(v.sealed)
		r.bytes += len(v.sealed)
	}
	for r.bytes > maxKeptBytes {
		r.forgetServer(of)
	}
	if r.Shared == nil {
		return nil
	}
	for _, v := range sealed {
		if e := of.byPlaceholder[v.placeholder]; e != nil && e.Value == v {
			kept = append(kept, v)
		}
	}
	return kept
}

// forgetShared notes that a value, which is forgotten here, must be forgotten by all replicas.
func (r *RedactedValues) forgetShared(client clientKey, placeholder string) {
	if r.Shared != nil && len(r.forgotten) < maxForgotten {
		r.forgotten = append(r.forgotten, client.sharedKey(placeholder))
	}
}

// valuesOf returns the values of a server for a client, and makes room for new ones.
func (r *RedactedValues) valuesOf(client clientKey, server string) *valuesOfServer {
	if of := r.byClient[client][server]; of != nil {
		return of
	}
	for r.servers >= maxKeptServers {
		r.forgetServer(nil)
	}
	if r.byClient == nil {
		r.byClient = make(map[clientKey]map[string]*valuesOfServer)
	}
	if r.byClient[client] == nil {
		r.byClient[client] = make(map[string]*valuesOfServer)
	}
	of := &valuesOfServer{byPlaceholder: make(map[string]*list.Element)}
	r.byClient[client][strings.Clone(server)] = of
	r.servers++
	return of
}

// forget removes a value, which may be nil.
func (r *RedactedValues) forget(of *valuesOfServer, e *list.Element) {
	if e != nil {
		v := of.order.Remove(e).(*keptValue)
		delete(of.byPlaceholder, v.placeholder)
		of.bytes -= len(v.sealed)
		r.bytes -= len(v.sealed)
	}
}

// forgetServer removes the values of the server and client whose last value is the oldest, except
// those of keep.
func (r *RedactedValues) forgetServer(keep *valuesOfServer) {
	var client clientKey
	var server string
	var first *valuesOfServer
	for c, servers := range r.byClient {
		for s, of := range servers {
			if of != keep && (first == nil || of.added.Before(first.added)) {
				client, server, first = c, s, of
			}
		}
	}
	r.remove(client, server)
}

// remove removes the values of a server for a client.
func (r *RedactedValues) remove(client clientKey, server string) {
	of := r.byClient[client][server]
	if of == nil {
		return
	}
	for placeholder := range of.byPlaceholder {
		r.forgetShared(client, placeholder)
	}
	r.bytes -= of.bytes
	r.dropRestored(of, func(*keptValue) bool { return true })
	r.servers--
	if delete(r.byClient[client], server); len(r.byClient[client]) == 0 {
		delete(r.byClient, client)
	}
}

// expire removes the values whose time is over, at most once in expiryInterval.
func (r *RedactedValues) expire(now time.Time) {
	if now.Before(r.nextExpiry) {
		return
	}
	r.nextExpiry = now.Add(expiryInterval)
	for client, servers := range r.byClient {
		for server, of := range servers {
			for _, e := range of.byPlaceholder {
				if !now.Before(e.Value.(*keptValue).expires) {
					r.forget(of, e)
				}
			}
			r.dropRestored(of, func(v *keptValue) bool { return !now.Before(v.expires) })
			if of.order.Len()+len(of.restored) == 0 {
				r.remove(client, server)
			}
		}
	}
}

// find returns the value of a placeholder that the tool call m may get, or nil. restores has the
// settings of the stages that restore values, by name.
func (r *RedactedValues) find(m *mcp.Message, placeholder string,
	restores map[string]*Restore) *keptValue {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	servers := r.byClient[clientOf(m)]
	if v := servers[m.Server].find(placeholder, now); v != nil && mayGet(m, v, restores) {
		return v
	}
	for _, of := range servers {
		if v := of.find(placeholder, now); v != nil && mayGet(m, v, restores) {
			return v
		}
	}
	return nil
}

// mayGet reports whether the tool call m may get the value, which is of the same client.
func mayGet(m *mcp.Message, v *keptValue, restores map[string]*Restore) bool {
	restore := restores[v.stage]
	return restore != nil && (v.server == m.Server || restore.entitles(m))
}

func (of *valuesOfServer) find(placeholder string, now time.Time) *keptValue {
	if of == nil {
		return nil
	}
	e := of.byPlaceholder[placeholder]
	if e == nil || !now.Before(e.Value.(*keptValue).expires) {
		return nil
	}
	return e.Value.(*keptValue)
}

// open returns the value in plain text.
func (r *RedactedValues) open(client clientKey, v *keptValue) (string, bool) {
	plain, err := r.cipher().Open(nil, nil, v.sealed, boundTo(client, v.server, v.placeholder))
	return string(plain), err == nil
}

// cipher returns the cipher with the key of this process.
func (r *RedactedValues) cipher() cipher.AEAD {
	r.once.Do(func() {
		key := make([]byte, 32)
		rand.Read(key) // never fails: see its documentation
		block, err := aes.NewCipher(key)
		if err == nil {
			r.aead, err = cipher.NewGCMWithRandomNonce(block)
		}
		if err != nil {
			panic(fmt.Sprintf("pipeline: AES-GCM with a key of 32 bytes: %v", err))
		}
	})
	return r.aead
}

// boundTo returns the data that a sealed value is authenticated with. Each part has its length
// before it, so that no other parts have the same data.
func boundTo(client clientKey, server, placeholder string) (b []byte) {
	for _, part := range []string{client.principal, client.session, server, placeholder} {
		b = fmt.Appendf(b, "%d:%s", len(part), part)
	}
	return b
}
