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

// options are the configuration as it is written: see schema.json.
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

// treatment is what is done with what is found of one type.
type treatment struct {
	enabled bool
	action  string // block, redact or audit
	mask    bool   // a part is kept
}

const minKeyLength = 16 // bytes

// parseConfig reads a configuration.
func parseConfig(config []byte) (*stage, error) {
	var o options
	if err := json.Unmarshal(config, &o, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	s := &stage{decode: o.Decode == nil || *o.Decode}
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }

	for k, t := range map[kind]typeOptions{
		kindEmail: o.Email.typeOptions, kindCard: o.Card, kindIBAN: o.IBAN, kindPhone: o.Phone,
		kindIP: o.IP.typeOptions, kindNationalID: o.NationalID.typeOptions,
	} {
		action, replace := firstNonEmpty(t.Action, o.Action, "redact"), firstNonEmpty(t.Replace,
			o.Replace, "placeholder")
		if !slices.Contains([]string{"block", "redact", "audit"}, action) {
			fault("action of %v: %q is not block, redact or audit", k, action)
		}
		if replace != "placeholder" && replace != "mask" {
			fault("replace of %v: %q is not placeholder or mask", k, replace)
		}
		s.treatments[k] = treatment{enabled: t.Enabled == nil || *t.Enabled, action: action,
			mask: replace == "mask"}
		s.finder.enabled[k] = s.treatments[k].enabled
	}
	if s.finder.enabled == [numKinds]bool{} {
		fault("nothing is enabled: leave the plugin out, or enable one of email, card, iban, " +
			"phone, ip, national_id")
	}

	if o.Key != "" && len(o.Key) < minKeyLength {
		fault("key: %d bytes are too few, take %d or more that are random", len(o.Key),
			minKeyLength)
	}
	s.placeholders = newPlaceholderMaker(o.Key)

	known := phonenumbers.GetSupportedRegions()
	for _, l := range o.Locales {
		if !known[l] {
			fault("locales: %q is not a country, write it as in ISO 3166, such as US or GB", l)
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
			fault("directions: %q is not to_client or to_server", d)
		}
	}
	if o.Directions != nil && len(o.Directions) == 0 {
		fault("directions: none is left, name to_client, to_server or both")
	}

	s.finder.allow = map[string]bool{}
	for _, value := range o.Allow {
		v := canonical(value)
		if v == "" {
			fault("allow: %q holds no letter and no digit", value)
		}
		s.finder.allow[v] = true
	}
	for _, e := range o.Email.Exclude {
		e = strings.ToLower(e)
		if local, domain, is := strings.Cut(e, "@"); is && local == "" ||
			is && strings.Contains(domain, "@") || !is && !strings.Contains(e, ".") {
			fault("email.exclude: %q is not a domain (acme.com), an address (info@acme.com) or "+
				"a local part (noreply@)", e)
		}
		s.finder.exclude = append(s.finder.exclude, e)
	}

	all := map[string]bool{}
	for _, id := range idFormats {
		all[id.name] = true
		if len(o.NationalID.IDs) > 0 && slices.Contains(o.NationalID.IDs, id.name) ||
			len(o.NationalID.IDs) == 0 && (len(o.Locales) == 0 || slices.Contains(o.Locales,
				id.country)) {
			s.finder.enabledIDs[id.code] = true
		}
	}
	for _, id := range o.NationalID.IDs {
		if !all[id] {
			fault("national_id.ids: %q is none of %s", id,
				strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
	}
	return s, errors.Join(faults...)
}

// firstNonEmpty is the first that is not empty.
func firstNonEmpty(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
