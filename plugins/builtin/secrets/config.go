package secrets

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"github.com/go-json-experiment/json"

	"gatekit/core/mcp"
)

//go:embed schema.json
var schema []byte

// config is the plugin's configuration. schema.json describes its options.
type config struct {
	Action     string   `json:"action"`
	Key        string   `json:"key"`
	Directions []string `json:"directions"`
	Decode     bool     `json:"decode"`
	Rules      struct {
		Enable  []string     `json:"enable"`
		Disable []string     `json:"disable"`
		Add     []customRule `json:"add"`
	} `json:"rules"`
	Entropy entropyOptions `json:"entropy"`
	Allow   []allowEntry   `json:"allow"`

	Restore      string   `json:"restore"`
	RestoreFor   string   `json:"restore_for"`
	RestoreTools []string `json:"restore_tools"`

	restoreFor time.Duration // RestoreFor, parsed
}

// customRule is a rule of the option "rules.add".
type customRule struct {
	ID          string   `json:"id"`
	Regex       string   `json:"regex"`
	Keywords    []string `json:"keywords"`
	SecretGroup int      `json:"secretGroup"`
	Entropy     float64  `json:"entropy"`
}

// allowEntry is an entry of the option "allow": findings that meet all its conditions are ignored.
type allowEntry struct {
	Rule    string `json:"rule"`
	SHA256  string `json:"sha256"`
	Value   string `json:"value"`
	Server  string `json:"server"`
	Method  string `json:"method"`
	Tool    string `json:"tool"`
	Pointer string `json:"pointer"`

	value *regexp.Regexp // Value, compiled to match the whole secret
}

// minKey is the smallest number of characters of the option key.
const minKey = 16

// parseConfig parses a configuration and fills in the defaults. The error names all mistakes at
// once.
func parseConfig(b []byte) (*config, error) {
	c := &config{Action: "redact", Directions: []string{"to_server", "to_client"}, Decode: true,
		Restore: "off", RestoreFor: "1h", Entropy: entropyOptions{MinLength: 20, Threshold: 4.2}}
	if err := json.Unmarshal(b, c, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	if !slices.Contains([]string{"redact", "block", "audit"}, c.Action) {
		fault("action: %q is not known: use redact, block or audit", c.Action)
	}
	if n := utf8.RuneCountInString(c.Key); n > 0 && n < minKey {
		fault("key: the key has %d characters: use %d or more", n, minKey)
	}
	if len(c.Directions) == 0 {
		fault("directions: the list is empty, so no message would be searched: use to_server, " +
			"to_client or both")
	}
	for _, d := range c.Directions {
		if parseDirection(d) == 0 {
			fault("directions: %q is not known: use to_server or to_client", d)
		}
	}
	for i, a := range c.Rules.Add {
		path := fmt.Sprintf("rules.add[%d]", i)
		if !validID.MatchString(a.ID) {
			fault("%s.id: %q is not a valid rule id: use a-z, 0-9 and -, at most 64 characters",
				path, a.ID)
		}
		re, err := regexp.Compile(a.Regex)
		switch {
		case err != nil:
			fault("%s.regex: %w", path, err)
		case a.Regex == "" || re.MatchString(""):
			fault("%s.regex: the regex matches an empty text: make it require the secret", path)
		case a.SecretGroup < 0 || a.SecretGroup > re.NumSubexp():
			fault("%s.secretGroup: there is no group %d: the regex has %d groups", path,
				a.SecretGroup, re.NumSubexp())
		}
		if a.Entropy < 0 || a.Entropy > 8 {
			fault("%s.entropy: %g is out of range: use 0 to 8 bits a character", path, a.Entropy)
		}
		for _, k := range a.Keywords {
			if len(k) < 2 {
				fault("%s.keywords: %q is too short: use two characters or more", path, k)
			}
		}
	}
	if e := c.Entropy; e.MinLength < 10 || e.MinLength > maxRandomLength {
		fault("entropy.min_length: %d is out of range: use 10 to %d", e.MinLength, maxRandomLength)
	}
	if e := c.Entropy; e.Threshold < 3 || e.Threshold > 6 {
		fault("entropy.threshold: %g is out of range: use 3 to 6", e.Threshold)
	}
	for i := range c.Allow {
		a, path := &c.Allow[i], fmt.Sprintf("allow[%d]", i)
		if *a == (allowEntry{}) {
			fault("%s: the entry has no condition and would allow every finding: add a rule, "+
				"sha256, value, server, method, tool or pointer", path)
		}
		if a.SHA256 != "" {
			if sum, err := hex.DecodeString(a.SHA256); err != nil || len(sum) != sha256.Size {
				fault("%s.sha256: the value is not a SHA-256 of 64 hexadecimal characters: make "+
					"one with printf %%s SECRET | sha256sum", path)
			}
			a.SHA256 = strings.ToLower(a.SHA256)
		}
		if a.Value != "" {
			re, err := regexp.Compile(`^(?:` + a.Value + `)$`)
			if err != nil {
				fault("%s.value: %w", path, err)
			}
			a.value = re
		}
		if a.Pointer != "" && a.Pointer[0] != '/' && a.Pointer != "*" {
			fault("%s.pointer: %q does not begin with /", path, a.Pointer)
		}
	}
	c.checkRestore(fault)
	return c, errors.Join(faults...)
}

// checkRestore checks the options that begin with restore. It calls fault for each mistake.
func (c *config) checkRestore(fault func(format string, a ...any)) {
	var err error
	if c.restoreFor, err = time.ParseDuration(c.RestoreFor); err != nil ||
		c.restoreFor < time.Second || c.restoreFor > 24*time.Hour {
		fault("restore_for: %q is not a time from 1s to 24h: write a number and a unit, as in 90m",
			c.RestoreFor)
	}
	switch c.Restore {
	case "off", "same-server", "entitled":
	default:
		fault("restore: %q is not known: use off, same-server or entitled", c.Restore)
	}
	if c.Restore != "off" && c.Action != "redact" {
		fault("restore: nothing is redacted with action = %q: set action to redact, or restore to "+
			"off", c.Action)
	}
	if c.Restore != "off" && !slices.Contains(c.Directions, "to_client") {
		fault("restore: nothing that servers send is redacted: add to_client to directions, or " +
			"set restore to off")
	}
	switch {
	case c.Restore == "entitled" && len(c.RestoreTools) == 0:
		fault("restore_tools: restore = \"entitled\" needs tools: list them as SERVER/TOOL, or " +
			"use restore = \"same-server\"")
	case c.Restore != "entitled" && len(c.RestoreTools) > 0:
		fault("restore_tools: the list has no effect with restore = %q: use \"entitled\"",
			c.Restore)
	}
	for i, tool := range c.RestoreTools {
		server, name, ok := strings.Cut(tool, "/")
		if !ok || server == "" || name == "" || strings.Contains(server, "*") ||
			strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			fault("restore_tools[%d]: %q is not SERVER/TOOL; only TOOL may end with *", i, tool)
		}
	}
}

