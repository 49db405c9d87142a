package plugins

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// maxKeptBytes is about how much memory the kept verdicts of a process take.
	maxKeptBytes = 8 << 20
	// keptOverhead is the memory of a kept verdict without its texts, and more than a key takes.
	keptOverhead = 512
	// maxKeptItems is how many items of lists the host remembers for the stages of a process that
	// compare lists. Each takes about 64 bytes.
	maxKeptItems = 1 << 17
)

// keptVerdicts has the verdicts of a process's stages on definitions ([mcp.HasDefinitions]). Only
// stages that promise to give the same verdict again have verdicts here. The verdicts end with the
// process, because a stage may have lost its memory or its keys with it. If there are too many, the
// verdicts that were used longest ago are forgotten. Many goroutines may use keptVerdicts.
type keptVerdicts struct {
	mu       sync.Mutex // guards the fields below
	verdicts *simplelru.LRU[definition, keptVerdict]
	bytes    int
	compared map[*Stage]*simplelru.LRU[string, *principalLists] // by principal
	items    int                                                // of all lists in compared
	version  uint64                                             // of the last list that changed
}

// definition identifies what a stage was asked about.
type definition struct {
	stage          *Stage
	principal      string // as the stage sees it
	server, method string
	digest         [sha256.Size]byte
}

type keptVerdict struct {
	verdict pipeline.Verdict
	size    int
	version uint64 // of the principal's lists, if the stage compares them
}

// principalLists has the lists of a principal that a stage was asked about, by method.
type principalLists struct{ methods map[string]*methodLists }

// methodLists are the lists of one method. They tell whether the stage would compare a list with
// the same other lists as before.
type methodLists struct {
	version uint64 // changes whenever a list does
	servers map[string]*serverItems
}

// serverItems are the items of a server that the stage was asked about last.
type serverItems struct {
	digests map[itemDigest]itemDigest // by the digest of the name or URI
	asking  int                       // how many calls of the stage about this server run
	// lists with different items were asked about at the same time, so it is unknown which of them
	// the stage remembers
	conflict bool
}

// itemDigest is a part of the SHA-256 of an item or of its name.
type itemDigest [16]byte

func newItemDigest(b []byte) itemDigest {
	sum := sha256.Sum256(b)
	return itemDigest(sum[:])
}

func newKeptVerdicts() *keptVerdicts {
	k := &keptVerdicts{compared: make(map[*Stage]*simplelru.LRU[string, *principalLists])}
	k.verdicts = newLRU(maxKeptBytes/keptOverhead, func(_ definition, forgotten keptVerdict) {
		k.bytes -= forgotten.size
	})
	return k
}

// newLRU returns a cache of at most size values. It calls removed for each value that it loses.
func newLRU[K comparable, V any](size int, removed func(K, V)) *simplelru.LRU[K, V] {
	lru, err := simplelru.NewLRU(max(size, 1), removed)
	if err != nil {
		panic("plugins: " + err.Error()) // the size is not positive
	}
	return lru
}

func newDefinition(s *Stage, m *mcp.Message) definition {
	return definition{stage: s, principal: s.visiblePrincipal(m), server: m.Server,
		method: m.Method, digest: m.Digest()}
}

// find returns the verdict that was kept for a definition.
func (k *keptVerdicts) find(d definition) (v pipeline.Verdict, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept, ok := k.verdicts.Get(d)
	if !ok || d.stage.comparesLists() && k.listsVersion(d) != kept.version {
		return pipeline.Verdict{}, false
	}
	return kept.verdict, true
}

// listsVersion returns the version of the lists with which the stage compares a definition, or 0.
// The caller holds k.mu.
func (k *keptVerdicts) listsVersion(d definition) uint64 {
	if lists := k.compared[d.stage]; lists != nil {
		if of, ok := lists.Peek(d.principal); ok && of.methods[d.method] != nil {
			return of.methods[d.method].version
		}
	}
	return 0
}

// question is a call of a stage about a definition.
type question struct {
	definition
	items   *serverItems // nil if the stage does not compare lists
	version uint64       // of the lists when the stage was asked; 0 if the definition changes them
}

// begin notes that a stage is asked about m. The caller must call end with the result.
func (k *keptVerdicts) begin(s *Stage, m *mcp.Message) question {
	q := question{definition: newDefinition(s, m)}
	if !s.comparesLists() {
		return q
	}
	digests := itemDigests(m)
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.listsOf(s, q.principal)
	lists := of.methods[m.Method]
	if lists == nil {
		lists = &methodLists{version: k.nextVersion(), servers: make(map[string]*serverItems)}
		of.methods[m.Method] = lists
	}
	q.items = lists.servers[m.Server]
	if q.items == nil {
		q.items = &serverItems{digests: make(map[itemDigest]itemDigest)}
		lists.servers[m.Server] = q.items
	}
	q.version = lists.version
	for name, digest := range digests {
		if before, known := q.items.digests[name]; !known || before != digest {
			q.version = 0
			if !known {
				k.items++
			}
			q.items.digests[name] = digest
		}
	}
	if q.version == 0 {
		lists.version = k.nextVersion()
		q.items.conflict = q.items.asking > 0
	}
	q.items.asking++
	k.forgetLists(s)
	return q
}

