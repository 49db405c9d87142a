package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxFile bounds the file and everything that ${file:} reads.
const maxFile = 1 << 20

// Check finds mistakes that the package knows nothing of: what the caller cannot do, for one. Where
// there are others already, the Config holds defaults.
type Check func(*Config) Errors

// Load reads, checks and completes the configuration at path. The error is Errors when the file
// could be read: all its mistakes, those that the checks find among them, each at its place. Watch
// makes the same checks.
func Load(path string, checks ...Check) (*Config, error) {
	c, _, err := load(path, checks)
	return c, err
}

// snapshot is what one reading of the configuration took in.
type snapshot struct {
	path   string // as given to Load
	checks []Check
	files  []string // the file and those of ${file:}, absolute
	digest [sha256.Size]byte

	policies []string // policy.files and policy.data
}

// loader reads one file.
type loader struct {
	doc     *document
	dir     string // of the file, absolute
	files   map[string][]byte
	order   []string // keys of files
	errs    Errors
	partial bool // lines were taken out for their syntax: what is absent may have been there
}

// load is Load that also says what it read, so that Watch knows what to look at; also after an
// error.
func load(path string, checks []Check) (*Config, *snapshot, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, fmt.Errorf("find the folder of %s: %w", path, err)
	}
	l := &loader{dir: filepath.Dir(abs), files: map[string][]byte{}}
	doc, err := l.readFile(abs)
	r := &snapshot{path: path, checks: checks, files: l.order}
	if err != nil {
		return nil, r, fmt.Errorf("read the configuration: %w", err)
	}
	// A byte order mark is the editor's, not the user's.
	c := l.load(abs, newDocument(path, strings.TrimPrefix(string(doc), "\ufeff")))
	if c.Policy != nil {
		r.policies = slices.Concat(c.Policy.Files, c.Policy.Data)
	}
	// before the checks read them: what changes meanwhile is a change
	r.files, r.digest = l.order, addToDigest(l.digest(), policyFiles(r.policies))
	for _, check := range checks {
		l.errs = append(l.errs, check(c)...)
	}
	if len(l.errs) > 0 {
		l.errs.sort()
		return nil, r, l.errs
	}
	c.source = r
	return c, r, nil
}

func (l *loader) load(abs string, src *document) *Config {
	l.doc = src
	if isUTF16(src.text) { // whose mark the parser would skip, and go on
		l.addError(Position{File: src.file, Line: 1, Col: 1}, "the file is UTF-16; save it as UTF-8")
		return &Config{File: abs}
	}
	values, doc := l.parse(src.text)
	root := scan(doc)
	c := &Config{File: abs}
	l.decode(c, values, root)
	l.check(c, root)
	return c
}

// parse answers the document's values, and the document that they are of: src without the lines
// that are no TOML, which are blanked so that all others keep their place.
func (l *loader) parse(src string) (map[string]any, string) {
	values, fault := decodeTOML(src)
	for fault != nil {
		at := Position{File: l.doc.file, Line: fault.Position.Line}
		if p := l.doc.position(min(max(fault.Position.Start, 0), len(src))); p.Line == at.Line {
			at = p
		}
		l.addError(at, "%s", normalizeMessage(fault.Message))
		l.partial = true
		if len(l.errs) == 20 {
			return nil, ""
		}
		before := fault
		for _, src = range repairCandidates(src, at.Line) {
			if values, fault = decodeTOML(src); fault == nil ||
				fault.Position.Line > before.Position.Line {
				break
			}
		}
		if fault != nil && fault.Position.Line <= before.Position.Line {
			return nil, "" // the damage is elsewhere, and guessing on would report what is none
		}
	}
	return values, src
}

func isUTF16(doc string) bool {
	return strings.HasPrefix(doc, "\xff\xfe") || strings.HasPrefix(doc, "\xfe\xff")
}

func decodeTOML(doc string) (map[string]any, *toml.ParseError) {
	values := map[string]any{}
	_, err := toml.Decode(doc, &values)
	if err == nil {
		return values, nil
	}
	var fault toml.ParseError
	if !errors.As(err, &fault) { // does not happen when decoding into a map
		fault.Message = err.Error()
	}
	fault.Position.Line = max(fault.Position.Line, 1)
	return nil, &fault
}

// normalizeMessage is the parser's sentence as our errors are: it begins some with a capital and ends
// them with a full stop.
func normalizeMessage(sentence string) string {
	if sentence == "" {
		return sentence
	}
	return strings.ToLower(sentence[:1]) + strings.TrimSuffix(sentence[1:], ".")
}

var (
	tableHeader = regexp.MustCompile(`^\s*\[`)
	keyValue    = regexp.MustCompile(`^\s*[\w"'][\w"'. -]*=`)
)

// repairCandidates are documents in which the fault found at a line may be gone, the likeliest first.
func repairCandidates(doc string, line int) []string {
	all := strings.SplitAfter(doc, "\n")
	var out []string
	blank := func(from, to int) {
		lines := slices.Clone(all)
		for i := from; i < to; i++ {
			text := strings.TrimRight(lines[i], "\n")
			lines[i] = strings.Repeat(" ", len(text)) + lines[i][len(text):] // offsets stay
		}
		out = append(out, strings.Join(lines, ""))
	}
	line = min(line, len(all)) - 1
	if !tableHeader.MatchString(all[line]) {
		blank(line, line+1)
		return out
	}
	// A header that is good by itself stumbles over a list that the statement before it left open.
	if _, fault := decodeTOML(all[line]); fault == nil {
		for i := line - 1; i >= 0 && !tableHeader.MatchString(all[i]); i-- {
			if keyValue.MatchString(all[i]) {
				blank(i, line)
				break
			}
		}
	}
	// Without its header a section would fall to the one before.
	end := line + 1
	for end < len(all) && !tableHeader.MatchString(all[end]) {
		end++
	}
	blank(line, end)
	return out
}

// readFile reads a bounded file once.
func (l *loader) readFile(path string) ([]byte, error) {
	if b, ok := l.files[path]; ok {
		return b, nil
	}
	l.files[path] = nil
	l.order = append(l.order, path)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if i, err := f.Stat(); err == nil && i.IsDir() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("is a folder")}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d bytes",
			maxFile)}
	}
	l.files[path] = b
	return b, nil
}

// digest is the digest of all that was read.
func (l *loader) digest() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range l.order {
		fmt.Fprintf(h, "%q %t %d\n", f, l.files[f] != nil, len(l.files[f]))
		h.Write(l.files[f])
	}
	h.Sum(sum[:0])
	return sum
}

func (l *loader) errorf(n *node, format string, a ...any) {
	l.addError(l.doc.position(n.offset), format, a...)
}

func (l *loader) addError(at Position, format string, a ...any) {
	l.errs = append(l.errs, &Error{Position: at, Message: fmt.Sprintf(format, a...)})
}

// absPath is path made absolute against the folder of the file.
func (l *loader) absPath(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(l.dir, path)
}
