package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"gatekit/core/mcp"
	"gatekit/core/uris"
)

// Bounds of the items that are remembered. Each skill and each file of a skill is one item. A list
// or an entry for which there is no room is refused, because its files could not be checked.
const (
	maxSkillItems    = 50_000  // of one session
	maxAllSkillItems = 500_000 // of all sessions
)

// errTooManySkills reports that there is no room for an entry.
var errTooManySkills = errors.New("its skills have more files than Gatekit can check (" +
	strconv.Itoa(maxSkillItems) + " in a session, " + strconv.Itoa(maxAllSkillItems) + " in all)")

// skillTable remembers the skills that a session's client was shown, with the digests of their
// files, and the skills that a stage hid from the client. URIs are kept as hashes, so that an item
// has a fixed size. The zero skillTable is empty and ready.
type skillTable struct {
	mu      sync.Mutex
	servers map[string]*serverSkills
	count   int           // items of all servers
	total   *atomic.Int64 // items of all sessions; nil if they are not counted
}

// serverSkills are the skills of one server.
type serverSkills struct {
	skills map[uriHash]*knownSkill // by the hash of the skill's root in the form of comparableURI
	// digest and size of a file in each entry that lists it, by the hash of the file's URI; more
	// than one skill may have the same file
	files  map[uriHash][]skillFile
	hidden int // number of hidden skills in the field skills
	// a stage hid a skill, and there was no room to remember which; so every URI of the server
	// counts as hidden
	hidesAll bool
}

// uriHash is the beginning of the SHA-256 of a URI.
type uriHash [16]byte

func hashURI(uri string) (h uriHash) {
	sum := sha256.Sum256([]byte(uri))
	copy(h[:], sum[:])
	return h
}

// knownSkill is one skill that the client was shown, or that is hidden from the client.
type knownSkill struct {
	hidden bool
	files  []uriHash // keys of the skill's files in serverSkills.files
}

// items returns the number of items that a skill is counted as.
func (s *knownSkill) items() int { return 1 + len(s.files) }

// skillFile holds the digest and size of a file as one skill's entry lists them.
type skillFile struct {
	skill  uriHash // the skill's key in serverSkills.skills
	digest [sha256.Size]byte
	size   int64
	valid  bool // digest and size are well-formed; otherwise no content matches
}

