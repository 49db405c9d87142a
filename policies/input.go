package policies

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
)

// readSet is the set of input members that policies read: names, and for each name the members
// below it. A nil readSet means all members.
type readSet map[string]readSet

// allReads returns the members of the input that are read by the rules in the modules.
func allReads(modules map[string]*ast.Module) readSet {
	all := readSet{}
	for _, m := range modules {
		for _, r := range m.Rules {
			all = all.addPart(r)
		}
	}
	return all
}

// addPart returns r together with the members that a part of a policy reads.
func (r readSet) addPart(part any) readSet {
	ast.WalkRefs(part, func(ref ast.Ref) bool {
		if ref.HasPrefix(ast.InputRootRef) {
			r = r.addRef(ref[1:])
		}
		return false
	})
	ast.WalkTerms(part, func(t *ast.Term) bool {
		// the variable itself, not a reference that starts with it
		if v, ok := t.Value.(ast.Var); ok && (v.Equal(ast.InputRootDocument.Value) ||
			v.Equal(ast.DefaultRootDocument.Value)) {
			r = nil
		}
		_, inside := t.Value.(ast.Ref)
		return inside
	})
	return r
}

// addRef returns r together with the member of the input at path.
func (r readSet) addRef(path ast.Ref) readSet {
	if r == nil || len(path) == 0 {
		return nil
	}
	name, ok := path[0].Value.(ast.String)
	if !ok {
		return nil
	}
	below, known := r[string(name)]
	if !known {
		below = readSet{}
	}
	r[string(name)] = below.addRef(path[1:])
	return r
}

// wants reports whether a member is read, and returns the members that are read below it.
func (r readSet) wants(name string) (below readSet, ok bool) {
	if r == nil {
		return nil, true
	}
	below, ok = r[name]
	return below, ok
}

// below returns the members that are read below a member. The set is empty when the member itself
// is not read.
func (r readSet) below(name string) readSet {
	below, ok := r.wants(name)
	if !ok {
		return readSet{}
	}
	return below
}

// inputMembers are the members of the input, as in input.schema.json.
var inputMembers = [...]string{"direction", "kind", "method", "server", "name", "tools", "params",
	"result", "error", "request", "item", "items", "schema", "session", "principal", "roots",
	"findings", "time"}

