//go:build unix

package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A mutation replaces a token by another one.
type mutation struct {
	name string
	to   token.Token
}

const (
	arithmetic = "ARITHMETIC_BASE"
	boundary   = "CONDITIONALS_BOUNDARY"
	negation   = "CONDITIONALS_NEGATION"
	incDec     = "INCREMENT_DECREMENT"
	negative   = "INVERT_NEGATIVES"
)

// mutationsOf returns the mutations of a binary operator, or of the operator of a statement.
func mutationsOf(operator token.Token) []mutation {
	switch operator {
	case token.ADD:
		return []mutation{{arithmetic, token.SUB}}
	case token.SUB:
		return []mutation{{arithmetic, token.ADD}}
	case token.MUL:
		return []mutation{{arithmetic, token.QUO}}
	case token.QUO, token.REM:
		return []mutation{{arithmetic, token.MUL}}
	case token.LSS:
		return []mutation{{boundary, token.LEQ}, {negation, token.GEQ}}
	case token.LEQ:
		return []mutation{{boundary, token.LSS}, {negation, token.GTR}}
	case token.GTR:
		return []mutation{{boundary, token.GEQ}, {negation, token.LEQ}}
	case token.GEQ:
		return []mutation{{boundary, token.GTR}, {negation, token.LSS}}
	case token.EQL:
		return []mutation{{negation, token.NEQ}}
	case token.NEQ:
		return []mutation{{negation, token.EQL}}
	case token.INC:
		return []mutation{{incDec, token.DEC}}
	case token.DEC:
		return []mutation{{incDec, token.INC}}
	}
	return nil
}

// A goPackage is a package of Go files.
type goPackage struct {
	folder string // absolute
	name   string
	files  []*goFile
}

// A goFile is a file of a package.
type goFile struct {
	path   string // absolute
	text   string
	syntax *ast.File
	tokens *token.FileSet
	types  *types.Info
}

// loadPackage reads and type-checks the package in a folder, without its tests.
func loadPackage(ctx context.Context, folder string) (*goPackage, error) {
	loaded, err := packages.Load(&packages.Config{Context: ctx, Dir: folder,
		Mode: packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedSyntax |
			packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports}, ".")
	if err != nil {
		return nil, err
	}
	p := loaded[0]
	if len(p.Errors) > 0 {
		return nil, p.Errors[0]
	}
	if len(p.CompiledGoFiles) == 0 {
		return nil, fmt.Errorf("the folder %s has no Go files", folder)
	}
	result := &goPackage{folder: filepath.Dir(p.CompiledGoFiles[0]), name: p.Name}
	for i, path := range p.CompiledGoFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		result.files = append(result.files, &goFile{path: path, text: string(text),
			syntax: p.Syntax[i], tokens: p.Fset, types: p.TypesInfo})
	}
	return result, nil
}

// has reports whether the package has a file of this name, which is without a folder.
func (p *goPackage) has(name string) bool {
	return slices.ContainsFunc(p.files, func(f *goFile) bool {
		return filepath.Base(f.path) == name
	})
}

// position returns the position of p in the file. It ignores //line comments.
func (f *goFile) position(p token.Pos) token.Position { return f.tokens.PositionFor(p, false) }

// between returns the text between two positions.
func (f *goFile) between(from, to token.Pos) string {
	return f.text[f.position(from).Offset:f.position(to).Offset]
}

// function returns the name of the function that a position is in, with its receiver's type in
// front. Outside of functions, it returns "".
func (f *goFile) function(p token.Pos) string {
	for _, d := range f.syntax.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || p < d.Pos() || p > d.End() {
			continue
		}
		if d.Recv == nil {
			return d.Name.Name
		}
		t := d.Recv.List[0].Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		if generic, ok := t.(*ast.IndexExpr); ok {
			t = generic.X
		}
		if name, ok := t.(*ast.Ident); ok {
			return name.Name + "." + d.Name.Name
		}
		return d.Name.Name
	}
	return ""
}

// An outcome is what became of testing a mutant.
type outcome int

const (
	untested outcome = iota
	invalid          // it does not compile
	killed
	survived
	unconfirmed // it survived the tests that reach it, and all tests were not yet run against it
)

// A mutant is a program with one changed token.
type mutant struct {
	survivor
	outcome outcome

	number   int    // of its switch; 0 if the mutant needs a build of its own
	path     string // of its file
	offset   int    // of the token in the file
	from, to token.Token
}

// program returns the text of the mutant's file.
func (m *mutant) program() ([]byte, error) {
	text, err := os.ReadFile(m.path)
	if err != nil {
		return nil, err
	}
	return slices.Concat(text[:m.offset], []byte(m.to.String()),
		text[m.offset+len(m.from.String()):]), nil
}

