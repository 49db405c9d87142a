package npmpackage

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Command is a command line of npx or npm exec that runs one package of the registry.
type Command struct {
	Name    string   // of the package
	Version string   // as the command line has it: a version, a range, a tag, or ""
	Bin     string   // the program of the package that is run; "" is its only or main one
	Args    []string // of the program
	Node    string   // the program that runs it: node, or the node beside npx
}

var (
	packageName = regexp.MustCompile(
		`^(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*$`)
	packageVersion = regexp.MustCompile(`^[0-9A-Za-z^~<>=*][0-9A-Za-z.+^~<>=*-]*$`)
	exactVersion   = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	binName        = regexp.MustCompile(`^[0-9A-Za-z_@][0-9A-Za-z._@-]*$`)
)

// IsExact reports whether the command line names one release.
func (c Command) IsExact() bool { return exactVersion.MatchString(c.Version) }

// Uses reports whether the command line can stand for a release of a package: it names the package,
// and no other exact version.
func (c Command) Uses(p Package) bool {
	return c.Name == p.Name && (!c.IsExact() || c.Version == p.Version)
}

// ParseCommand returns what a command line of npx or npm exec runs. It returns false for every
// other command line: one that runs a shell command, several packages, or a package that is not
// from the registry, and one with an option that ParseCommand does not know.
func ParseCommand(program string, args []string) (Command, bool) {
	c := Command{Node: "node"}
	isNPM := false
	switch filepath.Base(program) {
	case "npx":
	case "npm":
		if len(args) == 0 || args[0] != "exec" && args[0] != "x" {
			return Command{}, false
		}
		args, isNPM = args[1:], true
	default:
		return Command{}, false
	}
	if filepath.IsAbs(program) {
		c.Node = filepath.Join(filepath.Dir(program), "node")
	}
	spec := ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		option, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		if option == "--" && !joined {
			break
		}
		switch {
		case slices.Contains([]string{"-y", "--yes", "-q", "--quiet", "-s", "--silent",
			"--prefer-offline", "--prefer-online", "--offline"}, option) && !joined:
			continue
		case option != "--package" && (option != "-p" || joined), spec != "":
			return Command{}, false
		case !joined && len(args) == 0:
			return Command{}, false
		case !joined:
			value, args = args[0], args[1:]
		}
		spec = value
	}
	if len(args) == 0 {
		return Command{}, false
	}
	named := spec != ""
	if named {
		c.Bin = args[0]
	} else {
		spec = args[0]
	}
	c.Args = args[1:]
	if isNPM { // npm reads options between its arguments, up to --
		end := slices.Index(c.Args, "--")
		options := c.Args
		if end >= 0 {
			options = c.Args[:end]
		}
		if slices.ContainsFunc(options, func(a string) bool { return strings.HasPrefix(a, "-") }) {
			return Command{}, false
		}
		if end >= 0 {
			c.Args = slices.Delete(slices.Clone(c.Args), end, end+1)
		}
	}
	c.Name = spec
	if at := strings.LastIndexByte(spec, '@'); at > 0 {
		c.Name, c.Version = spec[:at], spec[at+1:]
		if !packageVersion.MatchString(c.Version) {
			return Command{}, false
		}
	}
	if !packageName.MatchString(c.Name) || named && !binName.MatchString(c.Bin) {
		return Command{}, false
	}
	return c, true
}
