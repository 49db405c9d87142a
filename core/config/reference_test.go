package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

var updateReference = flag.Bool("update", false, "write the reference into docs/configuration.md")

const (
	referenceFile  = "../../docs/configuration.md"
	referenceBegin = "<!-- From the comments of core/config; go test ./core/config -update " +
		"writes it. -->\n"
)

// The reference in docs/configuration.md is generated from the field comments and the defaults of
// this package.
func TestReferenceAgreesWithFieldComments(t *testing.T) {
	b, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	prose, got, found := strings.Cut(string(b), referenceBegin)
	if !found {
		t.Fatalf("%s does not contain the line %q", referenceFile, referenceBegin)
	}
	want := reference(t)
	if got == want {
		return
	}
	if *updateReference {
		if err := os.WriteFile(referenceFile, []byte(prose+referenceBegin+want),
			0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s differs from the comments of the fields; run: go test ./core/config -update",
		referenceFile)
}

// reference returns the Markdown tables of all keys, in the order of the fields of Config.
func reference(t *testing.T) string {
	comments := fieldComments(t)
	var b strings.Builder
	config := reflect.TypeFor[Config]()
	for i := range config.NumField() {
		f := config.Field(i)
		if key := f.Tag.Get("toml"); key != "" && key != "-" {
			writeTable(&b, comments, key, f.Type)
		}
	}
	return b.String()
}

// writeTable writes the keys of the TOML table at path, and then the tables below that table.
func writeTable(b *strings.Builder, comments map[string]string, path string, typ reflect.Type) {
	title := "[" + path + "]"
	switch {
	case typ.Kind() == reflect.Slice && hasName(typ.Elem()):
		path, typ = path+".NAME", typ.Elem()
		title = "[" + path + "]"
	case typ.Kind() == reflect.Slice:
		typ = typ.Elem()
		title = "[[" + path + "]]"
	case typ.Kind() == reflect.Pointer:
		typ = typ.Elem()
	}
	fmt.Fprintf(b, "\n## `%s`\n\n%s| Key | Type | Default | Meaning |\n|---|---|---|---|\n", title,
		purpose(comments[typ.Name()]))
	defaults := reflect.New(typ)
	switch d := defaults.Interface().(type) {
	case interface{ setDefaults() }:
		d.setDefaults()
	default: // a table that every configuration has: Config sets its defaults
		whole := &Config{}
		whole.setDefaults()
		for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
			if f.Type == typ {
				defaults.Elem().Set(reflect.ValueOf(whole).Elem().FieldByIndex(f.Index))
			}
		}
	}
	type below struct {
		path string
		typ  reflect.Type
	}
	var tables []below
	for i := range typ.NumField() {
		f := typ.Field(i)
		key := f.Tag.Get("toml")
		if key == "" || key == "-" || strings.HasPrefix(key, ",") {
			continue
		}
		if isTable(f.Type) {
			tables = append(tables, below{path + "." + key, f.Type})
			continue
		}
		value, meaning := defaultValue(defaults.Elem().Field(i)), comments[typ.Name()+"."+f.Name]
		// A path in the file may be relative. Only the field of the Config is always absolute.
		meaning = strings.NewReplacer("The absolute path", "The path").Replace(meaning)
		switch {
		case value == "": // the comment names the default
		case strings.Contains(defaultInfix.FindString(meaning), " when "):
			value = ""
		default:
			meaning = strings.TrimSpace(defaultInfix.ReplaceAllString(meaning, " "))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", key, typeName(f.Type), value, meaning)
	}
	for _, t := range tables {
		writeTable(b, comments, t.path, t.typ)
	}
}

// isTable reports whether a field is a TOML table or a list of TOML tables.
func isTable(typ reflect.Type) bool {
	for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return typ.Kind() == reflect.Struct && typ != timeType && typ != networkType
}

// hasName reports whether the tables of a type have names, such as [server.NAME].
func hasName(typ reflect.Type) bool {
	for i := range typ.NumField() {
		if typ.Field(i).Tag.Get("toml") == ",name" {
			return true
		}
	}
	return false
}

func typeName(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[time.Duration]():
		return "duration"
	case typ == timeType:
		return "time"
	case typ == networkType:
		return "text or list of texts"
	case typ.Kind() == reflect.String:
		return "text"
	case typ.Kind() == reflect.Bool:
		return "boolean"
	case typ.Kind() == reflect.Float64:
		return "number"
	case typ.Kind() == reflect.Slice:
		return "list of texts"
	case typ.Kind() == reflect.Map && typ.Elem().Kind() == reflect.String:
		return "table of texts"
	case typ.Kind() == reflect.Map:
		return "table"
	}
	return "integer"
}

func defaultValue(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Bool:
		return fmt.Sprintf("`%v`", v.Bool())
	case v.IsZero():
		return ""
	case v.Type() == reflect.TypeFor[time.Duration]():
		s := strings.NewReplacer("m0s", "m", "h0m", "h").Replace(time.Duration(v.Int()).String())
		return "`\"" + s + "\"`"
	case v.Kind() == reflect.String:
		return fmt.Sprintf("`%q`", v.String())
	case v.Kind() == reflect.Slice:
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = fmt.Sprintf("%q", v.Index(i))
		}
		return "`[" + strings.Join(texts, ", ") + "]`"
	}
	return fmt.Sprintf("`%v`", v)
}

// fieldComments returns the comments of the package's types and fields, each as one line. The key
// of a type is its name. The key of a field is Type.Field.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	oneLine := func(groups ...*ast.CommentGroup) string {
		for _, g := range groups {
			if g != nil {
				text := strings.Join(strings.Fields(g.Text()), " ")
				return strings.ReplaceAll(text, "|", "\\|")
			}
		}
		return ""
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				return true
			}
			for _, spec := range decl.Specs {
				spec := spec.(*ast.TypeSpec)
				name := spec.Name.Name
				all[name] = sentence(name, oneLine(spec.Doc, decl.Doc))
				s, ok := spec.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range s.Fields.List {
					for _, id := range f.Names {
						all[name+"."+id.Name] = sentence(id.Name, oneLine(f.Doc, f.Comment))
					}
				}
			}
			return false
		})
	}
	return all
}

// sentence returns a comment without the Go name and the verb at its beginning. For example, "Args
// holds the arguments." becomes "The arguments."
func sentence(name, text string) string {
	rest, ok := strings.CutPrefix(text, name+" ")
	if !ok {
		return text
	}
	for _, verb := range []string{"is ", "are ", "holds "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

var (
	tableName    = regexp.MustCompile(`^(One )?\[[^ ]+\](\.|: )`)
	defaultInfix = regexp.MustCompile(` ?Default: [^.]*\.( |$)`)
)

// purpose returns the comment of a table's type, without the name of the table at its beginning.
func purpose(comment string) string {
	rest := strings.TrimSpace(tableName.ReplaceAllString(comment, ""))
	if rest == "" {
		return ""
	}
	return strings.ToUpper(rest[:1]) + rest[1:] + "\n\n"
}
