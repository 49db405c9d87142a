package policies

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gatekit/core/mcp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Bounds of the check against a tool's schemas. A server chooses the schema and the result, and a
// client the arguments, so a check must not take long for any of them.
const (
	maxSchemaBytes     = 256 << 10 // JSON size of one schema
	maxSchemaDepth     = 64
	maxSchemaNodes     = 20_000  // subschemas of one schema
	maxCheckedBytes    = 1 << 20 // JSON size of the arguments or the result
	maxCheckSteps      = 200_000 // subschemas that are compared with one value
	maxSchemaProblems  = 5       // that input.schema has
	maxProblemBytes    = 200
	maxCachedSchemas   = 8 << 20 // JSON size of the definitions whose schemas are kept compiled
	maxShorteningDepth = 8       // levels of a value whose long strings are replaced
)

// schemaCache keeps compiled schemas by the digest of their tool's definition. When it is full, it
// forgets all of them. Its zero value is ready to use.
type schemaCache struct {
	mu    sync.Mutex
	tools map[[sha256.Size]byte]*toolSchemas
	bytes int
}

// toolSchemas are the compiled schemas of one tool.
type toolSchemas struct{ input, output *toolSchema }

// of returns the compiled schemas of a tool's definition, as JSON with its digest.
func (c *schemaCache) of(definition []byte, key [sha256.Size]byte) *toolSchemas {
	c.mu.Lock()
	known := c.tools[key]
	c.mu.Unlock()
	if known != nil {
		return known
	}
	compiled := &toolSchemas{}
	tool := mcp.NewResponse("", definition)
	if raw, ok := tool.Get("/inputSchema"); ok {
		compiled.input = compileSchema(raw)
	}
	if raw, ok := tool.Get("/outputSchema"); ok {
		compiled.output = compileSchema(raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes += len(definition); c.tools == nil || c.bytes > maxCachedSchemas {
		c.tools, c.bytes = map[[sha256.Size]byte]*toolSchemas{}, len(definition)
	}
	c.tools[key] = compiled
	return compiled
}

// toolSchema is one compiled schema.
type toolSchema struct {
	unusable string          // the reason why the schema cannot be compiled, or ""
	declared map[string]bool // the properties, if the schema neither allows nor forbids others

	// replaces strings in a value whose JSON has at least longStringBytes bytes; "" if the schema
	// compares the contents of strings of any length
	longString      string
	longStringBytes int

	mu     sync.Mutex // held during a check, because steps belongs to the compiled schema
	schema *jsonschema.Schema
	steps  *int // subschemas that the current check has left
}

// stepFormat is the format that every subschema gets. The validator calls it for each comparison of
// a value with a subschema, so that a check ends after maxCheckSteps. The formats of the schema
// itself are not checked: they are annotations.
const stepFormat = "gatekit-step"

// errTooManySteps is the panic value that ends a check.
var errTooManySteps = errors.New("the check takes too many steps")

// compileSchema compiles a schema. It never loads another document.
func compileSchema(raw []byte) *toolSchema {
	s := &toolSchema{steps: new(int)}
	if s.unusable = s.compile(raw); s.unusable != "" {
		s.schema, s.declared = nil, nil
	}
	return s
}

func (s *toolSchema) compile(raw []byte) (unusable string) {
	if len(raw) > maxSchemaBytes {
		return "the schema is too large"
	}
	var doc any // with float64, because numbers with large exponents would use all memory
	if err := json.Unmarshal(raw, &doc); err != nil {
		return "the schema has a number that is too large"
	}
	w := schemaWalk{schemas: map[string]bool{}}
	if w.schema(doc, "", 0); w.problem != "" {
		return w.problem
	}
	for _, ref := range w.refs {
		if pointer, err := url.PathUnescape(ref[1:]); err != nil || strings.HasPrefix(pointer,
			"/") && !w.schemas[pointer] {
			return "a reference in the schema leads to no schema"
		}
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noDocuments{})
	c.UseRegexpEngine(compilePattern)
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: stepFormat, Validate: func(any) error {
		if *s.steps--; *s.steps < 0 {
			panic(errTooManySteps)
		}
		return nil
	}})
	const name = "gatekit:tool"
	if err := c.AddResource(name, doc); err != nil {
		return "the schema is no JSON Schema"
	}
	*s.steps = maxCheckSteps // the compiler may check values in the schema
	var err error
	if s.schema, err = c.Compile(name); err != nil {
		return "the schema is no JSON Schema, or refers to another document"
	}
	if root, ok := doc.(map[string]any); ok {
		s.declared = onlyDeclared(root)
	}
	if longest, ok := longestCompared(doc, false); ok && longest < maxCheckedBytes {
		s.longString = strings.Repeat("x", longest+1)
		s.longStringBytes = max(1<<10, maxCharacterBytes*(longest+1)+len(`""`))
	}
	return ""
}

