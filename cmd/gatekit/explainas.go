package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/identity"
	"gatekit/policies"
)

// explainedPrincipal has the options of gatekit policy explain that name a principal.
type explainedPrincipal struct {
	id, client, claims string
	scopes, groups     []string
}

func (e *explainedPrincipal) flags(c *cobra.Command) {
	c.Flags().StringVar(&e.id, "as", "", "explain the message as if `PRINCIPAL` had sent it")
	c.Flags().StringArrayVar(&e.scopes, "scope", nil,
		"with --as: a `scope` of the principal's token; can be repeated")
	c.Flags().StringArrayVar(&e.groups, "group", nil,
		"with --as: a `group` of the principal; can be repeated")
	c.Flags().StringVar(&e.client, "client", "", "with --as: the OAuth client `id` of the program")
	c.Flags().StringVar(&e.claims, "claims", "",
		"explain the message as if the user of a token with the claims in `file` had sent it")
	c.MarkFlagsMutuallyExclusive("as", "claims")
}

// isGiven reports whether the command has an option that names a principal.
func (e *explainedPrincipal) isGiven(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("as") || e.claims != ""
}

// replace replaces the principal of a message, if the options name one.
func (e *explainedPrincipal) replace(cmd *cobra.Command, cfg *config.Config,
	c *policies.Case) (err error) {
	hasMore := e.client != "" || len(e.scopes)+len(e.groups) > 0
	switch {
	case e.claims != "":
		if hasMore {
			return errors.New("--scope, --group and --client need --as: the claims have them")
		}
		c.Message.Principal, err = claimedPrincipal(cfg, e.claims)
	case !cmd.Flags().Changed("as"):
		if hasMore {
			err = errors.New("--scope, --group and --client need --as PRINCIPAL")
		}
	case e.id == "":
		if hasMore {
			return errors.New("the local user has no scopes, groups or client")
		}
		c.Message.Principal = nil
	default:
		var hint string
		c.Message.Principal, hint, err = e.named(cfg)
		if hint != "" && err == nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "hint: "+hint)
		}
	}
	return err
}

// named returns the principal of --as. If the configuration lets no such principal in, hint tells
// why.
func (e *explainedPrincipal) named(cfg *config.Config) (p *identity.Principal, hint string,
	err error) {
	a, err := identity.ParseID(e.id)
	if err != nil {
		return nil, "", err
	}
	from := cfg.Listen.Auth
	if from == nil {
		from = &config.Auth{}
	}
	a.Scopes, a.Groups, a.Client = e.scopes, e.groups, e.client
	switch a.Method {
	case identity.JWT:
		i := slices.IndexFunc(from.Issuers, func(i config.Issuer) bool {
			return i.Issuer == a.Issuer
		})
		if i < 0 {
			hint = fmt.Sprintf("the configuration has no issuer %q", a.Issuer)
		} else if from.Issuers[i].Tokens == "introspection" {
			a.Method = identity.Introspection
		}
	case identity.Token:
		i := slices.IndexFunc(from.Tokens, func(t config.StaticToken) bool {
			return t.Subject == a.Subject
		})
		if i < 0 {
			hint = fmt.Sprintf("the configuration has no static token with the subject %q",
				a.Subject)
		} else if len(a.Scopes) == 0 {
			a.Scopes = from.Tokens[i].Scopes
		}
	case identity.Certificate:
		if from.MTLS == nil {
			hint = "the configuration has no [listen.auth.mtls]"
		}
	}
	p, err = identity.New(a)
	return p, hint, err
}

// maxClaimsBytes is the largest file with claims that is read.
const maxClaimsBytes = 1 << 20

// claimedPrincipal returns the principal of a token with the claims in a file.
func claimedPrincipal(cfg *config.Config, file string) (*identity.Principal, error) {
	in := os.Stdin
	if file != "-" {
		var err error
		if in, err = os.Open(file); err != nil {
			return nil, err
		}
		defer in.Close()
	}
	b, err := io.ReadAll(io.LimitReader(in, maxClaimsBytes+1))
	if err == nil && len(b) > maxClaimsBytes {
		err = fmt.Errorf("it has more than %d bytes", maxClaimsBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read the claims in %s: %w", file, err)
	}
	var claims map[string]jsontext.Value
	if err := json.Unmarshal(b, &claims); err != nil || claims == nil {
		return nil, fmt.Errorf("%s has no claims: they are one JSON object with different names, "+
			"the decoded second part of an access token", file)
	}
	var issuer string
	if claims["iss"] != nil {
		_ = json.Unmarshal(claims["iss"], &issuer) // anything else than a string is no issuer
	}
	var known []string
	if from := cfg.Listen.Auth; from != nil {
		for _, i := range from.Issuers {
			if i.Issuer == issuer {
				configured, err := authIssuer(i)
				if err != nil {
					return nil, err
				}
				p, err := configured.Principal(b)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				return p, nil
			}
			known = append(known, i.Issuer)
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("--claims needs an [[listen.auth.issuer]] in %s, which says what "+
			"the claims mean", displayPath(cfg.File))
	}
	return nil, fmt.Errorf("%s: the claim iss is %q, and the configured issuers are %s", file,
		issuer, strings.Join(known, ", "))
}
