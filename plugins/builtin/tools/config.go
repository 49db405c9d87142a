package tools

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"gatekit/core/pipeline"
)

// config is the configuration of the plugin; schema.json describes it.
type config struct {
	Tools     *section `json:"tools"`
	Prompts   *section `json:"prompts"`
	Resources *section `json:"resources"`
}

// section is the configuration for one kind of item.
type section struct {
	Allow  patternList `json:"allow"` // nil allows all
	Hide   patternList `json:"hide"`
	Change []change    `json:"change"`
}

// change is how one item is shown to clients. A nil field stays as the server has it.
type change struct {
	Name        string  `json:"name"` // of a tool or prompt
	URI         string  `json:"uri"`  // of a resource or template
	Rename      *string `json:"rename"`
	Title       *string `json:"title"`
	Description *string `json:"description"`
}

// patternList is an array of patterns.
type patternList []string

// UnmarshalJSONFrom rejects null. Otherwise null would mean the same as a missing list: everything
// is allowed.
func (l *patternList) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == 'n' {
		return errors.New("null is not a list: remove the option, or write []")
	}
	all := []string{}
	if err := json.UnmarshalDecode(d, &all); err != nil {
		return err
	}
	*l = all
	return nil
}

// errorf reports a mistake in the configuration. The format begins with the option's place within
// its section.
type errorf func(format string, a ...any)

// newStage returns a stage for a configuration. The error joins all mistakes.
func newStage(text []byte) (*stage, error) {
	var c config
	if err := json.Unmarshal(text, &c, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if c.Tools == nil && c.Prompts == nil && c.Resources == nil {
		return nil, errors.New(`nothing to do: set "tools", "prompts" or "resources", as in ` +
			`{"tools": {"allow": ["read_*"]}}`)
	}
	s := stage{tools: filter{item: "tool"}, prompts: filter{item: "prompt"},
		resources: filter{item: "resource", isURI: true}}
	var errs []error
	for _, x := range []struct {
		option  string
		section *section
		filter  *filter
		renames *map[string]string // nil for resources, which are used by their URI
	}{
		{"tools", c.Tools, &s.tools, &s.renames.Tools},
		{"prompts", c.Prompts, &s.prompts, &s.renames.Prompts},
		{"resources", c.Resources, &s.resources, nil},
	} {
		if x.section == nil {
			continue
		}
		fail := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf(x.option+format, a...))
		}
		x.filter.configured = true
		x.filter.setPatterns(x.section, fail)
		x.filter.setChanges(x.section.Change, fail)
		if x.renames != nil {
			*x.renames = x.filter.newNames(x.section.Change, fail)
		}
	}
	if err := s.renames.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &s, nil
}

// setPatterns sets the filter's patterns from allow and hide.
func (f *filter) setPatterns(s *section, fail errorf) {
	if s.Allow == nil && s.Hide == nil && s.Change == nil {
		fail(`: nothing to do: set "allow", "hide" or "change"`)
	}
	parse := func(option string, l patternList) (all []pattern) {
		for i, text := range l {
			switch {
			case text == "":
				fail(`.%s[%d]: an empty pattern matches nothing: remove it, or write "*" for all`,
					option, i)
			case f.isURI && strings.ContainsAny(text, "{}"):
				fail(`.%s[%d]: %q is a URI template, but resources are read by URI: write * in `+
					`place of {…}, which matches the template and its resources`, option, i, text)
			}
			all = append(all, newPattern(text, f.isURI))
		}
		return all
	}
	f.hasAllow, f.allow, f.hide = s.Allow != nil, parse("allow", s.Allow), parse("hide", s.Hide)
}

// setChanges sets the filter's changes, by name or URI. The patterns must be set before.
func (f *filter) setChanges(all []change, fail errorf) {
	f.changes = make(map[string]change, len(all))
	for i, c := range all {
		name, option, otherName, otherOption := c.Name, "name", c.URI, "uri"
		if f.isURI {
			name, option, otherName, otherOption = c.URI, "uri", c.Name, "name"
		}
		_, isDuplicate := f.changes[name]
		switch {
		case otherName != "":
			fail(`.change[%d]: a %s is identified by "%s", not by "%s"`, i, f.item, option,
				otherOption)
		case name == "":
			fail(`.change[%d].%s: is missing; set it to the server's own %s of the %s`, i,
				option, option, f.item)
		case isDuplicate:
			fail(`.change[%d].%s: %q is changed above; merge the two changes`, i, option, name)
		case c.Rename == nil && c.Title == nil && c.Description == nil:
			fail(`.change[%d]: nothing is changed: set "rename", "title" or "description"`, i)
		case f.hides(name):
			fail(`.change[%d].%s: %q is hidden by allow or hide: do not hide it, or remove this `+
				`change`, i, option, name)
		}
		f.changes[name] = c
	}
}

// maxName and nameCharacters are the limits that MCP 2025-11-25 (server/tools) recommends for a
// tool's name.
const (
	maxName        = 128
	nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
)

// newNames returns the new names of items, by the server's own names. Renames.Validate finds
// conflicts between new names.
func (f *filter) newNames(all []change, fail errorf) map[string]string {
	names := map[string]string{}
	for i, c := range all {
		if c.Rename == nil {
			continue
		}
		name := *c.Rename
		if name == "" || len(name) > maxName || strings.Trim(name, nameCharacters) != "" {
			fail(`.change[%d].rename: %q is not a valid name: use 1 to %d of A-Z, a-z, 0-9, "_", `+
				`"-" and "."`, i, name, maxName)
			continue
		}
		names[c.Name] = name
		other, isChanged := f.changes[name]
		isAllowed := slices.ContainsFunc(f.allow, func(p pattern) bool {
			return p.text == name && !strings.Contains(name, "*")
		})
		if name != c.Name && (isAllowed || isChanged && other.Rename == nil) {
			fail(`.change[%d].rename: %q is the server's own name of another visible %s: choose `+
				`an unused name`, i, name, f.item)
		}
	}
	return names
}

// Renames implements sdk.StageWithRenames.
func (s *stage) Renames() pipeline.Renames { return s.renames }
