package pii

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nyaruka/phonenumbers"

	"gatekit/core/mcp"
)

// options is the configuration as it is written. schema.json describes it.
type options struct {
	Action     string          `json:"action"`
	Replace    string          `json:"replace"`
	Key        string          `json:"key"`
	Locales    []string        `json:"locales"`
	Directions []string        `json:"directions"`
	Decode     *bool           `json:"decode"`
	Allow      []string        `json:"allow"`
	Email      emailOptions    `json:"email"`
	Card       typeOptions     `json:"card"`
	IBAN       typeOptions     `json:"iban"`
	Phone      typeOptions     `json:"phone"`
	IP         ipOptions       `json:"ip"`
	NationalID nationalOptions `json:"national_id"`
}

// typeOptions are the options that all kinds of personal data have.
type typeOptions struct {
	Enabled *bool  `json:"enabled"`
	Action  string `json:"action"`
	Replace string `json:"replace"`
}

type emailOptions struct {
	typeOptions
	Examples bool     `json:"examples"`
	Exclude  []string `json:"exclude"`
}

type ipOptions struct {
	typeOptions
	Private bool `json:"private"`
}

type nationalOptions struct {
	typeOptions
	IDs []string `json:"ids"`
}

// treatment holds the options of one kind, with defaults filled in.
type treatment struct {
	enabled bool
	action  string // block, redact or audit
	mask    bool   // redact keeps a part of the value
}

// minKeyLength is the length of the shortest key, in bytes.
const minKeyLength = 16

// parseConfig returns the stage with a configuration. The error names all mistakes at once.
func parseConfig(config []byte) (*stage, error) {
	var o options
	if err := json.Unmarshal(config, &o, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	s := &stage{decode: o.Decode == nil || *o.Decode}
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }

	for k, t := range [numKinds]typeOptions{
		kindEmail: o.Email.typeOptions, kindCard: o.Card, kindIBAN: o.IBAN, kindPhone: o.Phone,
		kindIP: o.IP.typeOptions, kindNationalID: o.NationalID.typeOptions,
	} {
		action := firstNonEmpty(t.Action, o.Action, "redact")
		replace := firstNonEmpty(t.Replace, o.Replace, "placeholder")
		if !slices.Contains([]string{"block", "redact", "audit"}, action) {
			fault("action of %v: %q is not known: use block, redact or audit", kind(k), action)
		}
		if replace != "placeholder" && replace != "mask" {
			fault("replace of %v: %q is not known: use placeholder or mask", kind(k), replace)
		}
		s.treatments[k] = treatment{enabled: t.Enabled == nil || *t.Enabled, action: action,
			mask: replace == "mask"}
		s.finder.enabled[k] = s.treatments[k].enabled
	}
	if s.finder.enabled == [numKinds]bool{} {
		fault("nothing is enabled: remove the plugin, or enable one of email, card, iban, phone, " +
			"ip, national_id")
	}

	if o.Key != "" && len(o.Key) < minKeyLength {
		fault("key: %d bytes are too few: use %d or more random bytes", len(o.Key), minKeyLength)
	}
	s.placeholders = newPlaceholderMaker(o.Key)

	regions := phonenumbers.GetSupportedRegions()
	for _, l := range o.Locales {
		if !regions[l] {
			fault("locales: %q is not a country: use the codes of ISO 3166, such as US or GB", l)
		}
	}
	s.finder.locales = o.Locales
	s.finder.examples, s.finder.private = o.Email.Examples, o.IP.Private

	for _, d := range o.Directions {
		switch d {
		case "to_server":
			s.directions = append(s.directions, mcp.ToServer)
		case "to_client":
			s.directions = append(s.directions, mcp.ToClient)
		default:
			fault("directions: %q is not known: use to_client or to_server", d)
		}
	}
	if o.Directions != nil && len(o.Directions) == 0 {
		fault("directions: the list is empty, so no message would be searched: use to_client, " +
			"to_server or both")
	}

	s.finder.allow = map[string]bool{}
	for _, value := range o.Allow {
		v := canonical(value)
		if v == "" {
			fault("allow: %q has no letter and no digit", value)
		}
		s.finder.allow[v] = true
	}
	for _, e := range o.Email.Exclude {
		e = strings.ToLower(e)
		local, domain, hasAt := strings.Cut(e, "@")
		if hasAt && (local == "" || strings.Contains(domain, "@")) ||
			!hasAt && !strings.Contains(e, ".") {
			fault("email.exclude: %q is not valid: use a domain (acme.com), an address "+
				"(info@acme.com) or a local part (noreply@)", e)
		}
		s.finder.exclude = append(s.finder.exclude, e)
	}

	names := map[string]bool{}
	for _, id := range idFormats {
		names[id.name] = true
		if len(o.NationalID.IDs) > 0 {
			s.finder.enabledIDs[id.code] = slices.Contains(o.NationalID.IDs, id.name)
		} else {
			s.finder.enabledIDs[id.code] = len(o.Locales) == 0 ||
				slices.Contains(o.Locales, id.country)
		}
	}
	for _, id := range o.NationalID.IDs {
		if !names[id] {
			fault("national_id.ids: %q is not known: use %s", id,
				strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	}
	return s, errors.Join(faults...)
}

// firstNonEmpty returns the first text that is not empty, or "".
func firstNonEmpty(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
