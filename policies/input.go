package policies

import (
	"bytes"
	"fmt"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// reads is what policies read of the input: members by name, below each the same. A nil reads is all that there is.
type reads map[string]reads

// readsOf is what the rules of modules read of the input.
func readsOf(modules map[string]*ast.Module) reads {
	all := reads{}
	for _, m := range modules {
		ast.WalkRefs(m, func(r ast.Ref) bool {
			if r.HasPrefix(ast.InputRootRef) {
				all = all.with(r[1:])
			}
			return false
		})
		ast.WalkTerms(m, func(t *ast.Term) bool {
			if v, ok := t.Value.(ast.Var); ok && v.Equal(ast.InputRootDocument.Value) { // not the head of a reference, which is no term of its own
				all = nil
			}
			_, inside := t.Value.(ast.Ref)
			return inside
		})
	}
	return all
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

// field is one member of the input.
type field struct {
	name  string
	value func(r reads) ast.Value // nil when there is none
}

// input is what policies are asked about: the fields of design.md 9, of which only what r reads is built.
func (s *Stage) input(m *mcp.Message, sess *session, b beside, r reads) ast.Value {
	text := func(v string) func(reads) ast.Value {
		return func(reads) ast.Value {
			if v == "" {
				return nil
			}
			return ast.String(v)
		}
	}
	raw := func(b []byte) func(reads) ast.Value {
		return func(r reads) ast.Value {
			if b == nil {
				return nil
			}
			return valueOf(b, r)
		}
	}
	var params, result, fault, request []byte
	switch {
	case b.bodyless:
	case m.Kind == mcp.Request, m.Kind == mcp.Notification:
		params = m.Body()
	case m.Kind == mcp.Response:
		result = m.Body()
	case m.Kind == mcp.Error:
		fault = m.Body()
	}
	if m.Request != nil {
		request = m.Request.Body()
	}
	return object(r, []field{
		{"direction", text(m.To.String())},
		{"kind", text(m.Kind.String())},
		{"method", text(m.Method)},
		{"server", text(m.Server)},
		{"name", text(m.Name)},
		{"params", raw(params)},
		{"result", raw(result)},
		{"error", raw(fault)},
		{"request", raw(request)},
		{"item", raw(sess.item(m))},
		{"items", raw(items(m))},
		{"session", func(r reads) ast.Value { return sess.value(m, s.now(), r) }},
		{"principal", func(r reads) ast.Value {
			return object(r, []field{{"subject", func(reads) ast.Value { return ast.String(m.Principal) }}, {"claims", func(reads) ast.Value { return ast.NewObject() }}})
		}},
		{"roots", raw(sess.rootsOf())},
		{"findings", func(reads) ast.Value { return findings(b.findings) }},
		{"time", func(reads) ast.Value { return ast.String(b.at.UTC().Format(time.RFC3339Nano)) }},
	})
}

func object(r reads, fields []field) ast.Value {
	var members [][2]*ast.Term
	for _, f := range fields {
		below, ok := r.wants(f.name)
		if !ok {
			continue
		}
		if v := f.value(below); v != nil {
			members = append(members, [2]*ast.Term{ast.StringTerm(f.name), ast.NewTerm(v)})
		}
	}
	return ast.NewObject(members...)
}

func findings(found []pipeline.Finding) ast.Value {
	terms := make([]*ast.Term, len(found))
	for i, f := range found {
		terms[i] = ast.ObjectTerm([2]*ast.Term{ast.StringTerm("type"), ast.StringTerm(f.Type)}, [2]*ast.Term{ast.StringTerm("pointer"), ast.StringTerm(f.Pointer)})
	}
	return ast.NewArray(terms...)
}

// items are the definitions that a list holds.
func items(m *mcp.Message) []byte {
	meth, known := mcp.Lookup(m.Method)
	if !known || meth.ItemsAt == "" || m.Kind != mcp.Response {
		return nil
	}
	raw, _ := m.Get(meth.ItemsAt)
	return raw
}

// valueOf is JSON as a value, with only what is read of it. It was read strictly before: what fails here is a fault of ours.
func valueOf(raw []byte, r reads) ast.Value {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true))
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
		return ast.Number(t.String()), nil
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
