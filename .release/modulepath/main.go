// Modulepath sets the path of Gatekit's module in the whole repository:
//
//	go -C .release run ./modulepath github.com/OWNER/gatekit
//
// It changes go.mod of the module and of all modules that use it, the imports of Go files and of Go
// code in documents, comments that link to a package, and the option go_package of the plugin
// protocol. Then it makes the Go code of the protocol again. Names that only look like the path,
// such as the folder gatekit/audit of a user's state, stay.
package main

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/bufbuild/protocompile"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: modulepath PATH")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "modulepath:", err)
		os.Exit(1)
	}
}

// change holds the old and the new path of the module.
type change struct{ old, path string }

func run(path string) error {
	if err := os.Chdir(".."); err != nil {
		return err
	}
	text, err := os.ReadFile("go.mod")
	if err != nil {
		return fmt.Errorf("run it in the folder .release: %w", err)
	}
	c := change{modfile.ModulePath(text), path}
	if path != c.old { // the first path, gatekit, is none that Go can download
		if err := module.CheckPath(path); err != nil {
			return err
		}
	}
	listed, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("list the files of the repository: %w", err)
	}
	changed := 0
	for name := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		edit := c.editor(name)
		if edit == nil {
			continue
		}
		before, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		after, err := edit(before)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if bytes.Equal(before, after) {
			continue
		}
		changed++
		if err := os.WriteFile(name, after, 0o644); err != nil {
			return err
		}
	}
	if err := generate(); err != nil {
		return fmt.Errorf("make the Go code of the plugin protocol: %w", err)
	}
	fmt.Printf("%d files now say %s\n", changed, path)
	return nil
}

// editor returns the function that changes a file, or nil if the file cannot have the path.
func (c change) editor(name string) func([]byte) ([]byte, error) {
	switch base := filepath.Base(name); {
	case base == "go.mod":
		return c.goMod
	case strings.HasSuffix(name, ".pb.go"):
		return nil
	case strings.HasSuffix(name, ".go"):
		return c.goFile
	case strings.HasSuffix(name, ".md"):
		return c.document
	case strings.HasSuffix(name, ".proto"):
		return c.protoFile
	}
	return nil
}

// moved returns the new path of a package, if it is one of the module.
func (c change) moved(pkg string) (string, bool) {
	if rest, ok := strings.CutPrefix(pkg, c.old); ok && (rest == "" || rest[0] == '/') {
		return c.path + rest, true
	}
	return pkg, false
}

func (c change) goMod(text []byte) ([]byte, error) {
	named := regexp.MustCompile(`(?m)^((?:module|require|replace) |\t)` + regexp.QuoteMeta(c.old) +
		`((?:/\S*)?(?: .*)?)$`)
	text = named.ReplaceAll(text, []byte("${1}"+c.path+"${2}"))
	_, err := modfile.Parse("go.mod", text, nil)
	return text, err
}

func (c change) goFile(text []byte) ([]byte, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	end := 0
	replace := func(from, to token.Pos, with string) {
		b.Write(text[end:set.Position(from).Offset])
		b.WriteString(with)
		end = set.Position(to).Offset
	}
	links := regexp.MustCompile(`\[` + regexp.QuoteMeta(c.old) + `/`)
	comments := f.Comments
	comment := func(before token.Pos) { // changes the links in the comments up to a position
		for len(comments) > 0 && comments[0].Pos() < before {
			for _, l := range comments[0].List {
				if links.MatchString(l.Text) {
					replace(l.Pos(), l.End(), links.ReplaceAllString(l.Text, "["+c.path+"/"))
				}
			}
			comments = comments[1:]
		}
	}
	for _, i := range f.Imports {
		comment(i.Path.Pos())
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		if to, ok := c.moved(imported); ok {
			replace(i.Path.Pos(), i.Path.End(), strconv.Quote(to))
		}
	}
	comment(f.FileEnd)
	b.Write(text[end:])
	// Tests name the package of the program in a string.
	after := bytes.ReplaceAll(b.Bytes(), []byte(`"`+c.old+`/cmd/gatekit"`),
		[]byte(`"`+c.path+`/cmd/gatekit"`))
	if bytes.Equal(after, text) {
		return text, nil
	}
	return format.Source(after)
}

// document changes the imports of Go code in a document.
func (c change) document(text []byte) ([]byte, error) {
	imported := regexp.MustCompile(`(?m)^(\s*(?:import )?(?:\w+ )?")` + regexp.QuoteMeta(c.old) +
		`((?:/[^"\s]+)?"\r?)$`)
	text = imported.ReplaceAll(text, []byte("${1}"+c.path+"${2}"))
	required := regexp.MustCompile(`(?m)^((?:require|replace) )` + regexp.QuoteMeta(c.old) + ` `)
	return required.ReplaceAll(text, []byte("${1}"+c.path+" ")), nil
}

func (c change) protoFile(text []byte) ([]byte, error) {
	option := regexp.MustCompile(`(?m)^(option go_package = ")` + regexp.QuoteMeta(c.old) + `/`)
	return option.ReplaceAll(text, []byte("${1}"+c.path+"/")), nil
}

// generate makes the Go code of the plugin protocol, as "go generate ./plugins/proto" does, but
// with a compiler that needs no download.
func generate() error {
	const folder, file = "plugins/proto", "gatekit/plugin/v1/plugin.proto"
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{folder}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile: []*descriptorpb.FileDescriptorProto{
			protodesc.ToFileDescriptorProto(files[0])},
	})
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		tool := exec.Command("go", "tool", plugin)
		tool.Stdin, tool.Stderr = bytes.NewReader(request), os.Stderr
		out, err := tool.Output()
		if err != nil {
			return fmt.Errorf("run %s: %w", plugin, err)
		}
		var response pluginpb.CodeGeneratorResponse
		if err := proto.Unmarshal(out, &response); err != nil {
			return err
		}
		if response.Error != nil {
			return fmt.Errorf("%s: %s", plugin, response.GetError())
		}
		for _, f := range response.File {
			if err := os.WriteFile(filepath.Join(folder, f.GetName()), []byte(f.GetContent()),
				0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
