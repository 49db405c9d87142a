package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gatekit/core/atomicfile"
	"gatekit/core/config"
	"gatekit/core/privatefiles"
)

// secretsFolder is the folder for the values of variables and headers, beside a configuration.
const secretsFolder = "gatekit-secrets"

// configurationText is a configuration that is being written, with the secrets that it refers to.
type configurationText struct {
	text    strings.Builder
	secrets map[string]string // contents by the name of the file in secretsFolder
	names   map[string]bool   // names of servers that are taken
	tools   []string          // tables of the plugin "tools"
	folders []string          // that paths must stay in; anywhere if there is none
}

func newConfigurationText() *configurationText {
	return &configurationText{secrets: map[string]string{}, names: map[string]bool{}}
}

// comment writes a line of a comment.
func (c *configurationText) comment(text string) {
	fmt.Fprintf(&c.text, "# %s\n", oneLine(text))
}

// name returns a valid name for a server that no other server has.
func (c *configurationText) name(given string) string {
	base := notInNames.ReplaceAllString(strings.ToLower(given), "-")
	base = strings.TrimLeft(base, "-0123456789")
	base = cmp.Or(strings.TrimRight(base[:min(len(base), maxServerName)], "-"), "server")
	name := base
	for n := 2; c.names[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	c.names[name] = true
	return name
}

// server writes the table of a server. Values of variables and headers go to files of their own.
// What is not carried over becomes a comment.
func (c *configurationText) server(s foreignServer) {
	name := c.name(s.name)
	c.text.WriteString("\n")
	if name != s.name {
		c.comment(fmt.Sprintf("before: %q", s.name))
	}
	for _, remark := range s.remarks {
		c.comment(remark)
	}
	for _, lost := range s.lost {
		c.comment("not carried over: " + lost)
	}
	prefix := ""
	if s.isOff {
		c.comment("The server was switched off. Remove the # in front of its lines to use it.")
		prefix = "# "
	}
	if len(s.command) == 0 && s.url == "" {
		c.comment("The server has neither a command nor a URL.")
		prefix = "# "
	}
	line := func(format string, a ...any) { fmt.Fprintf(&c.text, prefix+format+"\n", a...) }
	line("[server.%s]", name)
	if s.url != "" && len(s.command) == 0 {
		line("url = %s", quoteText(s.url))
		c.values(prefix, name, "headers", s.headers)
	} else if len(s.command) > 0 {
		line("command = %s", quoteText(s.command[0]))
		if len(s.command) > 1 {
			var args []string
			for _, a := range s.command[1:] {
				args = append(args, quoteText(a))
			}
			line("args = [%s]", strings.Join(args, ", "))
		}
		if s.cwd != "" {
			line("cwd = %s", quoteText(s.cwd))
		}
		c.values(prefix, name, "env", s.env)
	}
	if s.hasToolFilter {
		c.toolFilter(prefix, name, s)
	}
}

// values writes the variables or headers of a server.
func (c *configurationText) values(prefix, server, key string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		file := server + "." + notInNames.ReplaceAllString(strings.ToLower(name), "-")
		for n := 2; ; n++ {
			if _, taken := c.secrets[file]; !taken {
				break
			}
			file = fmt.Sprintf("%s-%d", file, n)
		}
		c.secrets[file] = values[name]
		pairs = append(pairs, config.QuoteTOML(name)+" = "+
			config.QuoteTOML("${file:"+secretsFolder+"/"+file+"}"))
	}
	fmt.Fprintf(&c.text, "%s%s = { %s }\n", prefix, key, strings.Join(pairs, ", "))
}

// toolFilter remembers the tools of a server that clients may see.
func (c *configurationText) toolFilter(prefix, server string, s foreignServer) {
	list := func(key string, names []string) {
		if len(names) == 0 {
			return
		}
		var quoted []string
		for _, n := range names {
			quoted = append(quoted, quoteText(n))
		}
		plugin := fmt.Sprintf("[[plugin]]\nname = %s\nuse = \"tools\"\nservers = [%s]\nconfig = "+
			"{ tools = { %s = [%s] } }\n", quoteText("tools-"+server+"-"+key), quoteText(server),
			key, strings.Join(quoted, ", "))
		var text strings.Builder
		for line := range strings.Lines(plugin) { // those of a server that is off are comments
			text.WriteString(prefix + line)
		}
		c.tools = append(c.tools, text.String())
	}
	list("allow", s.allow)
	list("hide", s.hide)
}

// quoteText returns a string of a configuration: a TOML string in which ${ is no substitution.
func quoteText(s string) string {
	return config.QuoteTOML(strings.ReplaceAll(s, "${", "$${"))
}

// write writes the configuration and its secrets, and reads the configuration to check it. It never
// overwrites a file. If it fails, it removes what it has written.
func (c *configurationText) write(file string) (cfg *config.Config, err error) {
	if _, err := os.Lstat(file); err == nil {
		return nil, fmt.Errorf("%s exists already\nhint: choose another name, or move the file "+
			"away", displayPath(file))
	}
	var written []string
	defer func() {
		if err != nil {
			for _, w := range written {
				os.Remove(w)
			}
		}
	}()
	if len(c.secrets) > 0 {
		folder := privatefiles.Folder{Path: filepath.Join(filepath.Dir(file), secretsFolder),
			Danger: "read the secrets of servers"}
		if err := folder.Create(); err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(c.secrets)) {
			path := filepath.Join(folder.Path, name)
			err := atomicfile.Create(path, []byte(c.secrets[name]+"\n"))
			if errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("%s has a file %s already\nhint: choose another folder for "+
					"the configuration, or move the folder away", displayPath(folder.Path), name)
			} else if err != nil {
				return nil, fmt.Errorf("write a secret: %w", err)
			}
			written = append(written, path)
		}
	}
	if err := atomicfile.Create(file, []byte(c.text.String())); err != nil {
		return nil, err
	}
	written = append(written, file)
	if cfg, err = loadConfig(file); err != nil {
		return nil, fmt.Errorf("the configuration would have mistakes: %w", err)
	}
	return cfg, nil
}

// roots returns the settings of the rule roots/traversal.
func (c *configurationText) roots() string {
	if len(c.folders) == 0 {
		return `anywhere = true # or: roots = ["/srv/data"]`
	}
	var quoted []string
	for _, f := range c.folders {
		quoted = append(quoted, quoteText(f))
	}
	return "roots = [" + strings.Join(quoted, ", ") + "]"
}

// defaults writes the default rules of gatekit wrap and the audit log.
func (c *configurationText) defaults() {
	for _, p := range c.tools {
		c.text.WriteString("\n" + p)
	}
	c.text.WriteString(`
# The default rules of gatekit wrap. gatekit policy list has all rules.
[policy]
rules = ["elicitation/gate", "roots/traversal", "sampling/gate", "tools/schema"]

[policy.config."elicitation/gate"]
loopback = true # a server on this machine may open pages of this machine

[policy.config."roots/traversal"]
` + c.roots() + `

[policy.config."sampling/gate"]
servers = ["*"]
context = ["none", "thisServer"]
tools = true
per_minute = 60

[policy.config."tools/schema"]
arguments = "note" # or: "deny"
results = "note"

[audit]
file = "audit.jsonl"
`)
}
