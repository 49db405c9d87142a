package pins

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Server holds what one server declares, and how it is started.
type Server struct {
	Start        Start
	Package      Source
	ServerInfo   jsontext.Value // canonical JSON; nil if unknown
	Capabilities jsontext.Value // canonical JSON; nil if unknown
	Instructions *Item          // nil if there are none
	Tools        map[string]*Item
	Prompts      map[string]*Item
	Templates    map[string]*Item
	Resources    map[string]*Item // nil if resources are not pinned

	// Repeated holds the names of items that the server listed twice with different definitions.
	// A lock never has such a server.
	Repeated []*Item
}

// Start is how a server is started or reached. It contains no secrets.
type Start struct {
	Command string   `json:"command,omitzero"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"` // only the names, sorted
	URL     string   `json:"url,omitzero"`
}

// Source is the package that contains a server. It is zero if the package is unknown.
type Source struct {
	NPM     string `json:"npm,omitzero"`   // the name of an npm package
	PyPI    string `json:"pypi,omitzero"`  // the name of a Python package
	Image   string `json:"image,omitzero"` // a container image, with its tag or digest
	Version string `json:"version,omitzero"`
	// Integrity is the SHA-512 of an npm package, as the registry has it: "sha512-" and base64. It
	// is empty if the package was not installed by Gatekit.
	Integrity string `json:"integrity,omitzero"`
	SHA256    string `json:"sha256,omitzero"` // of the program or script that is started
}

// items returns the map of the items of a kind.
func (s *Server) items(kind Kind) *map[string]*Item {
	switch kind {
	case Tool:
		return &s.Tools
	case Prompt:
		return &s.Prompts
	case Template:
		return &s.Templates
	}
	return &s.Resources
}

// itemKinds are the kinds of items that a server lists.
var itemKinds = [...]Kind{Tool, Prompt, Template, Resource}

// Items returns all items that the server lists, by kind and name, and the instructions last.
func (s *Server) Items() []*Item {
	var all []*Item
	for _, kind := range itemKinds {
		items := *s.items(kind)
		for _, name := range slices.Sorted(maps.Keys(items)) {
			all = append(all, items[name])
		}
	}
	if s.Instructions != nil {
		all = append(all, s.Instructions)
	}
	return all
}

// Item returns the item with a name. For instructions, the name is "".
func (s *Server) Item(kind Kind, name string) *Item {
	if kind == Instructions {
		return s.Instructions
	}
	return (*s.items(kind))[name]
}

// Add adds an item, or replaces the item with its name.
func (s *Server) Add(i *Item) {
	if i.kind == Instructions {
		s.Instructions = i
		return
	}
	items := s.items(i.kind)
	if *items == nil {
		*items = map[string]*Item{}
	}
	name := i.Name()
	if old, ok := (*items)[name]; ok && old.digest != i.digest {
		s.Repeated = append(s.Repeated, i)
		return
	}
	(*items)[name] = i
}

// Replace adds an item, or replaces the item with its name.
func (s *Server) Replace(i *Item) {
	if i.kind != Instructions {
		delete(*s.items(i.kind), i.Name())
	}
	s.Add(i)
}

// Clone returns a copy whose items can be replaced.
func (s *Server) Clone() *Server {
	c := *s
	for _, kind := range itemKinds {
		items := c.items(kind)
		*items = maps.Clone(*items)
	}
	return &c
}

// Compare returns the changes from the approved server s to live, the most severe first.
func (s *Server) Compare(live *Server) []Change {
	var changes []Change
	told := func(class Class, pointer, before, after string) {
		if before != after {
			changes = append(changes, Change{Class: class, Pointer: pointer, Before: before,
				After: after})
		}
	}
	told(Launch, "/launch", s.Start.String(), live.Start.String())
	told(Package, "/package", s.Package.String(), live.Package.String())
	told(Decoration, "/serverInfo", string(s.ServerInfo), string(live.ServerInfo))
	told(Decoration, "/capabilities", string(s.Capabilities), string(live.Capabilities))
	for _, pinned := range s.Items() {
		if now := live.Item(pinned.kind, pinned.Name()); now != nil {
			changes = append(changes, pinned.Compare(now)...)
		} else if pinned.kind != Resource || live.Resources != nil {
			changes = append(changes, Change{Kind: pinned.kind, Name: pinned.Name(), Class: Gone})
		}
	}
	for _, now := range live.Items() {
		if s.Item(now.kind, now.Name()) == nil {
			changes = append(changes, Change{Kind: now.kind, Name: now.Name(), Class: New,
				After: now.text()})
		}
	}
	for _, again := range live.Repeated {
		if pinned := s.Item(again.kind, again.Name()); pinned != nil {
			changes = append(changes, pinned.Compare(again)...)
		}
	}
	sortChanges(changes)
	return changes
}

// text returns what a reviewer of a new item reads first: its description, or the instructions.
func (i *Item) text() string {
	if i.kind == Instructions {
		return i.definition.text
	}
	if d := i.definition.get("description"); d != nil {
		return d.String()
	}
	return ""
}

