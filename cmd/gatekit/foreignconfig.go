package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"

	"gatekit/core/clientfiles"
	"gatekit/core/regularfile"
)

// maxForeignBytes is the largest configuration of another gateway that is read.
const maxForeignBytes = 4 << 20

// foreignConfig has the servers of another gateway's configuration, or of a client's.
type foreignConfig struct {
	kind    string // the name of the gateway
	servers []foreignServer
	// keys that are not for one server, and that are not carried over
	lost []string
}

// foreignServer is a server in a configuration that is not Gatekit's.
type foreignServer struct {
	name          string
	command       []string
	cwd, url      string
	env, headers  map[string]string
	allow, hide   []string // names of tools
	isOff         bool
	lost          []string // keys that are not carried over
	remarks       []string // comments
	hasToolFilter bool
}

// table is an object of a foreign configuration. It remembers which keys have been read.
type table struct {
	values map[string]any
	path   string // of the object, for remarks
	seen   map[string]bool
}

func tableOf(v any, path string) *table {
	m, _ := v.(map[string]any)
	return &table{values: m, path: path, seen: map[string]bool{}}
}

func (t *table) take(key string) any {
	t.seen[key] = true
	return t.values[key]
}

func (t *table) text(key string) string {
	s, _ := t.take(key).(string)
	return s
}

func (t *table) table(key string) *table { return tableOf(t.take(key), joinPath(t.path, key)) }

func joinPath(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// texts returns a list of strings. Numbers become strings.
func (t *table) texts(key string) (all []string) {
	items, _ := t.take(key).([]any)
	for _, i := range items {
		if i != nil {
			all = append(all, fmt.Sprint(i))
		}
	}
	return all
}

// pairs returns an object with strings. Numbers and booleans become strings.
func (t *table) pairs(key string) map[string]string {
	m, _ := t.take(key).(map[string]any)
	out := map[string]string{}
	for k, v := range m {
		if v != nil {
			out[k] = fmt.Sprint(v)
		}
	}
	return out
}

// tables returns the objects in a list, or in an object, by name.
func (t *table) tables(key string) (all []*table, names []string) {
	switch v := t.take(key).(type) {
	case []any:
		for i, item := range v {
			all = append(all, tableOf(item, fmt.Sprintf("%s[%d]", joinPath(t.path, key), i)))
			names = append(names, "")
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = append(all, tableOf(v[name], joinPath(joinPath(t.path, key), name)))
			names = append(names, name)
		}
	}
	return all, names
}

// unread returns the paths of the keys that have not been read.
func (t *table) unread() (all []string) {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if !t.seen[key] {
			all = append(all, joinPath(t.path, key))
		}
	}
	return all
}

// readForeign reads the configuration of another gateway. It recognizes the gateway by the content.
func readForeign(file string) (*foreignConfig, error) {
	b, err := regularfile.Read(file, maxForeignBytes)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if strings.HasPrefix(strings.TrimSpace(string(b)), "{") {
		if err = clientfiles.CheckNesting(string(b)); err == nil {
			b, err = hujson.Standardize(b)
		}
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber() // a number stays as it is written
			err = d.Decode(&content)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	} else if err := yaml.Unmarshal(b, &content); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t := tableOf(content, "")
	read := readerFor(t)
	if read == nil {
		return nil, fmt.Errorf("%s is not a configuration that gatekit import knows\nhint: it "+
			"reads the files of TBXark mcp-proxy, mcpproxy-go, agentgateway, docker's catalogs, "+
			"ToolHive (thv export), the Python Gatekit, and clients' mcpServers", file)
	}
	c := read(t)
	if len(c.servers) == 0 {
		return nil, fmt.Errorf("%s (%s) has no servers", file, c.kind)
	}
	c.lost = append(c.lost, t.unread()...)
	return c, nil
}

// readerFor returns the function that reads a configuration, or nil.
func readerFor(t *table) func(*table) *foreignConfig {
	_, isList := t.values["mcpServers"].([]any)
	has := func(key string) bool { return t.values[key] != nil }
	switch {
	case has("mcpServers") && isList:
		return readMCPProxyGo
	case has("mcpServers"):
		return readMCPServers
	case has("binds"):
		return readAgentgateway
	case has("registry"):
		return readDockerCatalog
	case has("proxy"):
		return readPythonGatekit
	case has("image") || has("remote_url"):
		return readToolHive
	}
	return nil
}

