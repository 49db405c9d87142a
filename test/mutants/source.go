//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"strings"
)

// A source is a Go file.
type source struct {
	name   string
	lines  []string
	tokens map[position]string
	funcs  []function
}

type position struct{ line, column int }

// A function is a declared function and the lines that it takes.
type function struct {
	name        string
	first, last int
}

// readSource reads a Go file.
func readSource(name string) (*source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, lines: strings.Split(string(text), "\n"),
		tokens: map[position]string{}}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			s.funcs = append(s.funcs, function{name: nameOf(f), first: files.Position(f.Pos()).Line,
				last: files.Position(f.End()).Line})
		}
	}
	var scan scanner.Scanner
	file := files.AddFile(name, -1, len(text))
	scan.Init(file, text, nil, 0)
	for {
		pos, tok, _ := scan.Scan()
		if tok == token.EOF {
			return s, nil
		}
		at := file.Position(pos)
		s.tokens[position{at.Line, at.Column}] = tok.String()
	}
}

// nameOf returns the name of a function, with its receiver's type in front.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// describe returns the function that a token is in, which is empty outside of functions, and the
// token's line with the token in double braces.
func (s *source) describe(line, column int) (function, text string, err error) {
	tok, ok := s.tokens[position{line, column}]
	if !ok {
		return "", "", fmt.Errorf("%s:%d:%d: go-gremlins reports a mutant where no token begins",
			s.name, line, column)
	}
	l := s.lines[line-1]
	text = l[:column-1] + "{{" + tok + "}}" + l[column-1+len(tok):]
	for _, f := range s.funcs {
		if f.first <= line && line <= f.last {
			function = f.name
		}
	}
	return function, strings.TrimSpace(text), nil
}