// note remembers an entry of a skill and forgets the earlier entry of that skill. If hidden is
// true, a stage hid the skill from the client, and raw is the entry as the server sent it.
// Otherwise raw is the entry as the client gets it.
func (t *skillTable) note(server string, raw []byte, hidden bool) error {
	entry := mcp.NewResponse("", raw)
	uri, ok := entry.Text("/uri")
	if !ok {
		return nil // an entry without a URI names no skill
	}
	root, ok := comparableURI(skillRoot(uri))
	if !ok || len(uri) > maxURIBytes {
		t.refuse(server, hidden)
		return errors.New("the URI of a skill is too long, or encoded too often")
	}
	key := hashURI(root)
	type listedFile struct {
		uri uriHash
		skillFile
	}
	var files []listedFile
	if !hidden { // the client cannot read the files of a hidden skill
		entry.Items("/resources", func(_ int, raw []byte) bool {
			file := mcp.NewResponse("", raw)
			if uri, ok := file.Text("/uri"); ok {
				f := skillFile{skill: key}
				f.parse(file)
				files = append(files, listedFile{hashURI(uri), f})
			}
			return len(files) < maxSkillItems
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.ofServer(server)
	earlier := 0 // items of the earlier entry, which the new entry replaces
	if skill := s.skills[key]; skill != nil {
		earlier = skill.items()
	}
	if !t.grow(1 + len(files) - earlier) {
		// if hidden is false, the earlier entry stays, so a hidden skill is still hidden
		s.hidesAll = s.hidesAll || hidden
		return errTooManySkills
	}
	s.forget(key)
	if hidden {
		s.hidden++
	}
	skill := &knownSkill{hidden: hidden, files: make([]uriHash, len(files))}
	for i, f := range files {
		skill.files[i] = f.uri
		s.files[f.uri] = append(s.files[f.uri], f.skillFile)
	}
	s.skills[key] = skill
	return nil
}

// ofServer returns the skills of a server. t.mu must be held.
func (t *skillTable) ofServer(server string) *serverSkills {
	s := t.servers[server]
	if s == nil {
		if t.servers == nil {
			t.servers = map[string]*serverSkills{}
		}
		s = &serverSkills{skills: map[uriHash]*knownSkill{}, files: map[uriHash][]skillFile{}}
		t.servers[server] = s
	}
	return s
}

// refuse notes that an entry of a server cannot be remembered. If hidden is true, a stage hid the
// skill of that entry, so every URI of the server counts as hidden from now on.
func (t *skillTable) refuse(server string, hidden bool) {
	if hidden {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ofServer(server).hidesAll = true
	}
}

// parse reads the digest and the size from a file's entry.
func (f *skillFile) parse(file *mcp.Message) {
	text, _ := file.Text("/digest")
	digits, ok := strings.CutPrefix(text, "sha256:")
	if !ok || len(digits) != hex.EncodedLen(len(f.digest)) || strings.ToLower(digits) != digits {
		return
	}
	if _, err := hex.Decode(f.digest[:], []byte(digits)); err != nil {
		return
	}
	raw, _ := file.Get("/size")
	size, err := strconv.ParseInt(string(raw), 10, 64)
	f.size, f.valid = size, err == nil
}

// grow adds n items to the counts, and reports whether there was room for them. If n is not above
// zero, there is always room. t.mu must be held.
func (t *skillTable) grow(n int) bool {
	if n > 0 && t.count+n > maxSkillItems {
		return false
	}
	if t.total != nil && t.total.Add(int64(n)) > maxAllSkillItems && n > 0 {
		t.total.Add(-int64(n))
		return false
	}
	t.count += n
	return true
}

// forget removes a skill, if it is known. It does not change the counts of items.
func (s *serverSkills) forget(key uriHash) {
	skill := s.skills[key]
	if skill == nil {
		return
	}
	for _, uri := range skill.files {
		s.files[uri] = slices.DeleteFunc(s.files[uri], func(f skillFile) bool {
			return f.skill == key
		})
		if len(s.files[uri]) == 0 {
			delete(s.files, uri)
		}
	}
	if skill.hidden {
		s.hidden--
	}
	delete(s.skills, key)
}

// shrink removes n items from the counts. t.mu must be held.
func (t *skillTable) shrink(n int) {
	t.count -= n
	if t.total != nil {
		t.total.Add(-int64(n))
	}
}

// removeServer forgets the skills of a server.
func (t *skillTable) removeServer(server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.servers[server]; s != nil {
		for _, skill := range s.skills {
			t.shrink(skill.items())
		}
		delete(t.servers, server)
	}
}

// clear forgets all skills.
func (t *skillTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shrink(t.count)
	t.servers = nil
}

// file returns the digests and sizes of a file in the entries that the client was shown. It returns
// nil if no entry lists the file.
func (t *skillTable) file(server, uri string) []skillFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[server]
	if s == nil || len(s.files) == 0 {
		return nil
	}
	return slices.Clone(s.files[hashURI(uri)])
}

// isHidden reports whether a URI belongs to a hidden skill: the URI is the skill's root, or is
// below the root. Of nested skills, the innermost skill decides. A URI whose spelling cannot be
// compared counts as hidden if the server has a hidden skill. If there was no room to remember a
// hidden skill, every URI of its server counts as hidden.
func (t *skillTable) isHidden(server, uri string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[server]
	if s == nil || s.hidden == 0 || s.hidesAll {
		return s != nil && s.hidesAll
	}
	text, ok := comparableURI(uri)
	if !ok {
		return true
	}
	for {
		if skill := s.skills[hashURI(text)]; skill != nil {
			return skill.hidden
		}
		at := strings.LastIndexByte(text, '/')
		if at < 0 {
			return false
		}
		text = text[:at]
	}
}

// skillRoot returns the URI of a skill's directory, given the URI of its SKILL.md.
func skillRoot(uri string) string {
	if at := strings.LastIndexByte(uri, '/'); at >= 0 {
		return uri[:at]
	}
	return uri
}

// maxDecodings bounds how often a URI is percent-decoded. A server may decode a URI more than once.
const maxDecodings = 5

// comparableURI returns the same text for all spellings of a URI that a lenient server could read
// as the same file. The text is percent-decoded, in lower case, and without query, fragment, dot
// segments and empty segments. It has the canonical spelling of the host if the scheme has a host.
// ok is false if the URI is percent-encoded more often than maxDecodings allows, or is longer than
// maxURIBytes.
func comparableURI(uri string) (text string, ok bool) {
	if len(uri) > maxURIBytes {
		return "", false
	}
	text = strings.TrimFunc(uri, func(r rune) bool { return r <= ' ' })
	canonical := uris.Canonical(uri)
	if s := uris.Scheme(canonical); s == "file" || uris.AlwaysHasHost(s) {
		text = canonical // in other schemes, a server may read the host as a part of the path
	}
	for range maxDecodings {
		decoded := decodePercent(text)
		if ok = decoded == text; ok {
			break
		}
		text = decoded
	}
	if !ok {
		return "", false
	}
	text = strings.NewReplacer(`\`, "/", "\t", "", "\n", "", "\r", "").Replace(text)
	scheme, rest, found := strings.Cut(text, ":")
	if !found {
		scheme, rest = "", text
	}
	if at := strings.IndexAny(rest, "?#"); at >= 0 {
		rest = rest[:at]
	}
	return strings.ToLower(scheme + ":" + path.Clean("/"+rest)), true
}

// decodePercent decodes the valid percent escapes of a text once.
func decodePercent(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			var c [1]byte
			if _, err := hex.Decode(c[:], []byte(text[i+1:i+3])); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