// A rewriter makes one program of all mutants in scope. Each changed place in that program has a
// switch for each of its mutants.
type rewriter struct {
	inScope func(file string, line int) bool
	mutants []*mutant
	file    *goFile
}

// Environment variables of the programs. Without them, no mutant is active, and the program writes
// no file.
const (
	envActive  = "MUTANTS_ACTIVE"  // the number of the active mutant
	envReached = "MUTANTS_REACHED" // the name of a file for the numbers of the reached switches
	envCPU     = "MUTANTS_CPU"     // how many seconds of processor time the program may use
)

// memoryOfMutant is how many bytes of data each process of a test run may have. A mutant can make a
// loop endless that allocates.
const memoryOfMutant = 2 << 30

// switches is a file that is added to the package: a template with the package's name and the
// number of mutants. mutant_ is the switch of a mutant. The other functions replace operators.
const switches = `package %[1]s

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
)

func init() {
	if cpu, err := strconv.ParseUint(os.Getenv("` + envCPU + `"), 10, 64); err == nil {
		syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: cpu, Max: cpu})
		syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: %[3]d, Max: %[3]d})
	}
}

var (
	active_, _  = strconv.Atoi(os.Getenv("` + envActive + `"))
	reached_, _ = os.OpenFile(os.Getenv("` + envReached + `"),
		os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	written_    [1 + %[2]d]atomic.Bool
)

func mutant_(n int) bool {
	if reached_ != nil && !written_[n].Load() && !written_[n].Swap(true) {
		fmt.Fprintln(reached_, n)
	}
	return n == active_
}

type integer_ interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

type number_ interface{ integer_ | ~float32 | ~float64 }

func add_[T number_](n int, l, r T) T {
	if mutant_(n) {
		return l - r
	}
	return l + r
}

func subtract_[T number_](n int, l, r T) T {
	if mutant_(n) {
		return l + r
	}
	return l - r
}

func multiply_[T number_](n int, l, r T) T {
	if mutant_(n) {
		return l / r
	}
	return l * r
}

func divide_[T number_](n int, l, r T) T {
	if mutant_(n) {
		return l * r
	}
	return l / r
}

func remainder_[T integer_](n int, l, r T) T {
	if mutant_(n) {
		return l * r
	}
	return l %% r
}

func negative_[T number_](n int, x T) T {
	if mutant_(n) {
		return x
	}
	return -x
}
`

// switches returns the path and the text of the file that is added to a package.
func (p *goPackage) switches(mutants int) (path string, text []byte) {
	return filepath.Join(p.folder, "zz_switches.go"),
		fmt.Appendf(nil, switches, p.name, mutants, memoryOfMutant)
}

// functionOf returns the function of switches that replaces an arithmetic operator.
func functionOf(operator token.Token) string {
	return map[token.Token]string{token.ADD: "add_", token.SUB: "subtract_",
		token.MUL: "multiply_", token.QUO: "divide_", token.REM: "remainder_"}[operator]
}

// rewrite returns the files of the program with all mutants, by their paths.
func (r *rewriter) rewrite(p *goPackage) map[string][]byte {
	program := map[string][]byte{}
	for _, f := range p.files {
		r.file = f
		program[f.path] = []byte(f.between(f.syntax.FileStart, f.syntax.Name.Pos()) +
			r.node(f.syntax, f.syntax.Name.Pos(), f.syntax.FileEnd))
	}
	name, text := p.switches(len(r.mutants))
	program[name] = text
	return program
}

// node returns the text from one position to another, with switches in the nodes below n.
func (r *rewriter) node(n ast.Node, from, to token.Pos) string {
	var b strings.Builder
	ast.Inspect(n, func(below ast.Node) bool {
		if below == nil || below == n {
			return true
		}
		text, ok := r.replace(below)
		if ok {
			b.WriteString(r.file.between(from, below.Pos()) + text)
			from = below.End()
		}
		return !ok
	})
	return b.String() + r.file.between(from, to)
}

// expression returns the text of an expression, with switches.
func (r *rewriter) expression(e ast.Expr) string {
	if text, ok := r.replace(e); ok {
		return text
	}
	return r.node(e, e.Pos(), e.End())
}