// end ends a question, and keeps the verdict if it holds for the same definition again. If the
// stage compares lists, it does not hold when a list has changed since the stage was asked. isSure
// is false if another process may have given the verdict.
func (k *keptVerdicts) end(q question, v pipeline.Verdict, err error, isSure bool) {
	isKept := isSure && err == nil && canKeep(v)
	k.mu.Lock()
	defer k.mu.Unlock()
	var version uint64
	if q.items != nil {
		version = k.listsVersion(q.definition)
		isKept = k.endComparison(q, err) && q.version == version && isKept
	}
	size := keptOverhead + textBytes(v)
	if !isKept || size > maxKeptBytes/8 {
		return
	}
	q.principal = strings.Clone(q.principal)
	q.server, q.method = strings.Clone(q.server), strings.Clone(q.method)
	k.verdicts.Remove(q.definition)
	k.verdicts.Add(q.definition, keptVerdict{v, size, version})
	for k.bytes += size; k.bytes > maxKeptBytes; {
		k.verdicts.RemoveOldest()
	}
}

// endComparison ends a question about a list that the stage compares with others. It reports
// whether the stage has compared the list with what the host believes. The caller holds k.mu.
func (k *keptVerdicts) endComparison(q question, err error) bool {
	q.items.asking--
	of := k.compared[q.stage]
	if of == nil {
		return false // the stage was closed meanwhile
	}
	principal, ok := of.Peek(q.principal)
	if !ok || principal.methods[q.method] == nil ||
		principal.methods[q.method].servers[q.server] != q.items {
		return false // forgotten meanwhile
	}
	lists := principal.methods[q.method]
	if err != nil || q.items.conflict && q.items.asking == 0 {
		// It is unknown which items the stage remembers.
		k.items -= len(q.items.digests)
		delete(lists.servers, q.server)
		q.version = 0
	}
	if q.version == 0 {
		// A list that was asked about at the same time may have been compared with the old items.
		lists.version = k.nextVersion()
	}
	return q.version != 0
}

func (k *keptVerdicts) nextVersion() uint64 {
	k.version++
	return k.version
}

// listsOf returns the lists of a principal, and makes it the most recent principal of the stage.
// The host remembers fewer principals than the stage does. The caller holds k.mu.
func (k *keptVerdicts) listsOf(s *Stage, principal string) *principalLists {
	lists := k.compared[s]
	if lists == nil {
		lists = newLRU(s.comparesPrincipals/2, func(_ string, forgotten *principalLists) {
			for _, of := range forgotten.methods {
				for _, items := range of.servers {
					k.items -= len(items.digests)
				}
			}
		})
		k.compared[s] = lists
	}
	of, ok := lists.Get(principal)
	if !ok {
		of = &principalLists{methods: make(map[string]*methodLists)}
		lists.Add(strings.Clone(principal), of)
	}
	return of
}

// forgetLists forgets lists until there is room: first those of the stage that is asked, and those
// of the principal itself last. The caller holds k.mu.
func (k *keptVerdicts) forgetLists(s *Stage) {
	for k.items > maxKeptItems {
		lists := k.compared[s]
		for stage, other := range k.compared {
			if lists.Len() <= 1 && stage != s && other.Len() > 0 {
				lists = other
			}
		}
		lists.RemoveOldest()
	}
}

// drop forgets everything about a stage.
func (k *keptVerdicts) drop(s *Stage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.verdicts.Keys() {
		if d.stage == s {
			k.verdicts.Remove(d)
		}
	}
	if lists := k.compared[s]; lists != nil {
		lists.Purge()
		delete(k.compared, s)
	}
}

// itemDigests returns the digests of the items of a list, by the digests of their names. Items
// without a name, and definitions that are no lists, have the name "". Items with one name share a
// digest.
func itemDigests(m *mcp.Message) map[itemDigest]itemDigest {
	digests := make(map[itemDigest]itemDigest)
	method, _ := mcp.LookupMethod(m.Method)
	if method.ItemsPointer == "" || m.Len(method.ItemsPointer) < 0 {
		digests[itemDigest{}] = newItemDigest(m.Body())
		return digests
	}
	m.ItemTexts(method.ItemsPointer, method.ItemNamePointer, func(_ int, raw []byte, name string,
		_ bool) bool {
		key, digest := newItemDigest([]byte(name)), newItemDigest(raw)
		if before, ok := digests[key]; ok {
			digest = newItemDigest(slices.Concat(before[:], digest[:]))
		}
		digests[key] = digest
		return true
	})
	return digests
}

// canKeep reports whether a verdict may be used again. A denial is not kept, since a stage that
// denies a definition shall be asked again. Values that Gatekit restores belong to one message.
func canKeep(v pipeline.Verdict) bool {
	return (v.Action == pipeline.Allow || v.Action == pipeline.Modify) && !v.Final &&
		len(v.Redacted) == 0
}

// textBytes returns the size of the texts of a verdict.
func textBytes(v pipeline.Verdict) (n int) {
	n = len(v.Reason)
	for _, e := range v.Edits {
		n += 64 + len(e.Pointer) + len(e.Value)
	}
	for _, f := range v.Findings {
		n += 32 + len(f.Type) + len(f.Pointer)
	}
	for _, s := range slices.Concat(v.Hide, v.Labels) {
		n += 16 + len(s)
	}
	return n
}
