package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is the longest line of Go, of Markdown prose and of TOML. A tab is four columns.
const columns = 100

// width returns how many columns a line takes.
func width(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// unbreakable matches a long word, such as a URL, a path, a digest or an encoded text.
var unbreakable = regexp.MustCompile(`[^\s]{60,}`)

// tooWide returns the lines of a Go file that are longer than columns. A line may be longer if it
// cannot be broken. Such a line has a word of 60 or more columns. In tests, it may also have a raw
// string, because tests show messages exactly as they are sent.
func tooWide(file, source string) (faults []string) {
	raw := rawStringLines(source)
	for i, line := range strings.Split(source, "\n") {
		n := i + 1
		if width(line) <= columns || unbreakable.MatchString(line) {
			continue
		}
		if strings.HasSuffix(file, "_test.go") && raw[n] {
			continue
		}
		faults = append(faults, fmt.Sprintf("%s:%d: %d columns, more than %d", file, n, width(line),
			columns))
	}
	return faults
}

// rawStringLines returns the numbers of the lines that hold a part of a raw string.
func rawStringLines(source string) map[int]bool {
	lines := map[int]bool{}
	set := token.NewFileSet()
	f := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(f, []byte(source), nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && lit[0] == '`' {
			for i := range strings.Count(lit, "\n") + 1 {
				lines[f.Line(pos)+i] = true
			}
		}
	}
}

// wideProse returns the lines of Markdown prose or TOML that are longer than columns. Tables, code
// blocks, patterns (in three single quotes), lines with an unbreakable word, and the lines of code
// that a list of survivors quotes may be longer.
func wideProse(file, text string) (faults []string) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			code = !code
		}
		if code || strings.HasPrefix(trimmed, "|") || strings.Contains(line, "'''") ||
			unbreakable.MatchString(line) || width(line) <= columns ||
			strings.HasPrefix(file, "test/mutants/survivors/") &&
				strings.HasPrefix(line, "line = ") {
			continue
		}
		faults = append(faults, fmt.Sprintf("%s:%d: %d columns, more than %d", file, i+1,
			width(line), columns))
	}
	return faults
}

