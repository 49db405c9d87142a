package attacks

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/pelletier/go-toml/v2"
)

//go:embed cases/*.toml
var files embed.FS

// Eras are the eras of the protocol that a case is played in.
const (
	Legacy = "legacy" // 2025-11-25
	Modern = "modern" // 2026-07-28
)

// Classes returns the classes of the cases, in the order of a report.
func Classes() []string {
	return []string{"poisoned definitions", "rug pull", "confused names", "enum bypass",
		"undeclared argument", "fake error", "injected result", "split payload",
		"exfiltration by URL", "leaked secret", "traversal", "SSRF", "elicitation of secrets",
		"sampling abuse", "skills"}
}

// Lists returns the entries of the lists of OWASP that cases name, with their titles:
//
//   - OWASP Top 10 for Model Context Protocol, version v0.1:
//     https://owasp.org/www-project-mcp-top-10/, compared on 2026-11-28 with tab_top10.md in the
//     repository OWASP/www-project-mcp-top-10. That page writes some numbers with one digit; the
//     pages of the entries write two.
//   - OWASP Top 10 for Agentic Applications 2026, published on 2025-12-09:
//     https://genai.owasp.org/resource/owasp-top-10-for-agentic-applications-for-2026/. The titles
//     have "and" and "&" as the headings of the document do.
func Lists() map[string]string {
	return map[string]string{
		"MCP01:2025": "Token Mismanagement & Secret Exposure",
		"MCP02:2025": "Privilege Escalation via Scope Creep",
		"MCP03:2025": "Tool Poisoning",
		"MCP04:2025": "Software Supply Chain Attacks & Dependency Tampering",
		"MCP05:2025": "Command Injection & Execution",
		"MCP06:2025": "Intent Flow Subversion",
		"MCP07:2025": "Insufficient Authentication & Authorization",
		"MCP10:2025": "Context Injection & Over-Sharing",
		"ASI01":      "Agent Goal Hijack",
		"ASI02":      "Tool Misuse and Exploitation",
		"ASI03":      "Identity and Privilege Abuse",
		"ASI04":      "Agentic Supply Chain Vulnerabilities",
		"ASI05":      "Unexpected Code Execution (RCE)",
		"ASI06":      "Memory & Context Poisoning",
		"ASI09":      "Human-Agent Trust Exploitation",
	}
}

// Case is an attack or an honest look-alike.
type Case struct {
	Name   string   `toml:"-"`
	Class  string   `toml:"class"`
	About  string   `toml:"about"`
	Source string   `toml:"source"`
	OWASP  []string `toml:"owasp"`
	Honest bool     `toml:"honest"`
	Eras   []string `toml:"eras"`
	Needs  string   `toml:"needs"`

	Requests []Request         `toml:"request"`
	Server   map[string]string `toml:"server"`
	Later    []Later           `toml:"later"`
	Ask      *Request          `toml:"ask"`
	Mark     Mark              `toml:"mark"`
}

// Request is a request of the client or of the server.
type Request struct {
	Method string `toml:"method"`
	Params string `toml:"params"`
}

// Later has results of the server that replace others.
type Later struct {
	After   int               `toml:"after"`
	Results map[string]string `toml:"results"`
}

// Mark has the texts of the harm or the use of a case.
type Mark struct {
	Reaches string   `toml:"reaches"`
	Texts   []string `toml:"texts"`
}

// RugPull is the Needs of a case in which a server changes its definitions.
const RugPull = "rug-pull"

// Cases returns the built-in cases, sorted by name.
func Cases() ([]Case, error) {
	inside, err := fs.Sub(files, "cases")
	if err != nil {
		return nil, err
	}
	return Read(inside)
}

// Read reads the cases in the files *.toml of a folder. It returns an error for the first file that
// is not as the documentation of the package says.
func Read(folder fs.FS) (all []Case, err error) {
	names, err := fs.Glob(folder, "*.toml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		c := Case{Name: strings.TrimSuffix(path.Base(name), ".toml")}
		d := toml.NewDecoder(strings.NewReader(string(b)))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(c.Eras) == 0 {
			c.Eras = []string{Legacy, Modern}
		}
		all = append(all, c)
	}
	return all, nil
}

func (c *Case) check() error {
	lists := Lists()
	switch {
	case !slices.Contains(Classes(), c.Class):
		return fmt.Errorf("class %q: it must be one of %s", c.Class, strings.Join(Classes(), ", "))
	case c.About == "" || c.Source == "":
		return errors.New("about and source must not be empty")
	case len(c.OWASP) == 0 && !c.Honest:
		return errors.New("owasp must name at least one entry")
	case len(c.Requests) == 0:
		return errors.New("there is no [[request]]")
	case c.Mark.Reaches != "client" && c.Mark.Reaches != "server":
		return fmt.Errorf("mark.reaches is %q: it must be client or server", c.Mark.Reaches)
	case len(c.Mark.Texts) == 0 || slices.Contains(c.Mark.Texts, ""):
		return errors.New("mark.texts must have texts")
	case c.Needs != "" && c.Needs != RugPull:
		return fmt.Errorf("needs is %q: it must be %s, or not there", c.Needs, RugPull)
	}
	for _, entry := range c.OWASP {
		if lists[entry] == "" {
			return fmt.Errorf("owasp: %q is no entry of the lists", entry)
		}
	}
	for _, era := range c.Eras {
		if era != Legacy && era != Modern {
			return fmt.Errorf("eras: %q is neither %s nor %s", era, Legacy, Modern)
		}
	}
	texts := map[string]string{}
	for i, r := range c.Requests {
		texts[fmt.Sprintf("params of request %d", i+1)] = r.Params
	}
	for method, result := range c.Server {
		texts["server."+method] = result
	}
	for _, l := range c.Later {
		for method, result := range l.Results {
			texts["later."+method] = result
		}
	}
	if c.Ask != nil {
		texts["ask.params"] = c.Ask.Params
	}
	for where, text := range texts {
		if v := jsontext.Value(text); !v.IsValid() || v.Kind() != '{' {
			return fmt.Errorf("%s: it is no JSON object", where)
		}
	}
	return nil
}