// validID is the form of a rule's id.
var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// parseDirection returns the direction with the name s, or 0 if there is none.
func parseDirection(s string) mcp.Direction {
	for _, d := range []mcp.Direction{mcp.ToServer, mcp.ToClient} {
		if s == d.String() {
			return d
		}
	}
	return 0
}

// selectRules returns the rules that apply: the rules in all that the configuration enables, and
// the rules that the configuration adds.
func (c *config) selectRules(all []ruleSource) ([]ruleSource, error) {
	var ids []string
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	var faults []error
	checkID := func(option, id string) {
		if !slices.Contains(ids, id) {
			faults = append(faults, fmt.Errorf("%s: there is no rule %q%s", option, id,
				didYouMean(id, ids)))
		}
	}
	for _, id := range c.Rules.Enable {
		checkID("rules.enable", id)
	}
	for _, id := range c.Rules.Disable {
		if id != "*" {
			checkID("rules.disable", id)
		}
	}
	var selected []ruleSource
	for _, s := range all {
		if c.isEnabled(s.ID, !s.Off) {
			selected = append(selected, s)
		}
	}
	for i, a := range c.Rules.Add {
		if slices.Contains(ids, a.ID) || a.ID == entropyID {
			faults = append(faults, fmt.Errorf("rules.add[%d].id: there is already a rule %q", i,
				a.ID))
		}
		ids = append(ids, a.ID)
		selected = append(selected, ruleSource{ID: a.ID, Regex: a.Regex, Keywords: a.Keywords,
			SecretGroup: a.SecretGroup, Entropy: a.Entropy})
	}
	ids = append(ids, entropyID) // only for allow: the option entropy enables the rule
	for i, a := range c.Allow {
		if a.Rule != "" {
			checkID(fmt.Sprintf("allow[%d].rule", i), a.Rule)
		}
	}
	return selected, errors.Join(faults...)
}

// isEnabled reports whether the rule applies. byDefault is true if the rule applies to a
// configuration that does not name it.
func (c *config) isEnabled(id string, byDefault bool) bool {
	switch {
	case slices.Contains(c.Rules.Disable, id):
		return false
	case slices.Contains(c.Rules.Enable, id):
		return true
	}
	return byDefault && !slices.Contains(c.Rules.Disable, "*")
}

// didYouMean returns ", did you mean …?" with the rule id most similar to id. It returns "" if no
// rule id is similar.
func didYouMean(id string, ids []string) string {
	best, distance := "", 4
	for _, other := range ids {
		if d := levenshtein.ComputeDistance(id, other); d < distance {
			best, distance = other, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}