// readMCPServers reads the servers of a client, or of TBXark mcp-proxy.
func readMCPServers(t *table) *foreignConfig {
	c := &foreignConfig{kind: "mcpServers"}
	if t.values["mcpProxy"] != nil {
		c.kind = "TBXark mcp-proxy"
	}
	all, names := t.tables("mcpServers")
	for i, s := range all {
		server := foreignServer{name: names[i], env: s.pairs("env"), headers: s.pairs("headers"),
			url: cmp.Or(s.text("url"), s.text("serverUrl"), s.text("httpUrl")), cwd: s.text("cwd")}
		server.setCommand(s.text("command"), s.texts("args"))
		for _, key := range []string{"type", "transportType", "transport"} {
			s.text(key) // Gatekit asks the server
		}
		server.isOff, _ = s.take("disabled").(bool)
		o := s.table("options")
		f := o.table("toolFilter")
		tools := f.texts("list")
		switch mode := f.text("mode"); mode {
		case "allow":
			server.allow, server.hasToolFilter = tools, true
		case "block":
			server.hide, server.hasToolFilter = tools, true
		case "":
		default:
			server.lost = append(server.lost, f.path+".mode = "+mode)
		}
		server.lost = slices.Concat(server.lost, s.unread(), o.unread(), f.unread())
		c.servers = append(c.servers, server)
	}
	return c
}

// setCommand sets the command, unless it is empty.
func (s *foreignServer) setCommand(command string, args []string) {
	if command != "" {
		s.command = append([]string{command}, args...)
	}
}

// readMCPProxyGo reads the configuration of smart-mcp-proxy/mcpproxy-go.
func readMCPProxyGo(t *table) *foreignConfig {
	c := &foreignConfig{kind: "mcpproxy-go"}
	all, _ := t.tables("mcpServers")
	for _, s := range all {
		server := foreignServer{name: s.text("name"), url: s.text("url"), env: s.pairs("env"),
			headers: s.pairs("headers"), cwd: s.text("working_dir"),
			hide: s.texts("disabled_tools"), allow: s.texts("enabled_tools")}
		server.setCommand(s.text("command"), s.texts("args"))
		server.hasToolFilter = len(server.allow)+len(server.hide) > 0
		for _, key := range []string{"protocol", "created", "updated"} {
			s.take(key)
		}
		if enabled, ok := s.take("enabled").(bool); ok && !enabled {
			server.isOff = true
		}
		if quarantined, _ := s.take("quarantined").(bool); quarantined {
			server.isOff = true
			server.lost = append(server.lost, s.path+".quarantined = true")
		}
		server.lost = append(server.lost, s.unread()...)
		c.servers = append(c.servers, server)
	}
	return c
}

// readAgentgateway reads the configuration of agentgateway.
func readAgentgateway(t *table) *foreignConfig {
	c := &foreignConfig{kind: "agentgateway"}
	each := func(t *table, key string, f func(*table)) {
		all, _ := t.tables(key)
		for _, next := range all {
			f(next)
			c.lost = append(c.lost, next.unread()...)
		}
	}
	each(t, "binds", func(b *table) {
		b.take("port")
		each(b, "listeners", func(l *table) {
			each(l, "routes", func(r *table) {
				each(r, "backends", func(b *table) {
					m := b.table("mcp")
					each(m, "targets", func(target *table) {
						c.servers = append(c.servers, agentgatewayTarget(target))
					})
					c.lost = append(c.lost, m.unread()...)
				})
			})
		})
	})
	return c
}

func agentgatewayTarget(t *table) foreignServer {
	s := foreignServer{name: t.text("name")}
	stdio := t.table("stdio")
	s.setCommand(stdio.text("cmd"), stdio.texts("args"))
	s.env = stdio.pairs("env")
	s.lost = stdio.unread()
	for _, key := range []string{"sse", "mcp"} { // of two, mcp is used
		path := "/" + key
		remote := t.table(key)
		if host := remote.text("host"); host != "" {
			s.url = host
			if !strings.Contains(host, "://") {
				if port := remote.take("port"); port != nil {
					host = fmt.Sprintf("%s:%v", host, port)
				}
				s.url = (&url.URL{Scheme: "http", Host: host,
					Path: cmp.Or(remote.text("path"), path)}).String()
			}
			remote.take("port")
			remote.take("path")
		}
		s.lost = append(s.lost, remote.unread()...)
	}
	return s
}

