package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestRecordActionsAreComplete compares recordActions with the actions in the source code of
// Gatekit: --action refuses an action that is missing there.
func TestRecordActionsAreComplete(t *testing.T) {
	found := map[string]string{} // the position of an action, by the action
	for _, folder := range []string{"audit", "cmd", "core", "plugins", "policies",
		"transport/credentials"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder),
			func(file string, _ fs.DirEntry, err error) error {
				if err != nil || filepath.Ext(file) != ".go" ||
					strings.HasSuffix(file, "_test.go") {
					return err
				}
				files := token.NewFileSet()
				parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
				if err == nil {
					for action, at := range actionsIn(parsed) {
						found[action] = files.Position(at).String()
					}
				}
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	for action, at := range found {
		if !slices.Contains(recordActions, action) {
			t.Errorf("%s: the action %q is not in recordActions", at, action)
		}
	}
	for _, action := range recordActions {
		if _, ok := found[strings.TrimPrefix(action, "would_")]; !ok {
			t.Errorf("no record has the action %q of recordActions", action)
		}
	}
}

// actionsIn returns the actions of records in a file, with their positions. They are arguments of
// the functions that write a record, and values of fields and variables. Package credentials has
// constants for them.
func actionsIn(file *ast.File) map[string]token.Pos {
	found := map[string]token.Pos{}
	add := func(e ast.Expr) (isText bool) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return false
		}
		if action, err := strconv.Unquote(literal.Value); err == nil && action != "" {
			found[action] = literal.Pos()
		}
		return true
	}
	name := func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.Ident:
			return e.Name
		case *ast.SelectorExpr:
			return e.Sel.Name
		}
		return ""
	}
	holdsActions := slices.Contains([]string{"audit", "pipeline", "proxy"}, file.Name.Name)
	hasConstants := file.Name.Name == "credentials"
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if hasConstants && strings.HasPrefix(n.Names[0].Name, "Action") && len(n.Values) > 0 {
				add(n.Values[0])
			}
		case *ast.CallExpr:
			if hasConstants {
				break
			}
			switch name(n.Fun) {
			case "Consume", "RecordDecision", "RecordEvent", "decide", "event", "recordAllowance",
				"recordApproval", "recordEvent", "recordRange", "recordRevocation",
				"recordStop", "reportEvent", "serverEvent":
				for _, arg := range n.Args {
					if add(arg) { // the first text is the action
						break
					}
				}
			}
		case *ast.KeyValueExpr:
			if holdsActions && name(n.Key) == "Action" {
				add(n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if holdsActions && strings.EqualFold(name(left), "action") &&
					len(n.Lhs) == len(n.Rhs) {
					add(n.Rhs[i])
				}
			}
		}
		return true
	})
	return found
}