// maxCharacterBytes is the length of the longest JSON of one character: \ud83d\ude00.
const maxCharacterBytes = 12

// longestCompared returns the largest number of characters that a schema distinguishes in strings:
// it treats all longer strings the same. ok is false if there is no such number. constant is set if
// the schema is below enum or const.
func longestCompared(schema any, constant bool) (longest int, ok bool) {
	include := func(n int, bounded bool) bool {
		longest = max(longest, n)
		return bounded
	}
	switch v := schema.(type) {
	case string:
		return len(v), true
	case []any:
		for _, item := range v {
			if !include(longestCompared(item, constant)) {
				return 0, false
			}
		}
	case map[string]any:
		for keyword, value := range v {
			_, isText := value.(string)
			limit, isNumber := value.(float64)
			switch {
			case keyword == "pattern" && isText, keyword == "uniqueItems" && value == true:
				return 0, false
			case (keyword == "minLength" || keyword == "maxLength") && isNumber:
				if !include(int(min(max(limit, 0), maxCheckedBytes)), true) {
					return 0, false
				}
			case isText && !constant && keyword != "const":
				// a title or another annotation
			default:
				if !include(longestCompared(value, constant || keyword == "enum" ||
					keyword == "const")) {
					return 0, false
				}
			}
		}
	}
	return longest, true
}

// onlyDeclared returns the properties of a schema that neither allows nor forbids others. It
// returns nil if the schema, or a part of it, may allow or forbid them.
func onlyDeclared(root map[string]any) map[string]bool {
	for _, keyword := range []string{"additionalProperties", "unevaluatedProperties",
		"patternProperties", "allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if",
		"dependentSchemas", "dependencies"} {
		if _, has := root[keyword]; has {
			return nil
		}
	}
	properties, ok := root["properties"].(map[string]any)
	if !ok {
		return nil // the schema declares nothing: it is for an object of any form
	}
	declared := map[string]bool{}
	for name := range properties {
		declared[name] = true
	}
	return declared
}

// noDocuments refuses to load other documents.
type noDocuments struct{}

func (noDocuments) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not allowed")
}

// compilePattern compiles a pattern for matching in linear time. A pattern that needs another
// engine, such as one with a look-ahead, matches every text.
func compilePattern(pattern string) (jsonschema.Regexp, error) {
	if len(pattern) <= 4<<10 {
		if re, err := regexp.Compile(pattern); err == nil {
			return re, nil
		}
	}
	return anyText(pattern), nil
}

type anyText string

func (anyText) MatchString(string) bool { return true }
func (t anyText) String() string        { return string(t) }

// schemaWalk visits the subschemas of a schema, and sets their format to stepFormat.
type schemaWalk struct {
	schemas map[string]bool // the JSON pointers of the subschemas
	refs    []string
	problem string
}

// Keywords whose values are schemas, arrays of schemas, and objects with schemas.
var (
	schemaKeywords = []string{"additionalItems", "additionalProperties", "contains", "else", "if",
		"items", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
		"contentSchema"}
	schemaListKeywords = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	schemaMapKeywords  = []string{"$defs", "definitions", "dependencies", "dependentSchemas",
		"patternProperties", "properties"}
)

// countKeywords are the keywords whose values are compared with the length of a string, an array or
// an object.
var countKeywords = []string{"maxContains", "maxItems", "maxLength", "maxProperties", "minContains",
	"minItems", "minLength", "minProperties"}

// maxCount is larger than the length of every value that is checked: see maxCheckedBytes.
const maxCount = math.MaxInt32

