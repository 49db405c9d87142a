package policies

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// reads is what policies read of the input: members by name, below each the same. A nil reads is
// all that there is.
type reads map[string]reads

// readsOf is what the rules of modules read of the input.
func readsOf(modules map[string]*ast.Module) reads {
	all := reads{}
	for _, m := range modules {
		for _, r := range m.Rules {
			all = all.of(r)
		}
	}
	return all
}

// of is r with what a part of a policy reads, too.
func (r reads) of(part any) reads {
	ast.WalkRefs(part, func(ref ast.Ref) bool {
		if ref.HasPrefix(ast.InputRootRef) {
			r = r.with(ref[1:])
		}
		return false
	})
	ast.WalkTerms(part, func(t *ast.Term) bool {
		// not the head of a reference, which is no term of its own
		if v, ok := t.Value.(ast.Var); ok && (v.Equal(ast.InputRootDocument.Value) ||
			v.Equal(ast.DefaultRootDocument.Value)) {
			r = nil
		}
		_, inside := t.Value.(ast.Ref)
		return inside
	})
	return r
}

// with is r with what a reference reads, too.
func (r reads) with(path ast.Ref) reads {
	if r == nil || len(path) == 0 {
		return nil
	}
	name, ok := path[0].Value.(ast.String)
	if !ok {
		return nil
	}
	below, known := r[string(name)]
	if !known {
		below = reads{}
	}
	r[string(name)] = below.with(path[1:])
	return r
}

// wants says whether a member is read, and what below it.
func (r reads) wants(name string) (below reads, ok bool) {
	if r == nil {
		return nil, true
	}
	below, ok = r[name]
	return below, ok
}

// below is what is read below a member that may not be read at all.
func (r reads) below(name string) reads {
	below, ok := r.wants(name)
	if !ok {
		return reads{}
	}
	return below
}

// inputs are the members of the input: those of design.md 9.
var inputs = [...]string{"direction", "kind", "method", "server", "name", "params", "result",
	"error", "request", "item", "items", "session", "principal", "roots", "findings", "time"}

// input is what policies are asked about, of which only what r reads is built.
func (s *Stage) input(m *mcp.Message, sess *session, b beside, r reads) ast.Value {
	return object(r, inputs[:], func(name string, r reads) ast.Value {
		switch name {
		case "direction":
			return text(m.Direction.String())
		case "kind":
			return text(m.Kind.String())
		case "method":
			return text(m.Method)
		case "server":
			return text(m.Server)
		case "name":
			return text(m.Name)
		case "params", "result", "error":
			if b.bodyless || name != bodyOf[m.Kind] {
				return nil
			}
			if b.listed != nil {
				meth, _ := mcp.LookupMethod(m.Method)
				return ast.NewObject([2]*ast.Term{ast.StringTerm(meth.ItemsPointer[1:]),
					ast.NewTerm(b.listed)})
			}
			return valueOf(m.Body(), r)
		case "request":
			if m.Request == nil {
				return nil
			}
			return valueOf(m.Request.Body(), r)
		case "item":
			return sess.item(m)
		case "items":
			if b.listed != nil {
				return b.listed
			}
			return valueOf(items(m), r)
		case "session":
			return sess.value(m, s.now(), r)
		case "principal":
			return object(r, []string{"subject", "claims"}, func(name string, _ reads) ast.Value {
				if name == "subject" {
					return ast.String(m.Principal)
				}
				return ast.NewObject()
			})
		case "roots":
			return valueOf(sess.rootsOf(), r)
		case "findings":
			return findings(b.findings)
		case "time":
			return ast.String(b.at.UTC().Format(time.RFC3339Nano))
		}
		return nil
	})
}

// bodyOf is what the body of a message is called.
var bodyOf = map[mcp.Kind]string{mcp.Request: "params", mcp.Notification: "params",
	mcp.Response: "result", mcp.Error: "error"}

// text is a member, or none.
func text(v string) ast.Value {
	if v == "" {
		return nil
	}
	return ast.String(v)
}

// object has those of its members that are read. value may answer nil: there is none.
func object(r reads, names []string, value func(name string, below reads) ast.Value) ast.Value {
	var members [][2]*ast.Term
	for _, name := range names {
		below, ok := r.wants(name)
		if !ok {
			continue
		}
		if v := value(name, below); v != nil {
			members = append(members, [2]*ast.Term{ast.StringTerm(name), ast.NewTerm(v)})
		}
	}
	return ast.NewObject(members...)
}

func findings(found []pipeline.Finding) ast.Value {
	terms := make([]*ast.Term, len(found))
	for i, f := range found {
		terms[i] = ast.ObjectTerm([2]*ast.Term{ast.StringTerm("type"), ast.StringTerm(f.Type)},
			[2]*ast.Term{ast.StringTerm("pointer"), ast.StringTerm(f.Pointer)})
	}
	return ast.NewArray(terms...)
}

// items are the definitions that a list holds.
func items(m *mcp.Message) []byte {
	meth, known := mcp.LookupMethod(m.Method)
	if !known || meth.ItemsPointer == "" || m.Kind != mcp.Response {
		return nil
	}
	raw, _ := m.Get(meth.ItemsPointer)
	return raw
}

// valueOf is JSON as a value, with only what is read of it; none of none. It was read strictly
// before: what fails here is a fault of ours.
func valueOf(raw []byte, r reads) ast.Value {
	if raw == nil {
		return nil
	}
	// of a Buffer it copies nothing
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	v, err := decode(d, r)
	if err != nil {
		panic(fmt.Sprintf("policies: a message's own JSON: %v", err))
	}
	return v
}

func decode(d *jsontext.Decoder, r reads) (ast.Value, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case 'n':
		return ast.NullValue, nil
	case 't', 'f':
		return ast.Boolean(t.Bool()), nil
	case '"':
		return ast.String(t.String()), nil
	case '0':
		return shownNumber(t.String()), nil
	case '[':
		var items []*ast.Term
		for d.PeekKind() != ']' {
			v, err := decode(d, nil)
			if err != nil {
				return nil, err
			}
			items = append(items, ast.NewTerm(v))
		}
		_, err := d.ReadToken()
		return ast.NewArray(items...), err
	}
	var members [][2]*ast.Term
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		below, ok := r.wants(key)
		if !ok {
			if err := d.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		v, err := decode(d, below)
		if err != nil {
			return nil, err
		}
		members = append(members, [2]*ast.Term{ast.StringTerm(key), ast.NewTerm(v)})
	}
	_, err = d.ReadToken()
	return ast.NewObject(members...), err
}

// maxNumber is how long a number is at most that policies are shown as it is written. It has room
// for all that a double can be.
const maxNumber = 400 // bytes

// shownNumber is a number as policies are shown it: as it is written, unless that is beyond every
// double. Servers take that for infinity, or for 0, and OPA computes with all its digits: it would
// be busy with 1e99999999 for as long as it is let, and panics of larger ones.
func shownNumber(text string) ast.Number {
	if len(text) <= 30 && !strings.ContainsAny(text, "eE") {
		return ast.Number(text)
	}
	x, _ := strconv.ParseFloat(text, 64) // the error is that it is too large, and x then infinite
	switch {
	case math.IsInf(x, 1):
		return "1e400"
	case math.IsInf(x, -1):
		return "-1e400"
	case x == 0:
		return "0"
	case len(text) > maxNumber:
		return ast.Number(strconv.FormatFloat(x, 'g', -1, 64))
	}
	return ast.Number(text)
}
