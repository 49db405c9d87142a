package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"gatekit/core/regularfile"
)

// maxFileBytes limits the size of the configuration, and of each file that ${file:} names.
const maxFileBytes = 1 << 20

// maxSyntaxErrors limits how many syntax errors are reported. After each of them, the whole file is
// parsed again.
const maxSyntaxErrors = 20

// Check finds mistakes that this package cannot find, such as the name of a plugin that does not
// exist. In the Config that it gets, each value of a wrong type is replaced by its default.
type Check func(*Config) Errors

// Load reads and checks the configuration at path, and fills in the defaults. If the file can be
// read but has mistakes, the error is of type Errors. It holds all mistakes, including the mistakes
// that the checks find. Watch runs the same checks.
func Load(path string, checks ...Check) (*Config, error) {
	c, _, err := load(path, checks)
	return c, err
}

// snapshot holds the files that a configuration was read from, and their digest.
type snapshot struct {
	path   string // the path as given to Load
	checks []Check
	files  []string // absolute paths of the configuration and of the files that ${file:} names
	digest [sha256.Size]byte

	watched      []string // the paths in policy.files and policy.data, and the lock file
	testsWatched bool     // the tests of policies are watched, too
	substituted  []string // values of substitutions that no output may contain
}

// loader reads one configuration.
type loader struct {
	doc   *document
	dir   string            // absolute path of the file's folder
	files map[string][]byte // contents of the files that were read, by absolute path
	order []string          // paths of these files, in the order in which they were read
	errs  Errors

	substituted []string // values of substitutions that no output may contain

	hasDocument bool // listen.public_url has a client metadata document, or is not known yet

	partial bool // lines with syntax errors were left out; a key that seems absent may be there
}

// load does the work of Load. It also returns the files that it read, even after an error, because
// Watch watches them.
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
	// Some editors write a byte order mark.
	c := l.load(abs, newDocument(path, strings.TrimPrefix(string(doc), "\ufeff")))
	if c.Policy != nil {
		r.testsWatched = c.Policy.Tests
		r.watched = slices.Concat(c.Policy.Files, c.Policy.Data)
	}
	if c.Pins != nil {
		r.watched = append(r.watched, c.Pins.File)
	}
	// The digest is computed before the checks read the policies. So Watch notices a change that
	// happens while the checks run.
	r.files, r.digest = l.order, addToDigest(l.digest(), policyFiles(r.watched,
		r.testsWatched))
	mask := NewMask(l.substituted) // the checks know only the values after substitution
	for _, check := range checks {
		for _, e := range check(c) {
			l.addError(e.Position, "%s", mask.Replace(e.Message))
		}
	}
	if len(l.errs) > 0 {
		l.errs.sort()
		return nil, r, l.errs
	}
	r.substituted = l.substituted
	c.source = r
	return c, r, nil
}

func (l *loader) load(abs string, src *document) *Config {
	l.doc = src
	if isUTF16(src.text) { // the parser would skip the byte order mark and misread the rest
		l.addError(Position{File: src.file, Line: 1, Col: 1}, "the file is UTF-16; save it as "+
			"UTF-8")
		return &Config{File: abs}
	}
	if l.reportJSONFile(src.text) {
		return &Config{File: abs}
	}
	values, doc := l.parse(src.text)
	root := scan(doc)
	c := &Config{File: abs}
	l.decode(c, values, root)
	l.check(c, root)
	return c
}

// parse returns the values of the document src, and the document with spaces in place of lines that
// have syntax errors. All other lines keep their position.
func (l *loader) parse(src string) (map[string]any, string) {
	values, fault := decodeTOML(src)
	for fault != nil {
		at := l.doc.positionInLine(fault.Position.Start, fault.Position.Line)
		l.partial = true
		candidates := repairCandidates(src, at.Line)
		first := l.doc.lineStarts[at.Line-1]
		first += len(src[first:]) - len(strings.TrimLeft(src[first:], " \t"))
		if end, ok := l.reportClientJSON(src, first); ok {
			candidates = []string{src[:first] + blanked(src[first:end]) + src[end:]}
		} else {
			l.addError(at, "%s", normalizeMessage(fault.Message))
		}
		if len(l.errs) == maxSyntaxErrors {
			return nil, "" // the other checks are left out
		}
		before := fault
		for _, src = range candidates {
			if values, fault = decodeTOML(src); fault == nil ||
				fault.Position.Line > before.Position.Line {
				break
			}
		}
		if fault != nil && fault.Position.Line <= before.Position.Line {
			return nil, "" // no candidate helped; more repairs could cause false errors
		}
	}
	return values, src
}

func isUTF16(doc string) bool {
	return strings.HasPrefix(doc, "\xff\xfe") || strings.HasPrefix(doc, "\xfe\xff")
}

// controlCharacters begins the parser's message about a control character.
const controlCharacters = "TOML files cannot contain control characters"

