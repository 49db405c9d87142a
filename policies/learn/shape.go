package learn

import (
	"fmt"
	"hash/maphash"
	"maps"
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
		e.principals[s.principal(c)] = true
	}
}

// shape describes the values at one place of the arguments.
type shape struct {
	evidence
	types map[string]int // by the name of the JSON type

	texts   texts
	numbers numbers

	maxItems extreme // items of arrays
	items    *shape  // of arrays; nil when there were none

	members map[string]*shape // of objects
	open    bool              // any name is allowed: there were too many, not of arguments
	example any               // the shortest value
	size    int               // of example, as JSON
}

// texts describes the texts at one place.
type texts struct {
	count     int
	values    map[string]*value
	lastNew   int     // count when the last new value was seen
	overflow  bool    // there were more than maxValues values
	maxLength extreme // in characters

	characters      map[rune]*users // ASCII characters that are neither letters nor digits
	letters, digits bool
	spaces          bool
	others          users // of characters beyond ASCII
	controls        users

	paths, urls int   // texts that are absolute paths, URLs
	embedded    users // of texts that contain "://"
	dots        users // of paths with a segment that begins with a dot
	parents     users // of texts with the segment ".."
	folders     map[string]*users
	extensions  map[string]*users
	newExt      int // count when the last new extension was seen
	hosts       map[string]*users
}

// value is one text with the principals that sent it.
type value struct{ evidence }