// Approve returns the server to write into the lock: learned, with the items of s that live has not
// changed. So a lock does not change without need. learned is what Learn returned for live. s may
// be nil.
func (s *Server) Approve(live, learned *Server) *Server {
	approved := *learned
	approved.Repeated = nil
	if s == nil {
		return &approved
	}
	for _, kind := range itemKinds {
		items := approved.items(kind)
		*items = maps.Clone(*items)
		for name := range *items {
			old, now := s.Item(kind, name), live.Item(kind, name)
			if old != nil && now != nil && len(old.Compare(now)) == 0 {
				(*items)[name] = old
			}
		}
	}
	if old, now := s.Instructions, live.Instructions; old != nil && now != nil &&
		len(old.Compare(now)) == 0 {
		approved.Instructions = old
	}
	return &approved
}

// KeepOthers adds the items of old that s does not have: those that a principal does not see. The
// parameter old may be nil.
func (s *Server) KeepOthers(old *Server) {
	if old == nil {
		return
	}
	for _, i := range old.Items() {
		if s.Item(i.kind, i.Name()) == nil {
			s.Add(i)
		}
	}
}

// Learn returns s with the holes that Item.Learn finds, and the items that differ at each start in
// a way that holes cannot express. again is the server after a second start.
func (s *Server) Learn(again *Server, here Surroundings) (*Server, []*Item) {
	learned := *s
	var unstable []*Item
	for _, kind := range itemKinds {
		items := learned.items(kind)
		*items = maps.Clone(*items)
		for name, first := range *items {
			i, ok := first.Learn(again.Item(kind, name), here)
			if (*items)[name] = i; !ok {
				unstable = append(unstable, i)
			}
		}
	}
	if s.Instructions != nil {
		i, ok := s.Instructions.Learn(again.Instructions, here)
		if learned.Instructions = i; !ok {
			unstable = append(unstable, i)
		}
	}
	slices.SortFunc(unstable, func(a, b *Item) int {
		return strings.Compare(string(a.kind)+a.Name(), string(b.kind)+b.Name())
	})
	return &learned, unstable
}

// String returns the command line or the URL.
func (s Start) String() string {
	if s.URL != "" {
		return s.URL
	}
	b := []byte(s.Command)
	for _, arg := range s.Args {
		b = append(b, ' ')
		// The quotes keep two command lines apart that have different words.
		if arg == "" || strings.ContainsAny(arg, " \t\n\"'\\") {
			b = appendString(b, arg)
		} else {
			b = append(b, arg...)
		}
	}
	for _, name := range s.Env {
		b = append(b, " $"+name...)
	}
	return string(b)
}

// String returns the name, the version and the digest of the package.
func (s Source) String() string {
	name := s.NPM + s.PyPI + s.Image
	if s.Version != "" {
		name += "@" + s.Version
	}
	if s.Integrity != "" {
		name += " " + s.Integrity
	}
	if s.SHA256 != "" {
		name = strings.TrimPrefix(name+" sha256:"+s.SHA256, " ")
	}
	return name
}

// SourceOf returns the package that a command line starts. It knows npx, npm exec, bunx, uvx, pipx
// run and docker run.
func SourceOf(command string, args []string) Source {
	base := command[strings.LastIndexByte(command, '/')+1:]
	switch base {
	case "npx", "bunx":
		return npmSource(firstArgument(args, "-p", "--package", "-c", "--call"))
	case "npm":
		if len(args) > 0 && (args[0] == "exec" || args[0] == "x") {
			return npmSource(firstArgument(args[1:], "-c", "--call"))
		}
	case "uvx":
		return pypiSource(firstArgument(args, "--from", "--python", "--with", "-p"))
	case "pipx":
		if len(args) > 0 && args[0] == "run" {
			return pypiSource(firstArgument(args[1:], "--spec", "--python"))
		}
	case "docker", "podman":
		if len(args) > 0 && args[0] == "run" {
			return Source{Image: firstArgument(args[1:], "-e", "--env", "-v", "--volume", "--mount",
				"--name", "--network", "--net", "-p", "--publish", "--env-file", "-u", "--user",
				"-w", "--workdir", "--entrypoint", "--platform", "-m", "--memory", "--cpus")}
		}
	}
	return Source{}
}

// firstArgument returns the first argument that is neither an option nor the value of an option.
// The options with a value are withValue; a package that is named by such an option is returned.
func firstArgument(args []string, withValue ...string) string {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, joined := strings.Cut(arg, "=")
		isPackage := name == "--package" || name == "--from" || name == "--spec"
		switch {
		case arg == "--":
		case !strings.HasPrefix(arg, "-"):
			return arg
		case joined && isPackage:
			return value
		case !joined && isPackage && i+1 < len(args):
			return args[i+1]
		case !joined && slices.Contains(withValue, arg):
			i++
		}
	}
	return ""
}

func npmSource(spec string) Source {
	if at := strings.LastIndexByte(spec, '@'); at > 0 {
		return Source{NPM: spec[:at], Version: spec[at+1:]}
	}
	return Source{NPM: spec}
}

func pypiSource(spec string) Source {
	name, version, found := strings.Cut(spec, "==")
	if !found {
		name, version, _ = strings.Cut(spec, "@")
	}
	return Source{PyPI: name, Version: version}
}

// Canonical returns a JSON value with sorted members, or nil if raw is not valid JSON.
func Canonical(raw []byte) jsontext.Value {
	v, err := parseValue(bytes.Clone(raw))
	if err != nil {
		return nil
	}
	return v.append(nil)
}
