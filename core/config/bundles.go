package config

import (
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"slices"
	"strings"
	"time"
)

// checkBundles checks where bundles come from, and what they are verified with.
func (l *loader) checkBundles(p *Policy, n *node) {
	var keys, services []string
	for _, k := range p.Keys {
		keys = append(keys, k.Name)
		l.checkKey(k, n.lookup("key", k.Name))
	}
	for _, s := range p.Services {
		services = append(services, s.Name)
		l.checkService(s, n.lookup("service", s.Name))
	}
	for i := range p.Bundles {
		b := &p.Bundles[i]
		at, name := n.lookup("bundle", b.Name), "policy.bundle."+b.Name
		if !serverName.MatchString(b.Name) {
			l.errorf(at, `%q cannot be a bundle's name: it must begin with a-z and hold only a-z, 0-9 and "-"`, b.Name)
		}
		if b.Resource == "" && !at.has("resource") {
			b.Resource = "bundles/" + b.Name
		}
		if i := l.resolveService(&b.Service, services, at, name); i >= 0 && len(keys) == 0 &&
			isExposed(p.Services[i].URL) {
			l.errorf(at, "%s comes over http and is not signed: whoever is between could change "+
				"the policies; use https, or say in [policy.key.NAME] who signs it", name)
		}
		if b.Key != "" && !slices.Contains(keys, b.Key) && !l.partial {
			l.errorf(at.lookup("key"), "%s.key: there is no key %q%s", name, at.lookup("key").raw,
				suggest(at.lookup("key").raw, keys))
		}
		if b.Persist != "" {
			b.Persist = l.absPath(b.Persist)
		}
		l.checkDelays(&b.MinDelay, &b.MaxDelay, at, name)
	}
	if d := p.DecisionLogs; d != nil {
		at := n.lookup("decision_logs")
		l.resolveService(&d.Service, services, at, "policy.decision_logs")
		l.checkDelays(&d.MinDelay, &d.MaxDelay, at, "policy.decision_logs")
	}
	if p.Status != nil {
		l.resolveService(&p.Status.Service, services, n.lookup("status"), "policy.status")
	}
}

// resolveService checks which service a table uses, the only one when it does not say, and answers its
// index; -1 when there is none.
func (l *loader) resolveService(service *string, services []string, at *node, name string) int {
	if *service == "" && len(services) == 1 && !at.has("service") {
		*service = services[0]
	}
	i := slices.Index(services, *service)
	switch {
	case i >= 0 || l.partial || l.hasErrorAt(at.lookup("service")):
	case *service == "":
		l.errorf(at, "%s.service must say which [policy.service.NAME] it uses", name)
	default:
		l.errorf(at.lookup("service"), "%s.service: there is no service %q%s", name,
			at.lookup("service").raw, suggest(at.lookup("service").raw, services))
	}
	return i
}

// checkDelays checks the times between requests.
func (l *loader) checkDelays(low, high *time.Duration, at *node, name string) {
	for key, d := range map[string]time.Duration{"min_delay": *low, "max_delay": *high} {
		if d%time.Second != 0 {
			l.errorf(at.lookup(key), "%s.%s must be whole seconds, not %q", name, key, at.lookup(key).raw)
		}
	}
	if *high < *low {
		if at.has("max_delay") {
			l.errorf(at.lookup("max_delay"), "%s.max_delay cannot be shorter than its min_delay, %s",
				name, *low)
		}
		*high = *low
	}
}

// isExposed says whether what comes from a URL can be changed on its way.
func isExposed(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "http" && !isLoopback(u.Hostname())
}

func (l *loader) checkService(s Service, n *node) {
	name := "policy.service." + s.Name
	if !n.has("url") {
		if !l.partial {
			l.errorf(n, "%s has no url", name)
		}
	} else if !l.hasErrorAt(n.lookup("url")) {
		l.checkURL(s.URL, n.lookup("url"), name)
	}
	for key, value := range s.Headers {
		l.checkHeader(key, string(value), n.lookup("headers", key), name)
	}
	if s.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(s.CA)) {
		l.errorf(n.lookup("ca"), `%s.ca must be the PEM of certificates; ca = "${file:ca.pem}" is what the file holds`, name)
	}
}

// signingAlgorithms are those that bundles may be signed with.
var signingAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
	"ES512", "HS256", "HS384", "HS512"}

func (l *loader) checkKey(k Key, n *node) {
	name := "policy.key." + k.Name
	l.checkOneOf(&k.Algorithm, n, name, "algorithm", signingAlgorithms...)
	switch block, _ := pem.Decode([]byte(k.Key)); {
	case l.hasErrorAt(n.lookup("key")):
	case k.Key == "":
		l.errorf(n.lookup("key"), `%s.key is missing or empty; key = "${file:bundle.pub}" is what the file holds`, name)
	case strings.HasPrefix(k.Algorithm, "HS"):
	case block == nil:
		l.errorf(n.lookup("key"), `%s.key must be the PEM of a public key or a certificate; key = "${file:bundle.pub}" is what the file holds`, name)
	case strings.Contains(block.Type, "PRIVATE"):
		l.errorf(n.lookup("key"), "%s.key is a private key; bundles are verified with the public "+
			"one, and who can read this file could sign them", name)
	}
}
