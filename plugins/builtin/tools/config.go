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

// config is the configuration as it is written; schema.json describes it.
type config struct {
	Tools     *section `json:"tools"`
	Prompts   *section `json:"prompts"`
	Resources *section `json:"resources"`
}

type section struct {
	Allow  list     `json:"allow"` // nil: all
	Hide   list     `json:"hide"`
	Change []change `json:"change"`
}

type change struct {
	Name        string  `json:"name"` // of a tool or prompt
	URI         string  `json:"uri"`  // of a resource or template
	Rename      *string `json:"rename"`
	Title       *string `json:"title"`
	Description *string `json:"description"`
}

// list is an array of patterns.
type list []string

// UnmarshalJSONFrom refuses null, which would be the list that was left out: everything.
func (l *list) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == 'n' {
		return errors.New("null is no list: leave it out, or write []")
	}
	all := []string{}
	if err := json.UnmarshalDecode(d, &all); err != nil {
		return err
	}
	*l = all
	return nil
}

// newStage makes a stage of a configuration.
func newStage(text []byte) (*stage, error) {
	var c config
	if err := json.Unmarshal(text, &c, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if c.Tools == nil && c.Prompts == nil && c.Resources == nil {
		return nil, errors.New(
			`nothing to do: give it "tools", "prompts" or "resources", as {"tools": {"allow": ["read_*"]}}`)
	}
	var s stage
	var faults []error
	for _, x := range []struct {
		option  string
		section *section
		filter  *filter
		renames *map[string]string
	}{
		{"tools", c.Tools, &s.tools, &s.renames.Tools},
		{"prompts", c.Prompts, &s.prompts, &s.renames.Prompts},
		{"resources", c.Resources, &s.resources, nil},
	} {
		if x.section == nil {
			continue
		}
		x.filter.given, x.filter.uris = true, x.option == "resources"
		fault := func(format string, a ...any) {
			faults = append(faults, fmt.Errorf(x.option+format, a...))
		}
		x.filter.patterns(x.section, fault)
		x.filter.changes = x.filter.read(x.section.Change, fault)
		if x.renames != nil {
			*x.renames = x.filter.renames(x.section.Change, fault)
		}
	}
	if err := s.renames.Validate(); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &s, nil
}

// patterns reads allow and hide.
func (f *filter) patterns(s *section, fault func(string, ...any)) {
	if s.Allow == nil && s.Hide == nil && s.Change == nil {
		fault(`: nothing to do: give it "allow", "hide" or "change"`)
	}
	read := func(option string, l list) (all []pattern) {
		for i, text := range l {
			switch {
			case text == "":
				fault(`.%s[%d]: an empty pattern matches nothing: take it out, or write "*" for all`, option, i)
			case f.uris && strings.ContainsAny(text, "{}"):
				fault(`.%s[%d]: %q is a URI template, and what is made of it is read by its URI: write * in place of {…}, which matches both`, option, i, text)
			}
			all = append(all, newPattern(text, f.uris))
		}
		return all
	}
	f.allow, f.hide, f.limited = read("allow", s.Allow), read("hide", s.Hide), s.Allow != nil
}

// read reads change, by name or URI.
func (f *filter) read(all []change, fault func(string, ...any)) map[string]change {
	changes := make(map[string]change, len(all))
	for i, c := range all {
		name, option, other := c.Name, "name", c.URI
		if f.uris {
			name, option, other = c.URI, "uri", c.Name
		}
		_, again := changes[name]
		switch {
		case other != "":
			fault(`.change[%d]: it is said by its "%s" what changes, and by nothing else`, i,
				option)
		case name == "":
			fault(`.change[%d].%s: missing: what the server calls it`, i, option)
		case again:
			fault(`.change[%d].%s: %q is changed above: put both into one`, i, option, name)
		case c.Rename == nil && c.Title == nil && c.Description == nil:
			fault(`.change[%d]: nothing is changed: give it "rename", "title" or "description"`, i)
		case f.hidden(name):
			fault(`.change[%d].%s: %q is hidden by allow or hide: let it be seen there, or take it out here`, i, option, name)
		}
		changes[name] = c
	}
	return changes
}

// longest is what the specification gives a tool's name.
const longest = 128

// renames reads the new names of change. What they do to each other is for Renames.Validate.
func (f *filter) renames(all []change, fault func(string, ...any)) map[string]string {
	names := map[string]string{}
	for i, c := range all {
		if c.Rename == nil {
			continue
		}
		name := *c.Rename
		if name == "" || len(name) > longest || strings.Trim(name, legal) != "" {
			fault(`.change[%d].rename: %q is no name that clients take: 1 to %d of A-Z, a-z, 0-9, "_", "-" and "."`, i, name, longest)
			continue
		}
		names[c.Name] = name
		other, changed := f.changes[name]
		listed := slices.ContainsFunc(f.allow, func(p pattern) bool {
			return len(p.parts) == 1 && p.parts[0] == name
		})
		if name != c.Name && (listed || changed && other.Rename == nil) {
			fault(`.change[%d].rename: %q is the server's name of another one that clients may know: take a name that none has`, i, name)
		}
	}
	return names
}

// legal are the characters of a tool's name (2025-11-25, server/tools).
const legal = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."

// Renames implements sdk.StageWithRenames.
func (s *stage) Renames() pipeline.Renames { return s.renames }
