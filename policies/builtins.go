package policies

import (
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"
)

// Builtin is a built-in function that policies have in addition to Rego's. It converts to OPA's
// tester.Builtin.
type Builtin struct {
	Decl *ast.Builtin
	Func func(*rego.Rego)
}

// Builtins returns the built-in functions that policies have in addition to Rego's. They parse text
// more reliably than Rego can.
//
//   - gatekit.form.score({"message", "fields"}) returns how likely a form asks for a secret: the
//     logarithm of the odds, times 100. fields is an array of {"name", "title", "description",
//     "type", "format"}.
//   - gatekit.path.fault(path, {"roots", "base", "home", "relative", "links"}) returns why the path
//     leaves the roots, or "".
//   - gatekit.path.disguise(path) returns the problem if the path hides a `../` or a NUL in an
//     encoded form, and "" otherwise.
//   - gatekit.path.disguised(value) reports whether any string or member name in a value may hide
//     a `../` or a NUL. When it returns false, gatekit.path.disguise returns "" for each of these
//     strings and names.
//   - gatekit.path.local(text, limits) reports whether a text is a path of this machine, whatever
//     the name of its argument is: it looks like one, or it leads to an existing file outside the
//     roots.
//   - gatekit.path.possible(text) reports whether a text is a path if its argument takes paths.
//   - gatekit.text.words(text) returns the words of a text in lower case, with one blank between
//     them. Latin letters have no accents, and pass_word and passWord are two words.
//   - gatekit.uri.parse(uri) returns an object with scheme, host, port, user, path, punycode,
//     imitation, special and fault.
//   - gatekit.uri.readings(uri) returns every URI that a server may take this URI for, in lower
//     case. These are the URI as it is written and its decodings, each as it is, and with the
//     segments "." and ".." resolved.
func Builtins() []Builtin {
	settings := types.NewObject([]*types.StaticProperty{
		types.NewStaticProperty("roots", types.NewArray(nil, types.S)),
		types.NewStaticProperty("base", types.S),
		types.NewStaticProperty("home", types.S),
		types.NewStaticProperty("relative", types.B),
		types.NewStaticProperty("links", types.B),
	}, nil)
	field := types.NewObject([]*types.StaticProperty{
		types.NewStaticProperty("name", types.S),
		types.NewStaticProperty("title", types.S),
		types.NewStaticProperty("description", types.S),
		types.NewStaticProperty("type", types.S),
		types.NewStaticProperty("format", types.S),
	}, nil)
	form := types.NewObject([]*types.StaticProperty{
		types.NewStaticProperty("message", types.S),
		types.NewStaticProperty("fields", types.NewArray(nil, field)),
	}, nil)
	return []Builtin{
		uncachedBuiltin("gatekit.form.score", types.NewFunction(types.Args(form), types.N),
			func(args []*ast.Term) (ast.Value, error) {
				var f askingForm
				if err := ast.As(args[0].Value, &f); err != nil {
					return nil, fmt.Errorf("gatekit.form.score: %w", err)
				}
				return ast.InterfaceToValue(defaultAskingModel().score(f))
			}),
		builtin("gatekit.path.fault", types.NewFunction(types.Args(types.S, settings), types.S),
			func(args []*ast.Term) (ast.Value, error) {
				text, ok := args[0].Value.(ast.String)
				if !ok {
					return nil, errors.New("gatekit.path.fault: the path is not a string")
				}
				var b pathBounds
				if err := ast.As(args[1].Value, &b); err != nil {
					return nil, fmt.Errorf("gatekit.path.fault: %w", err)
				}
				return ast.String(b.problem(string(text))), nil
			}),
		builtin("gatekit.path.local", types.NewFunction(types.Args(types.S, settings), types.B),
			func(args []*ast.Term) (ast.Value, error) {
				text, ok := args[0].Value.(ast.String)
				if !ok {
					return nil, errors.New("gatekit.path.local: the text is not a string")
				}
				var b pathBounds
				if err := ast.As(args[1].Value, &b); err != nil {
					return nil, fmt.Errorf("gatekit.path.local: %w", err)
				}
				return ast.Boolean(b.isLocalPath(string(text))), nil
			}),
		uncachedBuiltin("gatekit.path.possible", types.NewFunction(types.Args(types.S), types.B),
			func(args []*ast.Term) (ast.Value, error) {
				text, ok := args[0].Value.(ast.String)
				if !ok {
					return nil, errors.New("gatekit.path.possible: the text is not a string")
				}
				return ast.Boolean(mayBePath(string(text))), nil
			}),
		uncachedBuiltin("gatekit.path.disguise", types.NewFunction(types.Args(types.S), types.S),
			func(args []*ast.Term) (ast.Value, error) {
				text, ok := args[0].Value.(ast.String)
				if !ok {
					return nil, errors.New("gatekit.path.disguise: the path is not a string")
				}
				return ast.String(hiddenTraversal(string(text))), nil
			}),
		uncachedBuiltin("gatekit.path.disguised", types.NewFunction(types.Args(types.A), types.B),
			func(args []*ast.Term) (ast.Value, error) {
				return ast.Boolean(anyTextMayHideTraversal(args[0])), nil
			}),
		builtin("gatekit.text.words", types.NewFunction(types.Args(types.S), types.S),
			func(args []*ast.Term) (ast.Value, error) {
				text, ok := args[0].Value.(ast.String)
				if !ok {
					return nil, errors.New("gatekit.text.words: the text is not a string")
				}
				return ast.String(plainWords(string(text))), nil
			}),
		builtin("gatekit.uri.parse", types.NewFunction(types.Args(types.S),
			types.NewObject([]*types.StaticProperty{
				types.NewStaticProperty("scheme", types.S), types.NewStaticProperty("host",
					types.S), types.NewStaticProperty("port", types.S),
				types.NewStaticProperty("user", types.B), types.NewStaticProperty("path", types.S),
				types.NewStaticProperty("punycode", types.B),
				types.NewStaticProperty("imitation", types.S),
				types.NewStaticProperty("special", types.S), types.NewStaticProperty("fault",
					types.S),
			}, nil)), func(args []*ast.Term) (ast.Value, error) {
			text, ok := args[0].Value.(ast.String)
			if !ok {
				return nil, errors.New("gatekit.uri.parse: the URI is not a string")
			}
			return ast.InterfaceToValue(parseURI(string(text)))
		}),
		builtin("gatekit.uri.readings", types.NewFunction(types.Args(types.S), types.NewArray(nil,
			types.S)), func(args []*ast.Term) (ast.Value, error) {
			text, ok := args[0].Value.(ast.String)
			if !ok {
				return nil, errors.New("gatekit.uri.readings: the URI is not a string")
			}
			all, err := uriSpellings(string(text))
			if err != nil {
				return nil, fmt.Errorf("gatekit.uri.readings: %w", err)
			}
			return ast.InterfaceToValue(all)
		}),
	}
}

// builtin returns a function whose results OPA caches within one evaluation. The results therefore
// stay the same during the evaluation, even when files change.
func builtin(name string, decl *types.Function, f func([]*ast.Term) (ast.Value, error)) Builtin {
	return newBuiltin(true, name, decl, f)
}

// uncachedBuiltin returns a function whose results OPA does not cache: they depend only on the
// arguments, and computing them costs less than caching.
func uncachedBuiltin(name string, decl *types.Function, f func([]*ast.Term) (ast.Value,
	error)) Builtin {
	return newBuiltin(false, name, decl, f)
}

func newBuiltin(memoize bool, name string, decl *types.Function, f func([]*ast.Term) (ast.Value,
	error)) Builtin {
	return Builtin{
		Decl: &ast.Builtin{Name: name, Decl: decl},
		Func: rego.FunctionDyn(&rego.Function{Name: name, Decl: decl, Memoize: memoize},
			func(_ rego.BuiltinContext, args []*ast.Term) (*ast.Term, error) {
				v, err := f(args)
				if err != nil {
					return nil, err
				}
				return ast.NewTerm(v), nil
			}),
	}
}
