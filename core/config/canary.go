package config

import (
	"slices"
	"strings"
)

// Bounds of canaries. A shorter value, or one of few different characters, could be in an honest
// message by chance.
const (
	maxCanaryValues   = 256 // of all canaries together
	minCanaryBytes    = 12
	maxCanaryBytes    = 512
	minCanaryDistinct = 6 // different characters
)

// Canary is one [canary.NAME]: planted values; a message with one raises an alarm.
type Canary struct {
	// Name is the name in the header. Records have the name, and never the value.
	Name string `toml:",name"`

	// Values holds the planted values, such as "${file:canary.key}": each of 12 to 512 printable
	// ASCII characters without a blank, 6 of them different. All canaries together have at most
	// 256.
	Values []Secret `toml:"values"`
	// Action is the effect on a message with a value: deny (it is refused) or record (it passes,
	// and its record has the action would_deny). Default: deny.
	Action string `toml:"action"`
}

// checkCanaries checks each [canary.NAME], and masks the values in logs.
func (l *loader) checkCanaries(c *Config, root *node) {
	total := 0
	seen := map[string]string{} // the names of the canaries, by value
	for i := range c.Canaries {
		canary := &c.Canaries[i]
		n, name := root.lookup("canary", canary.Name), "canary."+canary.Name
		if !serverName.MatchString(canary.Name) {
			l.errorf(n, `%q is not a valid canary name: it must start with a-z and contain only `+
				`a-z, 0-9 and "-"`, canary.Name)
		}
		l.checkOneOf(&canary.Action, n, name, "action", "deny", "record")
		if len(canary.Values) == 0 && !l.isUnknown(n, "values") {
			l.errorf(n, `%s.values is missing or empty; write values = ["${file:canary.key}"]`,
				name)
		}
		for j, secret := range canary.Values {
			value := string(secret)
			at := n.lookup("values").item(j)
			l.noteSubstituted(value, name)
			fault := canaryFault(value)
			if other, ok := seen[strings.ToLower(value)]; ok && fault == "" {
				fault = "is also a value of canary." + other
			}
			if fault != "" && !l.hasErrorAt(at) {
				l.errorf(at, "%s.values[%d] %s", name, j, fault)
			}
			seen[strings.ToLower(value)] = canary.Name
		}
		total += len(canary.Values)
		if total > maxCanaryValues && total-len(canary.Values) <= maxCanaryValues {
			l.errorf(n, "the canaries have more than %d values; remove values", maxCanaryValues)
		}
	}
}

// canaryFault returns what is wrong with a value, or "". It does not quote the value.
func canaryFault(value string) string {
	switch distinct := []byte(value); {
	case len(value) < minCanaryBytes:
		return "is shorter than 12 characters, so honest messages could have it by chance"
	case len(value) > maxCanaryBytes:
		return "is longer than 512 characters"
	case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "must be printable ASCII without a blank, on one line"
	default:
		slices.Sort(distinct)
		if len(slices.Compact(distinct)) < minCanaryDistinct {
			return "has fewer than 6 different characters, so honest messages could have it by " +
				"chance"
		}
	}
	return ""
}