// numbers describes the numbers at one place.
type numbers struct {
	fractions     int
	high, lowered extreme // lowered is of the negated numbers
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
		s.numbers.add(v, sd.principal(c))
	case []any:
		s.maxItems.add(float64(len(v)), sd.principal(c))
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
				// Arguments have names that the tool declares. If these were open, one call with
				// many names would allow all names.
				s.open = depth > 0
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

func (n *numbers) add(f float64, principal uint64) {
	n.high.add(f, principal)
	n.lowered.add(-f, principal)
	if f != math.Trunc(f) {
		n.fractions++
	}
}

// bounds returns the range of the numbers with head-room.
func (n *numbers) bounds() (low, high float64) { return numberBounds(-n.lowered.most, n.high.most) }

func numberBounds(least, most float64) (low, high float64) {
	span := max(most-least, math.Abs(most), 1)
	low, high = least-span, most+span
	if least >= 0 {
		low = 0
	}
	return math.Floor(finite(low)), math.Ceil(finite(high))
}

// few returns the parts of the range that only one principal accounts for.
func (n *numbers) few() (all []string) {
	least := -n.lowered.most
	if n.lowered.othersPresent {
		least = -n.lowered.others
	}
	above := func(others float64) float64 {
		_, high := numberBounds(min(least, others), others)
		return high
	}
	if n.high.byOne(above) {
		all = append(all, fmt.Sprintf("numbers above %.0f", above(n.high.others)))
	}
	most := n.high.most
	if n.high.othersPresent {
		most = n.high.others
	}
	below := func(others float64) float64 {
		low, _ := numberBounds(-others, max(most, -others))
		return -low
	}
	if n.lowered.byOne(below) {
		all = append(all, fmt.Sprintf("numbers below %.0f", -below(n.lowered.others)))
	}
	return all
}

func (t *texts) add(sd seed, c *policies.Case, s string) {
	by := sd.principal(c)
	t.count++
	t.maxLength.add(float64(utf8.RuneCountInString(s)), by)
	if t.values == nil {
		t.values, t.characters = map[string]*value{}, map[rune]*users{}
		t.folders, t.hosts = map[string]*users{}, map[string]*users{}
		t.extensions = map[string]*users{}
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
	control := false
	for _, r := range s {
		switch {
		case r == ' ':
			t.spaces = true
		case r < utf8.RuneSelf && (unicode.IsLetter(r)):
			t.letters = true
		case r < utf8.RuneSelf && unicode.IsDigit(r):
			t.digits = true
		case r < ' ' || r == 0x7f:
			t.controls.add(by)
			control = true
		case r < utf8.RuneSelf:
			addTo(t.characters, r, by)
		default:
			t.others.add(by)
		}
	}
	if strings.Contains(s, "://") {
		t.embedded.add(by)
	}
	if slices.Contains(strings.FieldsFunc(s, isSeparator), "..") {
		t.parents.add(by)
	}
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && u.Host != "" && u.User == nil {
		t.urls++
		host := strings.ToLower(u.Scheme + "://" + u.Host)
		if t.hosts[host] != nil || len(t.hosts) < maxRoots {
			addTo(t.hosts, host, by)
		}
	}
	if strings.HasPrefix(s, "/") && !control {
		t.addPath(s, by)
	}
}

func isSeparator(r rune) bool { return r == '/' || r == '\\' }

func (t *texts) addPath(s string, by uint64) {
	t.paths++
	for segment := range strings.SplitSeq(s, "/") {
		if strings.HasPrefix(segment, ".") {
			t.dots.add(by)
		}
	}
	ext := path.Ext(s)
	if t.extensions[ext] == nil {
		t.newExt = t.count
	}
	if t.extensions[ext] != nil || len(t.extensions) < maxValues {
		addTo(t.extensions, ext, by)
	}
	folder := path.Dir(path.Clean(s))
	if ext == "" {
		folder = path.Clean(s)
	}
	if t.folders[folder] == nil && len(t.folders) >= maxRoots { // keep what they have in common
		roots := t.roots()
		if len(roots) > maxRoots/2 {
			all := &users{}
			for _, u := range roots {
				all.merge(u)
			}
			roots = map[string]*users{commonFolder(slices.Collect(maps.Keys(roots))): all}
		}
		t.folders = roots
	}
	addTo(t.folders, folder, by)
}

// commonFolder returns the deepest folder that contains all folders.
func commonFolder(folders []string) string {
	var common []string
	for i, f := range folders {
		segments := strings.Split(strings.TrimPrefix(f, "/"), "/")
		if i == 0 {
			common = segments
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
func (t *texts) roots() map[string]*users {
	groups := map[string][]string{}
	for f := range t.folders {
		first, _, _ := strings.Cut(strings.TrimPrefix(f, "/"), "/")
		groups[first] = append(groups[first], f)
	}
	roots := map[string]*users{}
	for _, group := range groups {
		all := &users{}
		for _, f := range group {
			all.merge(t.folders[f])
		}
		roots[commonFolder(group)] = all
	}
	return roots
}

// few returns what only one principal accounts for: hosts, folders, characters and lengths.
func (t *texts) few() (all []string) {
	switch {
	case t.paths == t.count:
		for folder, u := range t.roots() {
			if !u.several {
				all = append(all, folder)
			}
		}
		for ext, u := range t.extensions {
			if !u.several {
				all = append(all, "the file extension "+ext)
			}
		}
	case t.urls == t.count:
		for host, u := range t.hosts {
			if !u.several {
				all = append(all, host)
			}
		}
	}
	for r, u := range t.characters {
		if !u.several {
			all = append(all, "the character "+string(r))
		}
	}
	for what, u := range map[string]users{"characters beyond ASCII": t.others,
		"control characters": t.controls, "texts with ://": t.embedded,
		"paths with hidden files": t.dots, "texts with the folder ..": t.parents} {
		if u.any && !u.several {
			all = append(all, what)
		}
	}
	if t.maxLength.byOne(lengthBound) {
		all = append(all, fmt.Sprintf("texts longer than %.0f characters",
			lengthBound(t.maxLength.others)))
	}
	slices.Sort(all)
	return all
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
	if t.others.any {
		class.WriteString(`\p{L}\p{M}\p{N}\p{P}\p{S}`)
	}
	if t.controls.any {
		class.WriteString(`\n\r\t`)
	}
	if class.Len() == 0 {
		return `^$`
	}
	return `^[` + class.String() + `]*$`
}

// lengthBound returns a length of texts with head-room.
func lengthBound(length float64) float64 { return 2*length + 16 }

// itemsBound returns a number of items with head-room.
func itemsBound(items float64) float64 { return 2*items + 4 }