// idioms are phrases that doc comments must not use. Go's own phrases are "returns", "reports
// whether" and "writes".
var idioms = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\bsays? whether\b`), "reports whether"},
	{regexp.MustCompile(`\bsays? that\b`), "reports, records, or what it does"},
	{regexp.MustCompile(`^\w+ answers\b`), "returns"},
	{regexp.MustCompile(`\bthat (it|they) answers?\b`), "that it returns"},
	{regexp.MustCompile(`^\w+ (is|are) (what|who)\b`), "a noun"},
}

// wording returns a fault for each doc comment of a file that uses one of the idioms.
func wording(file string, set *token.FileSet, f *ast.File) (faults []string) {
	check := func(doc *ast.CommentGroup) {
		if doc == nil {
			return
		}
		text := strings.Join(strings.Fields(doc.Text()), " ")
		for _, idiom := range idioms {
			if found := idiom.pattern.FindString(text); found != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %q in a doc comment; write %s", file,
					set.Position(doc.Pos()).Line, found, idiom.instead))
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.File:
			check(n.Doc)
		case *ast.FuncDecl:
			check(n.Doc)
		case *ast.GenDecl:
			check(n.Doc)
		case *ast.TypeSpec:
			check(n.Doc)
		case *ast.ValueSpec:
			check(n.Doc)
		case *ast.Field:
			check(n.Doc)
		}
		return true
	})
	return faults
}

// uncommented returns the exported fields of a file's structs that have no comment.
func uncommented(file string, set *token.FileSet, f *ast.File) (faults []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		for _, field := range s.Fields.List {
			if field.Doc != nil || field.Comment != nil {
				continue
			}
			for _, name := range field.Names {
				if name.IsExported() {
					faults = append(faults, fmt.Sprintf("%s:%d: %s.%s has no comment", file,
						set.Position(name.Pos()).Line, spec.Name.Name, name.Name))
				}
			}
		}
		return true
	})
	return faults
}

var (
	// document matches the name of a document, and a section number after the name. A text must
	// name a document by its path, and a section by a link.
	document = regexp.MustCompile(`[\w./-]*\b[\w-]+\.md\b( [0-9]+(\.[0-9]+)*\b)?`)
	// foreign matches numbers of defects, decisions and issues that are not in the repository.
	foreign = regexp.MustCompile(`\bADR-[0-9]+|\b[BD][0-9]{1,2} of\b|\(D[0-9]{1,2}\)|\bissue [0-9]+\b`)
)

// references returns a fault for each reference in a text to a document, section or number that is
// not in the repository.
func references(file, text string, exists func(name string) bool) (faults []string) {
	for i, line := range strings.Split(text, "\n") {
		fault := func(reference, problem string) {
			faults = append(faults, fmt.Sprintf("%s:%d: %q %s", file, i+1, reference, problem))
		}
		if found := foreign.FindString(line); found != "" {
			fault(found, "refers to something outside the repository")
		}
		for _, m := range document.FindAllStringSubmatchIndex(line, -1) {
			name, _, _ := strings.Cut(line[m[0]:m[1]], " ")
			if m[2] >= 0 {
				fault(line[m[0]:m[1]], "refers to a section by its number; name its subject")
			}
			if strings.HasPrefix(line[:m[0]], "//") && strings.Contains(line[:m[0]], "://") ||
				strings.Contains(name, "//") || strings.HasSuffix(line[:m[0]], ":/") {
				continue // a URL
			}
			if path.Base(name) == "SKILL.md" {
				continue // a file of a skill on a server
			}
			if !exists(path.Clean(name)) && !exists(path.Join(path.Dir(file), name)) {
				fault(name, "is not a document of the repository")
			}
		}
	}
	return faults
}

// TestWording checks the rules of wording that a test can check: the width of lines, some phrases,
// and references. docs/CONTRIBUTING.md has all rules.
func TestWording(t *testing.T) {
	top := os.DirFS("../..")
	exists := func(name string) bool {
		_, err := fs.Stat(top, name)
		return err == nil
	}
	files := 0
	err := fs.WalkDir(top, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			n := d.Name()
			if n == "testdata" || n == "node_modules" || n == "servers" ||
				n != "." && strings.HasPrefix(n, ".") {
				return fs.SkipDir
			}
			return nil
		}
		kind := path.Ext(strings.TrimSuffix(p, ".example"))
		if !slices.Contains([]string{".go", ".md", ".toml", ".rego"}, kind) ||
			strings.HasSuffix(p, ".pb.go") || path.Dir(p) == "test/layout" ||
			p == "plugins/builtin/secrets/gitleaks.toml" { // an unchanged copy of gitleaks' rules
			return nil
		}
		files++
		b, err := fs.ReadFile(top, p)
		if err != nil {
			return err
		}
		var faults []string
		switch kind {
		case ".go":
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join("../..", p), b,
				parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			faults = append(tooWide(p, string(b)), wording(p, set, f)...)
			if path.Dir(p) == "core/config" && !strings.HasSuffix(p, "_test.go") {
				faults = append(faults, uncommented(p, set, f)...)
			}
			var comments strings.Builder
			line := 1
			for _, group := range f.Comments {
				for _, c := range group.List {
					for ; line < set.Position(c.Pos()).Line; line++ {
						comments.WriteByte('\n')
					}
					comments.WriteString(c.Text)
					line += strings.Count(c.Text, "\n")
				}
			}
			faults = append(faults, references(p, comments.String(), exists)...)
		case ".rego":
			faults = references(p, string(b), exists)
		default:
			faults = append(wideProse(p, string(b)), references(p, string(b), exists)...)
		}
		for _, fault := range faults {
			t.Error(fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("read %d files, want 100 or more; is ../.. the top of the repository?", files)
	}
}

// TestPlantedWordingIsFound checks that each rule of wording finds a planted violation. It also
// checks that the rule accepts a similar text that is allowed.
func TestPlantedWordingIsFound(t *testing.T) {
	long := strings.Repeat("word ", 21)
	exists := func(name string) bool { return name == "docs/protocol.md" }
	goFaults := func(file, source string) []string {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Concat(tooWide(file, source), wording(file, set, f),
			uncommented(file, set, f), references(file, source, exists))
	}
	for _, c := range []struct{ name, file, source, want string }{
		{"a line of 108 columns", "x.go", "package x\n\n// " + long, "x.go:3: 108 columns"},
		{"a raw string in production code", "x.go", "package x\n\nconst s = `" + long + "`",
			"x.go:3: 117 columns"},
		{"a raw string in a test", "x_test.go", "package x\n\nconst s = `" + long + "`", ""},
		{"a URL", "x.go", "package x\n\n// See https://example.com/" + strings.Repeat("a", 90), ""},
		{"a doc comment with \"says whether\"", "x.go",
			"package x\n\n// f says whether it is.\nfunc f() bool { return true }", "says whether"},
		{"a doc comment with \"says whether\" over two lines", "x.go",
			"package x\n\n// f says\n// whether it is.\nfunc f() bool { return true }", "says whether"},
		{"a doc comment with \"f answers\"", "x.go",
			"package x\n\n// f answers 1.\nfunc f() int { return 1 }", "f answers"},
		{"a doc comment about a server that answers", "x.go",
			"package x\n\n// f waits until the server answers.\nfunc f() {}", ""},
		{"a doc comment with \"is who\"", "x.go",
			"package x\n\n// t is who calls.\ntype t int", "t is who"},
		{"a field without a comment", "x.go", "package x\n\ntype T struct{ A int }",
			"T.A has no comment"},
		{"a field with a comment", "x.go", "package x\n\ntype T struct {\n\tA int // seconds\n}", ""},
		{"a document that does not exist", "x.go", "package x\n\n// See design.md.\n",
			"is not a document"},
		{"a section number", "x.go", "package x\n\n// See docs/protocol.md 3.12.\n",
			"by its number"},
		{"a document that exists", "x.go", "package x\n\n// See docs/protocol.md.\n", ""},
		{"a decision elsewhere", "x.go", "package x\n\n// By ADR-015.\n", "ADR-015"},
		{"a defect elsewhere", "x.go", "package x\n\n// B1 of the list.\n", "B1 of"},
		{"a number of an issue", "x.go", "package x\n\n// The reach of issue 5.\n", "issue 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := goFaults(c.file, c.source)
			if c.want == "" && len(got) > 0 ||
				c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("got the faults %q, want one fault that contains %q (an empty text means "+
					"that no fault is wanted)", got, c.want)
			}
		})
	}
	t.Run("a long line of prose", func(t *testing.T) {
		text := "# Title\n\n" + long + "\n\n| " + long + " |\n\n```\n" + long + "\n```\n"
		if got := wideProse("x.md", text); len(got) != 1 || !strings.Contains(got[0], "x.md:3:") {
			t.Errorf("got the faults %q, want one fault, in line 3", got)
		}
	})
}