// readDockerCatalog reads a catalog of docker/mcp-gateway. Its servers are images.
func readDockerCatalog(t *table) *foreignConfig {
	c := &foreignConfig{kind: "docker catalog"}
	for _, key := range []string{"version", "name", "displayName"} {
		t.take(key)
	}
	all, names := t.tables("registry")
	for i, s := range all {
		server := foreignServer{name: names[i], env: map[string]string{}}
		for _, key := range []string{"description", "title", "type", "icon", "readme", "toolsUrl",
			"source", "upstream", "dateAdded", "metadata", "tools", "prompts", "resources", "ref",
			"name", "displayName", "longDescription", "tags", "license"} {
			s.take(key) // they describe the server
		}
		remote := s.table("remote")
		server.url, server.headers = remote.text("url"), remote.pairs("headers")
		remote.take("transport_type")
		server.lost = append(server.lost, remote.unread()...)
		var variables []string
		env, _ := s.tables("env")
		for _, e := range env {
			name := e.text("name")
			if value := e.take("value"); value != nil {
				server.env[name] = fmt.Sprint(value)
			}
			variables = append(variables, name)
		}
		secrets, _ := s.tables("secrets")
		for _, e := range secrets {
			name := cmp.Or(e.text("env"), e.text("name"))
			server.env[name] = ""
			variables = append(variables, name)
			server.lost = append(server.lost, e.path+": set the secret "+name)
		}
		if image := s.text("image"); image != "" {
			command := []string{"docker", "run", "-i", "--rm"}
			for _, name := range variables {
				command = append(command, "-e", name)
			}
			for _, v := range s.texts("volumes") {
				command = append(command, "-v", v)
			}
			server.command = slices.Concat(command, []string{image}, s.texts("command"))
		}
		server.lost = append(server.lost, s.unread()...)
		c.servers = append(c.servers, server)
	}
	return c
}

// readToolHive reads what thv export writes about one workload.
func readToolHive(t *table) *foreignConfig {
	c := &foreignConfig{kind: "ToolHive"}
	s := foreignServer{name: t.text("name"), url: t.text("remote_url"), env: t.pairs("env_vars")}
	for _, key := range []string{"schema_version", "transport", "host", "port", "target_port",
		"target_host", "container_name", "base_name", "container_labels", "debug", "group"} {
		t.take(key)
	}
	if image := t.text("image"); image != "" {
		command := []string{"docker", "run", "-i", "--rm"}
		for _, name := range slices.Sorted(maps.Keys(s.env)) {
			command = append(command, "-e", name)
		}
		for _, v := range t.texts("volumes") {
			command = append(command, "-v", v)
		}
		s.command = slices.Concat(command, []string{image}, t.texts("cmd_args"))
	}
	if tools := t.texts("tools_filter"); len(tools) > 0 {
		s.allow, s.hasToolFilter = tools, true
	}
	for _, secret := range t.texts("secrets") {
		s.lost = append(s.lost, "secrets: "+secret)
	}
	c.servers = append(c.servers, s)
	return c
}

// readPythonGatekit reads the gatekit.yaml of the Python Gatekit.
func readPythonGatekit(t *table) *foreignConfig {
	c := &foreignConfig{kind: "Python Gatekit"}
	p := t.table("proxy")
	p.take("transport")
	all, _ := p.tables("upstreams")
	for _, u := range all {
		s := foreignServer{name: u.text("name"), url: u.text("url"), env: u.pairs("env"),
			command: u.texts("command")}
		if line := u.text("command"); line != "" {
			s.command = strings.Fields(line)
		}
		u.take("transport")
		s.lost = u.unread()
		c.servers = append(c.servers, s)
	}
	c.lost = append(c.lost, p.unread()...)
	return c
}

// errNoServers is the error when there is nothing to write into a configuration.
var errNoServers = errors.New("no servers found")