// replace returns the text of a node with switches. It returns false if the node itself gets no
// switch; the nodes below it may get one.
func (r *rewriter) replace(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok == token.CONST {
			return r.unchanged(n), true
		}
	case *ast.ArrayType:
		if n.Len != nil {
			return "[" + r.unchanged(n.Len) + "]" + r.expression(n.Elt), true
		}
	case *ast.IncDecStmt:
		if r.isInScope(n.TokPos) {
			m := r.add(mutationsOf(n.Tok)[0], n.TokPos, n.Tok, true)
			x := r.expression(n.X)
			return fmt.Sprintf("func() { if mutant_(%d) { %s%s } else { %s%s } }()", m.number, x,
				m.to, x, m.from), true
		}
	case ast.Expr:
		if r.file.types.Types[n].Value != nil { // the value of a switch is not constant
			return r.unchanged(n), true
		}
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return r.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.SUB && r.isInScope(n.OpPos) {
				m := r.add(mutation{negative, token.ADD}, n.OpPos, n.Op, true)
				return r.call("negative_", m, n.X), true
			}
		}
	}
	return "", false
}

// unchanged returns the text of a node without switches. Its mutants need builds of their own.
func (r *rewriter) unchanged(n ast.Node) string {
	ast.Inspect(n, func(below ast.Node) bool {
		switch e := below.(type) {
		case *ast.BinaryExpr:
			for _, mutation := range mutationsOf(e.Op) {
				if r.isInScope(e.OpPos) {
					r.add(mutation, e.OpPos, e.Op, false)
				}
			}
		case *ast.UnaryExpr:
			if e.Op == token.SUB && r.isInScope(e.OpPos) {
				r.add(mutation{negative, token.ADD}, e.OpPos, e.Op, false)
			}
		}
		return true
	})
	return r.file.between(n.Pos(), n.End())
}

// binary returns the text of a binary expression with switches, or false as replace does.
func (r *rewriter) binary(e *ast.BinaryExpr) (string, bool) {
	mutations := mutationsOf(e.Op)
	if len(mutations) == 0 || !r.isInScope(e.OpPos) {
		return "", false
	}
	if mutations[0].name == arithmetic {
		t, ok := r.file.types.TypeOf(e).Underlying().(*types.Basic)
		switch {
		case !ok: // a type parameter, whose constraint may not fit that of a switch
			return r.unchanged(e), true
		case t.Info()&types.IsNumeric == 0: // a text, for which the other operators are invalid
			return "", false
		}
		m := r.add(mutations[0], e.OpPos, e.Op, true)
		return r.call(functionOf(e.Op), m, e.X, e.Y), true
	}
	var b strings.Builder
	b.WriteString("func() bool { ")
	left, right := r.bind(&b, "l_", e.X), r.bind(&b, "r_", e.Y)
	for _, mutation := range mutations {
		m := r.add(mutation, e.OpPos, e.Op, true)
		fmt.Fprintf(&b, "if mutant_(%d) { return %s %s %s }; ", m.number, left, m.to, right)
	}
	fmt.Fprintf(&b, "return %s %s %s }()", left, e.Op, right)
	return b.String(), true
}

// bind writes a statement that evaluates an operand, and returns the name of the result. For a
// constant, which may have no type of its own, it returns the text of the constant.
func (r *rewriter) bind(b *strings.Builder, name string, e ast.Expr) string {
	text := r.expression(e)
	if t := r.file.types.Types[e]; t.Value != nil || t.IsNil() {
		return text
	}
	fmt.Fprintf(b, "%s := %s; ", name, text)
	return name
}

// call returns a call of a function of switches.
func (r *rewriter) call(function string, m *mutant, arguments ...ast.Expr) string {
	text := fmt.Sprintf("%s(%d", function, m.number)
	for _, a := range arguments {
		text += ", " + r.expression(a)
	}
	return text + ")"
}

// isInScope reports whether a token is to be changed.
func (r *rewriter) isInScope(token token.Pos) bool {
	return r.inScope(filepath.Base(r.file.path), r.file.position(token).Line)
}

// add adds the mutant that has another operator at a position.
func (r *rewriter) add(change mutation, pos token.Pos, from token.Token, hasSwitch bool) *mutant {
	p := r.file.position(pos)
	start := p.Offset - (p.Column - 1)
	length := strings.IndexByte(r.file.text[start:]+"\n", '\n')
	line := r.file.text[start : start+length]
	after := p.Column - 1 + len(from.String())
	line = line[:p.Column-1] + "{{" + from.String() + "}}" + line[after:]
	m := &mutant{path: r.file.path, offset: p.Offset, from: from, to: change.to,
		survivor: survivor{File: filepath.Base(r.file.path), Func: r.file.function(pos),
			Mutant: change.name, Line: strings.TrimSpace(line), at: p.Line}}
	r.mutants = append(r.mutants, m)
	if hasSwitch {
		m.number = len(r.mutants)
	}
	return m
}