func (w *schemaWalk) schema(v any, pointer string, depth int) {
	schema, ok := v.(map[string]any)
	switch {
	case w.problem != "":
		return
	case depth > maxSchemaDepth:
		w.problem = "the schema is too deep"
		return
	case len(w.schemas) > maxSchemaNodes:
		w.problem = "the schema is too large"
		return
	}
	w.schemas[pointer] = true
	if !ok {
		return
	}
	for _, keyword := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		if ref, ok := schema[keyword].(string); ok {
			if !strings.HasPrefix(ref, "#") {
				w.problem = "the schema refers to another document"
				return
			}
			w.refs = append(w.refs, ref)
		}
	}
	for _, keyword := range schemaKeywords {
		if sub, has := schema[keyword].(map[string]any); has {
			w.schema(sub, pointer+"/"+keyword, depth+1)
		}
	}
	for _, keyword := range schemaListKeywords {
		list, _ := schema[keyword].([]any)
		for i, sub := range list {
			w.schema(sub, fmt.Sprintf("%s/%s/%d", pointer, keyword, i), depth+1)
		}
	}
	for _, keyword := range schemaMapKeywords {
		subs, _ := schema[keyword].(map[string]any)
		for name, sub := range subs {
			w.schema(sub, pointer+"/"+keyword+"/"+escapePointer(name), depth+1)
		}
	}
	for _, keyword := range countKeywords {
		// The validator keeps only the low 64 bits of a larger number.
		if n, ok := schema[keyword].(float64); ok && n > maxCount {
			schema[keyword] = float64(maxCount)
		}
	}
	schema["format"] = stepFormat
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// schemaResult is the result of a check, as input.schema has it.
type schemaResult struct {
	state      string // match, undeclared, mismatch, unlisted, unusable; "" without a schema
	unlisted   string // for an unlisted tool: first, until a call of it has passed; then again
	reason     string // why the schema or the value cannot be used
	problems   []string
	undeclared []string
}

// check compares the value at pointer in a message with the schema. A missing value is {}.
func (s *toolSchema) check(m *mcp.Message, pointer string) (r schemaResult) {
	if s == nil {
		return schemaResult{}
	}
	if s.unusable != "" {
		return schemaResult{state: "unusable", reason: s.unusable}
	}
	raw, ok := m.Get(pointer)
	if !ok {
		raw = []byte("{}")
	}
	if len(raw) > maxCheckedBytes {
		return schemaResult{state: "unusable", reason: "the value is too large to check"}
	}
	var v any
	var err error
	if len(raw) >= s.longStringBytes && s.longString != "" && raw[0] == '{' {
		v, err = s.decodeInner(m, pointer, raw[0], 0) // without a copy of raw
	} else {
		v, err = s.decode(raw, 0)
	}
	if err != nil {
		return schemaResult{state: "unusable", reason: "the value has a number that is too large"}
	}
	r.state = "match"
	if members, ok := v.(map[string]any); ok && s.declared != nil {
		for name := range members {
			if !s.declared[name] {
				r.undeclared = append(r.undeclared, clipped(name))
			}
		}
	}
	slices.Sort(r.undeclared)
	r.undeclared = r.undeclared[:min(len(r.undeclared), maxSchemaProblems)]
	if len(r.undeclared) > 0 {
		r.state = "undeclared"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if p := recover(); p == errTooManySteps {
			r = schemaResult{state: "unusable", reason: errTooManySteps.Error()}
		} else if p != nil {
			panic(p)
		}
	}()
	*s.steps = maxCheckSteps
	if err := s.schema.Validate(v); err != nil {
		var invalid *jsonschema.ValidationError
		if !errors.As(err, &invalid) {
			return schemaResult{state: "unusable", reason: "the value cannot be checked"}
		}
		r.state, r.problems = "mismatch", schemaProblems(invalid)
	}
	return r
}

// decode returns a value, as JSON, for the comparison with the schema. It replaces long strings,
// because decoding them takes longer than the rest of the comparison.
func (s *toolSchema) decode(raw []byte, depth int) (v any, err error) {
	isLong := s.longString != "" && len(raw) >= s.longStringBytes
	switch {
	case isLong && raw[0] == '"':
		return s.longString, nil
	case isLong && depth < maxShorteningDepth && (raw[0] == '{' || raw[0] == '['):
		return s.decodeInner(mcp.NewResponse("", raw), "", raw[0], depth)
	}
	err = json.Unmarshal(raw, &v, jsontext.AllowInvalidUTF8(true))
	return v, err
}

// decodeInner is decode for the object or array at pointer in a message.
func (s *toolSchema) decodeInner(m *mcp.Message, pointer string, first byte,
	depth int) (v any, err error) {
	if first == '{' {
		members := map[string]any{}
		m.Members(pointer, func(name string, raw []byte) bool {
			members[name], err = s.decode(raw, depth+1)
			return err == nil
		})
		return members, err
	}
	items := []any{}
	m.Items(pointer, func(_ int, raw []byte) bool {
		var item any
		item, err = s.decode(raw, depth+1)
		items = append(items, item)
		return err == nil
	})
	return items, err
}

