package learn

import (
	"hash/maphash"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gatekit/policies"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what is kept about values.
const (
	maxDepth      = 6
	maxKeys       = 64   // members of one object
	maxValues     = 32   // different texts of one argument
	maxRoots      = 64   // different folders and hosts of one argument
	maxPrincipals = 1000 // of one statement
	maxRecords    = 3    // numbers of the first records
	maxValueBytes = 256  // of a text that is kept

	maxShapes      = 100_000 // places of values, of one learner
	maxEnumeration = 8       // values of an enumeration
)

// evidence describes the requests that a statement was learned from.
type evidence struct {
	count       int
	first, last time.Time
	records     []uint64 // the first ones
	lastRecord  uint64
	principals  map[uint64]bool // hashes of the IDs
}

// seed has what all shapes of a learner share.
type seed struct {
	maphash.Seed      // of the hashes of principals
	shapes       *int // the number of shapes
}

func (e *evidence) add(s seed, c *policies.Case) {
	e.count++
	if e.first.IsZero() || c.Time.Before(e.first) {
		e.first = c.Time
	}
	if c.Time.After(e.last) {
		e.last = c.Time
	}
	if len(e.records) < maxRecords {
		e.records = append(e.records, c.Seq)
	}
	e.lastRecord = c.Seq
	if e.principals == nil {
		e.principals = map[uint64]bool{}
	}
	if len(e.principals) < maxPrincipals {
		e.principals[maphash.String(s.Seed, c.Message.Principal.ID())] = true
	}
}

// shape describes the values at one place of the arguments.
type shape struct {
	evidence
	types map[string]int // by the name of the JSON type

	texts   texts
	numbers numbers

	maxItems int    // of arrays
	items    *shape // of arrays; nil when there were none

	members map[string]*shape // of objects
	open    bool              // there were more than maxKeys members, so any name is allowed
	example any               // the shortest value
	size    int               // of example, as JSON
}

// texts describes the texts at one place.
type texts struct {
	count     int
	values    map[string]*value
	lastNew   int  // count when the last new value was seen
	overflow  bool // there were more than maxValues values
	maxLength int  // in characters

	characters       map[rune]bool // ASCII characters that are neither letters nor digits
	letters, digits  bool
	others           bool // characters beyond ASCII
	controls, spaces bool

	paths, urls int // texts that are absolute paths, URLs
	embedded    int // texts that contain "://"
	dots        int // paths with a segment that begins with a dot
	parents     int // texts with the segment ".."
	folders     map[string]bool
	extensions  map[string]bool
	newExt      int // count when the last new extension was seen
	hosts       map[string]bool
}

// value is one text with the principals that sent it.
type value struct{ evidence }

type numbers struct {
	count, fractions int
	low, high        float64
}

// parseArguments returns the arguments of a request, or nil.
func parseArguments(raw []byte) (arguments map[string]any) {
	// a body may have lone surrogates, as core/mcp explains
	if json.Unmarshal(raw, &arguments, jsontext.AllowInvalidUTF8(true)) != nil {
		return nil
	}
	return arguments
}

// add adds a value of a request.
func (s *shape) add(sd seed, c *policies.Case, v any, depth int) {
	s.evidence.add(sd, c)
	if s.types == nil {
		s.types = map[string]int{}
	}
	s.types[typeOf(v)]++
	if raw, err := marshal(v); err == nil && (s.size == 0 || len(raw) < s.size) {
		s.example, s.size = v, len(raw)
	}
	switch v := v.(type) {
	case string:
		s.texts.add(sd, c, v)
	case float64:
		s.numbers.add(v)
	case []any:
		s.maxItems = max(s.maxItems, len(v))
		if depth >= maxDepth {
			return
		}
		for _, item := range v {
			if s.items == nil {
				if *sd.shapes >= maxShapes {
					return
				}
				*sd.shapes++
				s.items = &shape{}
			}
			s.items.add(sd, c, item, depth+1)
		}
	case map[string]any:
		if s.members == nil {
			s.members = map[string]*shape{}
		}
		for name, member := range v {
			below := s.members[name]
			if below == nil && (len(s.members) >= maxKeys || len(name) > maxValueBytes ||
				depth >= maxDepth) {
				s.open = true
				continue
			}
			if below == nil {
				if *sd.shapes >= maxShapes {
					continue
				}
				*sd.shapes++
				below = &shape{}
				s.members[name] = below
			}
			below.add(sd, c, member, depth+1)
		}
	}
}

// marshal returns a value as JSON, with the members of objects in order.
func marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func (n *numbers) add(f float64) {
	if n.count == 0 {
		n.low, n.high = f, f
	}
	n.count++
	n.low, n.high = min(n.low, f), max(n.high, f)
	if f != math.Trunc(f) {
		n.fractions++
	}
}

// bounds returns the range of the numbers with head-room.
func (n *numbers) bounds() (low, high float64) {
	span := max(n.high-n.low, math.Abs(n.high), 1)
	low, high = n.low-span, n.high+span
	if n.low >= 0 {
		low = 0
	}
	return math.Floor(low), math.Ceil(high)
}

func (t *texts) add(sd seed, c *policies.Case, s string) {
	t.count++
	t.maxLength = max(t.maxLength, utf8.RuneCountInString(s))
	if t.values == nil {
		t.values, t.characters = map[string]*value{}, map[rune]bool{}
		t.folders, t.hosts = map[string]bool{}, map[string]bool{}
		t.extensions = map[string]bool{}
	}
	known := t.values[s]
	if known == nil {
		t.lastNew = t.count
		if len(t.values) < maxValues && len(s) <= maxValueBytes {
			known = &value{}
			t.values[s] = known
		} else {
			t.overflow = true
		}
	}
	if known != nil {
		known.add(sd, c)
	}
	for _, r := range s {
		switch {
		case r == ' ':
			t.spaces = true
		case r < utf8.RuneSelf && (unicode.IsLetter(r)):
			t.letters = true
		case r < utf8.RuneSelf && unicode.IsDigit(r):
			t.digits = true
		case r < ' ' || r == 0x7f:
			t.controls = true
		case r < utf8.RuneSelf:
			t.characters[r] = true
		default:
			t.others = true
		}
	}
	if strings.Contains(s, "://") {
		t.embedded++
	}
	if slices.Contains(strings.FieldsFunc(s, isSeparator), "..") {
		t.parents++
	}
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && u.Host != "" && u.User == nil {
		t.urls++
		if len(t.hosts) < maxRoots {
			t.hosts[strings.ToLower(u.Scheme+"://"+u.Host)] = true
		}
	}
	if strings.HasPrefix(s, "/") && !t.controls {
		t.addPath(s)
	}
}

func isSeparator(r rune) bool { return r == '/' || r == '\\' }

func (t *texts) addPath(s string) {
	t.paths++
	for segment := range strings.SplitSeq(s, "/") {
		if strings.HasPrefix(segment, ".") {
			t.dots++
		}
	}
	if ext := path.Ext(s); len(t.extensions) < maxValues && !t.extensions[ext] {
		t.extensions[ext], t.newExt = true, t.count
	}
	folder := path.Dir(path.Clean(s))
	if path.Ext(s) == "" {
		folder = path.Clean(s)
	}
	if !t.folders[folder] {
		if len(t.folders) >= maxRoots { // keep what they have in common
			roots := t.roots()
			if len(roots) > maxRoots/2 {
				roots = []string{commonFolder(t.folders)}
			}
			clear(t.folders)
			for _, root := range roots {
				t.folders[root] = true
			}
		}
		t.folders[folder] = true
	}
}

// commonFolder returns the deepest folder that contains all folders.
func commonFolder(folders map[string]bool) string {
	var common []string
	first := true
	for f := range folders {
		segments := strings.Split(strings.TrimPrefix(f, "/"), "/")
		if first {
			common, first = segments, false
			continue
		}
		n := 0
		for n < min(len(common), len(segments)) && common[n] == segments[n] {
			n++
		}
		common = common[:n]
	}
	return "/" + strings.Join(common, "/")
}

// roots returns the folders that contain all paths. Folders that have nothing in common but "/" are
// grouped by their first segment.
func (t *texts) roots() (roots []string) {
	groups := map[string]map[string]bool{}
	for f := range t.folders {
		first, _, _ := strings.Cut(strings.TrimPrefix(f, "/"), "/")
		if groups[first] == nil {
			groups[first] = map[string]bool{}
		}
		groups[first][f] = true
	}
	for _, group := range groups {
		roots = append(roots, commonFolder(group))
	}
	slices.Sort(roots)
	return roots
}

// isEnumeration reports whether the texts are a few values that were all seen early and often.
// Texts with digits are rather the names of things that exist today, and tomorrow there are others.
func (t *texts) isEnumeration() bool {
	if t.overflow || t.paths > 0 || t.urls > 0 || t.digits || len(t.values) > maxEnumeration ||
		t.count < 8*len(t.values) || t.lastNew > t.count/2 {
		return false
	}
	for text := range t.values {
		if len(text) > 40 || strings.Count(text, " ") > 2 {
			return false
		}
	}
	return true
}

// pattern returns a regular expression for the characters and the length of the texts, with
// head-room.
func (t *texts) pattern() string {
	var class strings.Builder
	if t.letters || t.digits {
		class.WriteString("a-zA-Z0-9")
	}
	allowed := map[rune]bool{}
	for r := range t.characters {
		allowed[r] = true
	}
	headroom := ""
	switch {
	case t.paths == t.count || t.urls == t.count, !t.letters:
		headroom = "-_."
	case t.spaces:
		headroom = ".,:;!?'()-"
	case t.letters:
		headroom = "-_"
	}
	for _, r := range headroom {
		allowed[r] = true
	}
	if t.spaces || t.paths == t.count {
		class.WriteString(" ")
	}
	var all []rune
	for r := range allowed {
		all = append(all, r)
	}
	slices.Sort(all)
	for _, r := range all {
		if strings.ContainsRune(`\]^-[&~`, r) {
			class.WriteByte('\\')
		}
		class.WriteRune(r)
	}
	if t.others {
		class.WriteString(`\p{L}\p{M}\p{N}\p{P}\p{S}`)
	}
	if t.controls {
		class.WriteString(`\n\r\t`)
	}
	if class.Len() == 0 {
		return `^$`
	}
	return `^[` + class.String() + `]*$`
}

// lengthBound returns the length of the texts with head-room.
func (t *texts) lengthBound() int { return 2*t.maxLength + 16 }
