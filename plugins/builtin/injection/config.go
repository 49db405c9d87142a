package injection

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// action is the reaction to a family of attacks. Lower actions are stricter, and the zero action
// denies.
type action uint8

const (
	actionDeny  action = iota
	actionHide         // remove the item from its list and deny its use; outside of lists, deny
	actionStrip        // remove the dangerous part
	actionFlag         // only record a finding
	actionOff          // do not search for the family
)

var actionNames = [...]string{"deny", "hide", "strip", "flag", "off"}

func (a action) String() string { return actionNames[a] }

// stricter returns the stricter of two actions.
func stricter(a, b action) action { return min(a, b) }

// settings is a valid configuration, with defaults filled in.
type settings struct {
	actions       [numFamilies]action
	threshold     int
	usesDiscount  bool   // texts about attacks score less
	toServer      string // off, flag or same
	allowUnlisted bool   // items that were not listed may be used
	scoring       classifierSettings
}

// options is a configuration as it is written. schema.json describes it.
type options struct {
	Sensitivity string            `json:"sensitivity"`
	Actions     map[string]string `json:"actions"`
	ToServer    string            `json:"to_server"`
	Unlisted    string            `json:"unlisted"`
	Classifier  *struct {
		URL       string   `json:"url"`
		Timeout   string   `json:"timeout"`
		Threshold *float64 `json:"threshold"`
		OnError   string   `json:"on_error"`
		MaxBytes  int      `json:"max_bytes"`
	} `json:"classifier"`
}

// thresholds are the scores from which a text is treated as an attack, by sensitivity.
var thresholds = map[string]int{"relaxed": 8, "standard": 7, "strict": 4}

// findingThreshold is the score from which the hits in a text are recorded as findings.
const findingThreshold = 4

// defaultActions are the actions of the families that a configuration does not name.
var defaultActions = [numFamilies]action{
	familyOverride: actionHide, familyRole: actionHide, familyDelimiter: actionHide,
	familyConcealment: actionHide, familyExfiltration: actionHide, familyCoercion: actionHide,
	familyHidden: actionStrip, familyTerminal: actionStrip,
	familyConfusable: actionHide, familyShadowing: actionHide, familyReference: actionHide,
	familySteering: actionFlag, familyWording: actionFlag, familyClassifier: actionHide,
}

// parseConfig parses a configuration. The error names all mistakes at once.
func parseConfig(config []byte) (settings, error) {
	if len(bytes.TrimSpace(config)) == 0 {
		config = []byte("{}")
	}
	var o options
	if err := json.Unmarshal(config, &o, json.RejectUnknownMembers(true),
		jsontext.AllowDuplicateNames(false)); err != nil {
		return settings{}, fmt.Errorf("injection: %w", err)
	}
	s := settings{actions: defaultActions, threshold: thresholds["standard"],
		usesDiscount: true, toServer: "flag", allowUnlisted: true}
	var errs []error
	fault := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("injection: "+format, a...))
	}
	if o.Sensitivity != "" {
		n, ok := thresholds[o.Sensitivity]
		if !ok {
			fault("sensitivity %q is not known: use relaxed, standard or strict", o.Sensitivity)
		}
		s.threshold, s.usesDiscount = n, o.Sensitivity != "strict"
	}
	for name, word := range o.Actions {
		f, a := slices.Index(familyNames[:], name), slices.Index(actionNames[:], word)
		switch {
		case f < 0:
			fault("actions: there is no family %q: the families are %s", name,
				strings.Join(familyNames[:], ", "))
		case a < 0:
			fault("actions: %s: the action %q is not known: use %s", name, word,
				strings.Join(actionNames[:], ", "))
		case action(a) == actionStrip && (family(f) == familyConfusable ||
			family(f) == familyShadowing ||
			family(f) == familyReference || family(f) == familySteering ||
			family(f) == familyWording || family(f) == familyClassifier):
			fault("actions: %s: strip is not possible for this family: use flag, hide or deny",
				name)
		default:
			s.actions[f] = action(a)
		}
	}
	switch o.ToServer {
	case "":
	case "off", "flag", "same":
		s.toServer = o.ToServer
	default:
		fault("to_server %q is not known: use off, flag or same", o.ToServer)
	}
	switch o.Unlisted {
	case "", "allow":
	case "deny":
		s.allowUnlisted = false
	default:
		fault("unlisted %q is not known: use allow or deny", o.Unlisted)
	}
	if c := o.Classifier; c != nil {
		s.scoring = classifierDefaults
		u, err := url.Parse(c.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			fault("classifier: url must be an http or https address, such as " +
				"\"http://127.0.0.1:8080/score\"")
		}
		s.scoring.url = c.URL
		if c.Timeout != "" {
			if s.scoring.timeout, err = time.ParseDuration(c.Timeout); err != nil ||
				s.scoring.timeout <= 0 || s.scoring.timeout > time.Minute {
				fault("classifier: timeout %q is not a duration up to 1m, such as \"500ms\"; note "+
					"that the plugin's own timeout applies, too", c.Timeout)
			}
		}
		if c.Threshold != nil {
			if s.scoring.threshold = *c.Threshold; s.scoring.threshold <= 0 ||
				s.scoring.threshold > 1 {
				fault("classifier: threshold must be more than 0 and at most 1")
			}
		}
		switch c.OnError {
		case "", "deny":
		case "skip":
			s.scoring.skipOnError = true
		default:
			fault("classifier: on_error %q is not known: use deny or skip", c.OnError)
		}
		if c.MaxBytes < 0 || c.MaxBytes > 16<<20 {
			fault("classifier: max_bytes must be from 1 to 16777216")
		} else if c.MaxBytes > 0 {
			s.scoring.maxBytes = c.MaxBytes
		}
	}
	return s, errors.Join(errs...)
}
