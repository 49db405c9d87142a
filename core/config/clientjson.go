package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// clientServer is one server in the JSON configuration of an MCP client. Different clients use
// different keys.
type clientServer struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]any    `json:"env"`
	Cwd       string            `json:"cwd"`
	URL       string            `json:"url"`
	ServerURL string            `json:"serverUrl"` // Windsurf
	HTTPURL   string            `json:"httpUrl"`   // Gemini CLI
	Headers   map[string]string `json:"headers"`
}

func (s clientServer) address() string { return cmp.Or(s.URL, s.ServerURL, s.HTTPURL) }

// reportJSONFile returns true if doc is JSON instead of TOML. It then adds an error. If doc is the
// configuration of an MCP client, the error contains its servers as TOML tables.
func (l *loader) reportJSONFile(doc string) bool {
	start := len(doc) - len(strings.TrimLeftFunc(doc, unicode.IsSpace))
	if !strings.HasPrefix(doc[start:], "{") {
		return false
	}
	if _, ok := l.reportClientJSON(doc, start); !ok {
		l.addError(l.doc.position(start), "the file is JSON, and Gatekit's configuration is "+
			"TOML: write each server as [server.NAME] with a command or a url")
	}
	return true
}

// reportClientJSON looks for servers in the JSON of an MCP client. The JSON begins at the offset
// start of doc, and is an object or a key with an object. If it contains servers, reportClientJSON
// adds an error that contains these servers as TOML tables, and returns the end of the JSON.
func (l *loader) reportClientJSON(doc string, start int) (end int, ok bool) {
	at := l.doc.position(start)
	var key string
	if strings.HasPrefix(doc[start:], `"`) {
		d := json.NewDecoder(strings.NewReader(doc[start:]))
		t, err := d.Token()
		if err != nil {
			return 0, false
		}
		key, _ = t.(string)
		start += int(d.InputOffset())
		rest := strings.TrimLeft(doc[start:], " \t\r\n")
		if !strings.HasPrefix(rest, ":") {
			return 0, false
		}
		start = len(doc) - len(rest) + 1
	}
	d := json.NewDecoder(strings.NewReader(doc[start:]))
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		return 0, false
	}
	servers := serversInJSON(key, value, 0)
	if len(servers) == 0 {
		return 0, false
	}
	l.addError(at, "this is the JSON of an MCP client, and Gatekit's configuration is TOML; "+
		"write instead:\n\n%s", serverTables(servers))
	end = start + int(d.InputOffset())
	if strings.HasPrefix(doc[end:], ",") {
		end++
	}
	return end, true
}

// serversInJSON returns the servers in the value of a key, by name. The value is a server, an
// object of servers, or an object that contains an object of servers, such as {"mcpServers": {…}}.
// serversInJSON stops at a depth of three keys: the deepest form that clients use is
// {"mcp": {"servers": {NAME: {…}}}}.
func serversInJSON(key string, value json.RawMessage, depth int) map[string]clientServer {
	var s clientServer
	if err := json.Unmarshal(value, &s); err == nil && (s.Command != "" || s.address() != "") {
		return map[string]clientServer{cmp.Or(key, "server"): s}
	}
	var members map[string]json.RawMessage
	if depth == 3 || json.Unmarshal(value, &members) != nil {
		return nil
	}
	all := map[string]clientServer{}
	for name, member := range members {
		maps.Copy(all, serversInJSON(name, member, depth+1))
	}
	return all
}

var (
	notInServerName = regexp.MustCompile(`[^a-z0-9]+`)
	bareKey         = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// serverTables returns the servers as TOML tables. It replaces the values of environment variables
// and headers by substitutions, since they may be secrets.
func serverTables(servers map[string]clientServer) string {
	var b strings.Builder
	hasSecrets := false
	substitutions := func(names []string) string { // an inline table with a value for each name
		var pairs []string
		for _, name := range names {
			hasSecrets = true
			variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
			key := name
			if !bareKey.MatchString(name) {
				key = QuoteTOML(name)
			}
			pairs = append(pairs, key+" = "+QuoteTOML("${env:"+variable+"}"))
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	}
	taken := map[string]bool{}
	for _, given := range slices.Sorted(maps.Keys(servers)) {
		s := servers[given]
		base := notInServerName.ReplaceAllString(strings.ToLower(given), "-")
		base = cmp.Or(strings.TrimRight(strings.TrimLeft(base, "-0123456789"), "-"), "server")
		name := base
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		taken[name] = true
		fmt.Fprintf(&b, "[server.%s]\n", name)
		if s.Command == "" {
			fmt.Fprintf(&b, "url = %s\n", QuoteTOML(s.address()))
			if len(s.Headers) > 0 {
				fmt.Fprintf(&b, "headers = %s\n", substitutions(
					slices.Sorted(maps.Keys(s.Headers))))
			}
			b.WriteString("\n")
			continue
		}
		fmt.Fprintf(&b, "command = %s\n", QuoteTOML(s.Command))
		if len(s.Args) > 0 {
			args := make([]string, len(s.Args))
			for i, a := range s.Args {
				args[i] = QuoteTOML(a)
			}
			fmt.Fprintf(&b, "args = [%s]\n", strings.Join(args, ", "))
		}
		if s.Cwd != "" {
			fmt.Fprintf(&b, "cwd = %s\n", QuoteTOML(s.Cwd))
		}
		if len(s.Env) > 0 {
			fmt.Fprintf(&b, "env = %s\n", substitutions(slices.Sorted(maps.Keys(s.Env))))
		}
		b.WriteString("\n")
	}
	if hasSecrets {
		b.WriteString("hint: ${env:NAME} is a variable in Gatekit's environment; you can also " +
			"write the value itself")
	}
	return strings.TrimRight(b.String(), "\n")
}

// QuoteTOML returns s as a TOML string. It escapes control characters, which a terminal would act
// on.
func QuoteTOML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