// schemaProblems returns one text for each problem. The texts have names, but no values, because
// values may be secret.
func schemaProblems(e *jsonschema.ValidationError) (problems []string) {
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		at := "/" + strings.Join(e.InstanceLocation, "/")
		if len(e.InstanceLocation) == 0 {
			at = "the value"
		}
		what := ""
		switch k := e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf, *kind.Not:
			what = "matches none of the allowed forms"
		case *kind.Type:
			what = "is of type " + k.Got + ", not " + strings.Join(k.Want, " or ")
		case *kind.Enum, *kind.Const:
			what = "is none of the allowed values"
		case *kind.Required:
			what = "lacks " + strings.Join(k.Missing, ", ")
		case *kind.AdditionalProperties:
			what = "has undeclared members: " + strings.Join(k.Properties, ", ")
		default:
			for _, cause := range e.Causes {
				walk(cause)
			}
			if len(e.Causes) > 0 {
				return
			}
			what = "does not match the keyword " + strings.Join(e.ErrorKind.KeywordPath(), "/")
		}
		problems = append(problems, clipped(at+" "+what))
	}
	walk(e)
	slices.Sort(problems)
	problems = slices.Compact(problems)
	return problems[:min(len(problems), maxSchemaProblems)]
}

func clipped(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxProblemBytes)], "")
}

// checkSchema compares the arguments or the result of a call with the schema of its tool. ok is
// false for other messages, and if there is nothing to compare.
func (s *session) checkSchema(m *mcp.Message) (r schemaResult, ok bool) {
	if m.Method != "tools/call" || m.Kind != mcp.Request && m.Kind != mcp.Response {
		return r, false
	}
	if m.Kind == mcp.Response {
		if _, has := m.Get("/structuredContent"); !has {
			return r, false
		}
	}
	schemas, unlisted := s.schemasOf(m)
	switch {
	case schemas == nil:
		return schemaResult{state: "unlisted", unlisted: unlisted}, true
	case m.Kind == mcp.Response:
		r = schemas.output.check(m, "/structuredContent")
	default:
		r = schemas.input.check(m, "/arguments")
	}
	return r, r.state != ""
}

// schemasOf returns the compiled schemas of the tool that a message calls. If the tool is not
// listed, it returns nil, and whether an earlier call of the tool has passed: "first" or "again".
func (s *session) schemasOf(m *mcp.Message) (schemas *toolSchemas, unlisted string) {
	key, _ := definitionKey(m)
	s.mu.Lock()
	d := s.definitions[key]
	if d.raw == nil || d.ambiguous {
		defer s.mu.Unlock()
		if s.unlistedCalls[m.Server+" "+m.Name] {
			return nil, "again"
		}
		return nil, "first"
	}
	if d.digest == nil {
		digest := sha256.Sum256(d.raw)
		d.digest = &digest
		s.definitions[key] = d
	}
	s.mu.Unlock()
	return s.store.schemas.of(d.raw, *d.digest), ""
}

// recordUnlistedCall records that a call of an unlisted tool has passed. s.mu must be held.
func (s *session) recordUnlistedCall(m *mcp.Message) {
	definition, _ := definitionKey(m)
	key, _ := callKey(m)
	// every key of unlistedCalls is also a key of calls, whose size is bounded
	if d := s.definitions[definition]; (d.raw == nil || d.ambiguous) && s.calls[key] > 0 {
		if s.unlistedCalls == nil {
			s.unlistedCalls = map[string]bool{}
		}
		if !s.unlistedCalls[key] {
			s.unlistedBytes += len(key) + 32
		}
		s.unlistedCalls[key] = true
	}
}

// schemaValue returns the value of input.schema for a message, or nil if there is none.
func (s *session) schemaValue(m *mcp.Message) ast.Value {
	r, ok := s.checkSchema(m)
	if !ok {
		return nil
	}
	texts := func(all []string) *ast.Term {
		terms := make([]*ast.Term, len(all))
		for i, text := range all {
			terms[i] = ast.StringTerm(text)
		}
		return ast.ArrayTerm(terms...)
	}
	value := ast.NewObject([2]*ast.Term{ast.StringTerm("state"), ast.StringTerm(r.state)},
		[2]*ast.Term{ast.StringTerm("reason"), ast.StringTerm(r.reason)},
		[2]*ast.Term{ast.StringTerm("problems"), texts(r.problems)},
		[2]*ast.Term{ast.StringTerm("undeclared"), texts(r.undeclared)})
	if r.unlisted != "" {
		value.Insert(ast.StringTerm("unlisted"), ast.StringTerm(r.unlisted))
	}
	return value
}
