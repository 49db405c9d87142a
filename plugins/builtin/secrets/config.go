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

	"github.com/agnivade/levenshtein"
	"github.com/go-json-experiment/json"

	"gatekit/core/mcp"
)

//go:embed schema.json
var schema []byte

// config is the plugin's configuration: see schema.json.
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
}

// customRule is a rule of the user's.
type customRule struct {
	ID          string   `json:"id"`
	Regex       string   `json:"regex"`
	Keywords    []string `json:"keywords"`
	SecretGroup int      `json:"secretGroup"`
	Entropy     float64  `json:"entropy"`
}

// allowEntry is a finding that is none.
type allowEntry struct {
	Rule    string `json:"rule"`
	SHA256  string `json:"sha256"`
	Value   string `json:"value"`
	Server  string `json:"server"`
	Method  string `json:"method"`
	Tool    string `json:"tool"`
	Pointer string `json:"pointer"`

	value *regexp.Regexp
}

// parseConfig reads a configuration, with defaults, and says what is wrong with it, all at once.
func parseConfig(b []byte) (*config, error) {
	c := &config{Action: "redact", Directions: []string{"to_server", "to_client"}, Decode: true,
		Entropy: entropyOptions{MinLength: 20, Threshold: 4.2}}
	if err := json.Unmarshal(b, c, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	if !slices.Contains([]string{"redact", "block", "audit"}, c.Action) {
		fault("action: %q is none: redact, block or audit", c.Action)
	}
	if len(c.Directions) == 0 {
		fault("directions: none, so that nothing would be looked at: to_server, to_client or both")
	}
	for _, d := range c.Directions {
		if parseDirection(d) == 0 {
			fault("directions: %q is none: to_server or to_client", d)
		}
	}
	for i, a := range c.Rules.Add {
		at := fmt.Sprintf("rules.add[%d]", i)
		if !validID.MatchString(a.ID) {
			fault("%s.id: %q is no name for a rule: a-z, 0-9 and -, at most 64 characters", at,
				a.ID)
		}
		re, err := regexp.Compile(a.Regex)
		switch {
		case err != nil:
			fault("%s.regex: %w", at, err)
		case a.Regex == "" || re.MatchString(""):
			fault("%s.regex: it matches a text without anything in it: make it ask for the secret",
				at)
		case a.SecretGroup < 0 || a.SecretGroup > re.NumSubexp():
			fault("%s.secretGroup: there is no group %d: the regex has %d", at, a.SecretGroup,
				re.NumSubexp())
		}
		if a.Entropy < 0 || a.Entropy > 8 {
			fault("%s.entropy: %g bits a character: 0 to 8", at, a.Entropy)
		}
		for _, k := range a.Keywords {
			if len(k) < 2 {
				fault("%s.keywords: %q is too short: two characters at least", at, k)
			}
		}
	}
	if e := c.Entropy; e.MinLength < 10 || e.MinLength > maxRandomLength {
		fault("entropy.min_length: %d: 10 to %d", e.MinLength, maxRandomLength)
	}
	if e := c.Entropy; e.Threshold < 3 || e.Threshold > 6 {
		fault("entropy.threshold: %g: 3 to 6", e.Threshold)
	}
	for i := range c.Allow {
		a, at := &c.Allow[i], fmt.Sprintf("allow[%d]", i)
		if *a == (allowEntry{}) {
			fault("%s: no condition, so that it would allow everything: give it a rule, sha256, "+
				"value, server, method, tool or pointer", at)
		}
		if a.SHA256 != "" {
			if sum, err := hex.DecodeString(a.SHA256); err != nil || len(sum) != sha256.Size {
				fault("%s.sha256: it is no SHA-256: 64 hexadecimal characters, as printf %%s "+
					"SECRET | sha256sum says", at)
			}
			a.SHA256 = strings.ToLower(a.SHA256)
		}
		if a.Value != "" {
			re, err := regexp.Compile(`^(?:` + a.Value + `)$`)
			if err != nil {
				fault("%s.value: %w", at, err)
			}
			a.value = re
		}
		if a.Pointer != "" && a.Pointer[0] != '/' && a.Pointer != "*" {
			fault("%s.pointer: %q does not begin with /", at, a.Pointer)
		}
	}
	return c, errors.Join(faults...)
}

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func parseDirection(s string) mcp.Direction {
	for _, d := range []mcp.Direction{mcp.ToServer, mcp.ToClient} {
		if s == d.String() {
			return d
		}
	}
	return 0
}

// selectRules answers the rules that the configuration asks for.
func (c *config) selectRules(all []ruleSource) ([]ruleSource, error) {
	ids := []string{namedID}
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	var faults []error
	known := func(option, id string) {
		if !slices.Contains(ids, id) {
			faults = append(faults, fmt.Errorf("%s: no rule %q%s", option, id, didYouMean(id, ids)))
		}
	}
	for _, id := range c.Rules.Enable {
		known("rules.enable", id)
	}
	for _, id := range c.Rules.Disable {
		if id != "*" {
			known("rules.disable", id)
		}
	}
	var chosen []ruleSource
	for _, s := range all {
		if c.isEnabled(s.ID, !s.Off) {
			chosen = append(chosen, s)
		}
	}
	for i, a := range c.Rules.Add {
		if slices.Contains(ids, a.ID) || a.ID == entropyID {
			faults = append(faults, fmt.Errorf("rules.add[%d].id: there is a rule %q already", i,
				a.ID))
		}
		ids = append(ids, a.ID)
		chosen = append(chosen, ruleSource{ID: a.ID, Regex: a.Regex, Keywords: a.Keywords,
			SecretGroup: a.SecretGroup, Entropy: a.Entropy})
	}
	ids = append(ids, entropyID) // it has an option of its own
	for i, a := range c.Allow {
		if a.Rule != "" {
			known(fmt.Sprintf("allow[%d].rule", i), a.Rule)
		}
	}
	return chosen, errors.Join(faults...)
}

// isEnabled says whether the rule applies.
func (c *config) isEnabled(id string, unlessSaid bool) bool {
	switch {
	case slices.Contains(c.Rules.Disable, id):
		return false
	case slices.Contains(c.Rules.Enable, id):
		return true
	}
	return unlessSaid && !slices.Contains(c.Rules.Disable, "*")
}

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