// input returns the input for a message, with only the members in r.
func (s *Stage) input(m *mcp.Message, sess *session, mc messageContext, r readSet) ast.Value {
	return object(r, inputMembers[:], func(name string, r readSet) ast.Value {
		switch name {
		case "direction":
			return optionalString(m.Direction.String())
		case "kind":
			return optionalString(m.Kind.String())
		case "method":
			return optionalString(m.Method)
		case "server":
			return optionalString(m.Server)
		case "name":
			return optionalString(m.Name)
		case "tools":
			names, known := mc.tools, true
			if names == nil {
				names, known = sess.tools(m)
			}
			if !known {
				return nil
			}
			return stringArray(names)
		case "params", "result", "error":
			if mc.bodyMissing || name != bodyMember[m.Kind] {
				return nil
			}
			if mc.items != nil {
				meth, _ := mcp.LookupMethod(m.Method)
				return ast.NewObject([2]*ast.Term{ast.StringTerm(meth.ItemsPointer[1:]),
					ast.NewTerm(mc.items)})
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
			if mc.items != nil {
				return mc.items
			}
			return valueOf(listedItems(m), r)
		case "schema":
			if mc.bodyMissing {
				return nil
			}
			return sess.schemaValue(m)
		case "session":
			return sess.inputValue(m, mc, s.principalLabels(m), r)
		case "principal":
			return principalValue(m.Principal, r)
		case "roots":
			return valueOf(sess.declaredRoots(), r)
		case "findings":
			return findings(mc.findings)
		case "time":
			return ast.String(mc.now.UTC().Format(time.RFC3339Nano))
		}
		return nil
	})
}

// principalMembers are the members of input.principal.
var principalMembers = [...]string{"id", "method", "issuer", "subject", "client", "scopes",
	"groups", "claims"}

// principalValue returns input.principal, with only the members in r. All members are present for
// the local user, too: its texts, lists and claims are empty.
func principalValue(p *identity.Principal, r readSet) ast.Value {
	return object(r, principalMembers[:], func(name string, below readSet) ast.Value {
		switch name {
		case "id":
			return ast.String(p.ID())
		case "method":
			return ast.String(p.Method())
		case "issuer":
			return ast.String(p.Issuer())
		case "subject": // of a principal in a test case, perhaps only the ID is known
			return ast.String(cmp.Or(p.Subject(), p.ID()))
		case "client":
			return ast.String(p.Client())
		case "scopes":
			return stringArray(p.Scopes())
		case "groups":
			return stringArray(p.Groups())
		}
		if claims := valueOf(p.Claims(), below); claims != nil {
			return claims
		}
		return ast.NewObject()
	})
}

// stringArray returns texts as an array.
func stringArray(texts []string) ast.Value {
	terms := make([]*ast.Term, len(texts))
	for i, text := range texts {
		terms[i] = ast.StringTerm(text)
	}
	return ast.NewArray(terms...)
}

// bodyMember is the member of the input that has a message's body, by the message's kind.
var bodyMember = map[mcp.Kind]string{mcp.Request: "params", mcp.Notification: "params",
	mcp.Response: "result", mcp.Error: "error"}

// optionalString returns a string as a value. For "" it returns nil, so that the member is absent.
func optionalString(v string) ast.Value {
	if v == "" {
		return nil
	}
	return ast.String(v)
}

// object returns an object with the named members that r contains. A member is absent when value
// returns nil for it.
func object(r readSet, names []string, value func(name string, below readSet) ast.Value) ast.Value {
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

// findings returns the findings of earlier stages as an array.
func findings(found []pipeline.Finding) ast.Value {
	terms := make([]*ast.Term, len(found))
	for i, f := range found {
		terms[i] = ast.ObjectTerm([2]*ast.Term{ast.StringTerm("type"), ast.StringTerm(f.Type)},
			[2]*ast.Term{ast.StringTerm("pointer"), ast.StringTerm(f.Pointer)})
	}
	return ast.NewArray(terms...)
}

// listedItems returns the definitions in a list response, as JSON. It returns nil for other
// messages.
func listedItems(m *mcp.Message) []byte {
	meth, known := mcp.LookupMethod(m.Method)
	if !known || meth.ItemsPointer == "" || m.Kind != mcp.Response {
		return nil
	}
	raw, _ := m.Get(meth.ItemsPointer)
	return raw
}

// valueOf returns JSON as a Rego value, with only the members in r. It returns nil when raw is nil,
// and panics on invalid JSON, which is a bug: the JSON was parsed strictly before.
func valueOf(raw []byte, r readSet) ast.Value {
	if raw == nil {
		return nil
	}
	// the decoder does not copy the contents of a bytes.Buffer
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	v, err := decode(d, r)
	if err != nil {
		panic(fmt.Sprintf("policies: a message's own JSON: %v", err))
	}
	return v
}

// decode reads the next JSON value, with only the members in r.
func decode(d *jsontext.Decoder, r readSet) (ast.Value, error) {
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
		return inputNumber(t.String()), nil
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

// maxNumberBytes bounds the text of a number in the input. The shortest text of every finite
// float64 fits, even without an exponent.
const maxNumberBytes = 400

// inputNumber returns a number for the input. If the number is beyond the range of float64 or very
// long, it returns a replacement. Servers read numbers beyond that range as infinity or 0. OPA
// computes with all digits: with 1e99999999 it would compute until the deadline, and with larger
// exponents it panics.
func inputNumber(text string) ast.Number {
	// a short number without an exponent is within the range of float64
	if len(text) <= 30 && !strings.ContainsAny(text, "eE") {
		return ast.Number(text)
	}
	x, _ := strconv.ParseFloat(text, 64) // out of range is the only error; x is then infinite
	switch {
	case math.IsInf(x, 1):
		return "1e400"
	case math.IsInf(x, -1):
		return "-1e400"
	case x == 0:
		return "0"
	case len(text) > maxNumberBytes:
		return ast.Number(strconv.FormatFloat(x, 'g', -1, 64))
	}
	return ast.Number(text)
}