func decodeTOML(doc string) (map[string]any, *toml.ParseError) {
	values := map[string]any{}
	_, err := toml.Decode(doc, &values)
	if err == nil {
		return values, nil
	}
	var fault toml.ParseError
	if !errors.As(err, &fault) { // cannot happen when decoding into a map
		fault.Message = err.Error()
	}
	if strings.HasPrefix(fault.Message, controlCharacters) {
		fault.Position.Start++ // the parser reports the offset before the character
	}
	fault.Position.Line = max(fault.Position.Line, 1)
	return nil, &fault
}

// normalizeMessage returns a message of the parser in the style of this package. It removes the
// full stop, and begins with a lower-case letter unless the first word is "TOML".
func normalizeMessage(sentence string) string {
	sentence = strings.TrimSuffix(sentence, ".")
	if sentence == "" || strings.HasPrefix(sentence, "TOML") {
		return sentence
	}
	return strings.ToLower(sentence[:1]) + sentence[1:]
}

var (
	tableHeader = regexp.MustCompile(`^\s*\[`)
	keyValue    = regexp.MustCompile(`^\s*[\w"'][\w"'. -]*=`)
)

// repairCandidates returns versions of the document without the lines that may cause the syntax
// error. The parameter line is the line of the error. The most likely version is first.
func repairCandidates(doc string, line int) []string {
	all := strings.SplitAfter(doc, "\n")
	var out []string
	blank := func(from, to int) {
		lines := slices.Clone(all)
		for i := from; i < to; i++ {
			lines[i] = blanked(lines[i])
		}
		out = append(out, strings.Join(lines, ""))
	}
	line = min(line, len(all)) - 1
	if !tableHeader.MatchString(all[line]) {
		if last := lastLineOfValue(all, line); last > line {
			blank(line, last+1)
		}
		blank(line, line+1)
		return out
	}
	// If a list before a header is not closed, the parser reports an error in the header, although
	// the header itself is valid.
	if _, fault := decodeTOML(all[line]); fault == nil {
		for i := line - 1; i >= 0 && !tableHeader.MatchString(all[i]); i-- {
			if keyValue.MatchString(all[i]) {
				blank(i, line)
				break
			}
		}
	}
	// Without the header, its section would become part of the section before.
	end := line + 1
	for end < len(all) && !tableHeader.MatchString(all[end]) {
		end++
	}
	blank(line, end)
	return out
}

// lastLineOfValue returns the last line of the list or inline table that begins in a line and does
// not end in that line. Without that line, its other lines would be syntax errors too. If no such
// value begins in the line, lastLineOfValue returns the line.
func lastLineOfValue(lines []string, line int) int {
	_, value, _ := strings.Cut(lines[line], "=")
	value = strings.TrimSpace(value)
	for open, end := range map[string]string{"[": "]", "{": "}"} {
		if !keyValue.MatchString(lines[line]) || !strings.HasPrefix(value, open) ||
			strings.Contains(value, end) {
			continue
		}
		for i := line + 1; i < len(lines) && !tableHeader.MatchString(lines[i]); i++ {
			if strings.HasPrefix(strings.TrimSpace(lines[i]), end) {
				return i
			}
			if open == "[" && keyValue.MatchString(lines[i]) {
				break
			}
		}
	}
	return line
}

// blanked returns text with a space in place of each byte that is not a line break. So offsets and
// lines stay the same.
func blanked(text string) string {
	b := []byte(text)
	for i := range b {
		if b[i] != '\n' {
			b[i] = ' '
		}
	}
	return string(b)
}

// readFile returns the contents of a file. It reads each file only once. If the file cannot be
// read, or has more than maxFileBytes, the first call returns an error. Later calls return no
// contents and no error.
func (l *loader) readFile(path string) ([]byte, error) {
	if b, ok := l.files[path]; ok {
		return b, nil
	}
	l.files[path] = nil
	l.order = append(l.order, path)
	b, err := regularfile.Read(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	l.files[path] = b
	return b, nil
}

// digest returns the digest of all files that were read.
func (l *loader) digest() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range l.order {
		fmt.Fprintf(h, "%q %t %d\n", f, l.files[f] != nil, len(l.files[f]))
		h.Write(l.files[f])
	}
	h.Sum(sum[:0])
	return sum
}

// errorf reports a mistake at the position of n.
func (l *loader) errorf(n *node, format string, a ...any) {
	l.addError(l.doc.position(n.offset), format, a...)
}

// addError reports a mistake at a position.
func (l *loader) addError(at Position, format string, a ...any) {
	l.errs = append(l.errs, &Error{Position: at, Message: fmt.Sprintf(format, a...)})
}

// absPath returns path as an absolute path. A relative path starts at the folder of the file.
func (l *loader) absPath(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(l.dir, path)
}
