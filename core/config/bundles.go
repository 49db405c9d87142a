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
		l.checkKey(k, n.at("key", k.Name))
	}
	for _, s := range p.Services {
		services = append(services, s.Name)
		l.checkService(s, n.at("service", s.Name))
	}
	for i := range p.Bundles {
		b := &p.Bundles[i]
		at, name := n.at("bundle", b.Name), "policy.bundle."+b.Name
		if !serverName.MatchString(b.Name) {
			l.errorf(at, `%q cannot be a bundle's name: it must begin with a-z and hold only a-z, 0-9 and "-"`, b.Name)
		}
		if b.Resource == "" && !at.has("resource") {
			b.Resource = "bundles/" + b.Name
		}
		if i := l.checkUse(&b.Service, services, at, name); i >= 0 && len(keys) == 0 &&
			exposed(p.Services[i].URL) {
			l.errorf(at, "%s comes over http and is not signed: whoever is between could change "+
				"the policies; use https, or say in [policy.key.NAME] who signs it", name)
		}
		if b.Key != "" && !slices.Contains(keys, b.Key) && !l.partial {
			l.errorf(at.at("key"), "%s.key: there is no key %q%s", name, at.at("key").text,
				suggest(at.at("key").text, keys))
		}
		if b.Persist != "" {
			b.Persist = l.abs(b.Persist)
		}
		l.checkDelays(&b.MinDelay, &b.MaxDelay, at, name)
	}
	if d := p.DecisionLogs; d != nil {
		at := n.at("decision_logs")
		l.checkUse(&d.Service, services, at, "policy.decision_logs")
		l.checkDelays(&d.MinDelay, &d.MaxDelay, at, "policy.decision_logs")
	}
	if p.Status != nil {
		l.checkUse(&p.Status.Service, services, n.at("status"), "policy.status")
	}
}

// checkUse checks which service a table uses, the only one when it does not say, and answers its
// index; -1 when there is none.
func (l *loader) checkUse(service *string, services []string, at *node, name string) int {
	if *service == "" && len(services) == 1 && !at.has("service") {
		*service = services[0]
	}
	i := slices.Index(services, *service)
	switch {
	case i >= 0 || l.partial || l.saidAt(at.at("service")):
	case *service == "":
		l.errorf(at, "%s.service must say which [policy.service.NAME] it uses", name)
	default:
		l.errorf(at.at("service"), "%s.service: there is no service %q%s", name,
			at.at("service").text, suggest(at.at("service").text, services))
	}
	return i
}

// checkDelays checks the times between requests.
func (l *loader) checkDelays(low, high *time.Duration, at *node, name string) {
	for key, d := range map[string]time.Duration{"min_delay": *low, "max_delay": *high} {
		if d%time.Second != 0 {
			l.errorf(at.at(key), "%s.%s must be whole seconds, not %q", name, key, at.at(key).text)
		}
	}
	if *high < *low {
		if at.has("max_delay") {
			l.errorf(at.at("max_delay"), "%s.max_delay cannot be shorter than its min_delay, %s",
				name, *low)
		}
		*high = *low
	}
}

// exposed says whether what comes from a URL can be changed on its way.
func exposed(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "http" && !loopback(u.Hostname())
}

func (l *loader) checkService(s Service, n *node) {
	name := "policy.service." + s.Name
	if !n.has("url") {
		if !l.partial {
			l.errorf(n, "%s has no url", name)
		}
	} else if !l.saidAt(n.at("url")) {
		l.checkURL(s.URL, n.at("url"), name)
	}
	for key, value := range s.Headers {
		l.checkHeader(key, string(value), n.at("headers", key), name)
	}
	if s.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(s.CA)) {
		l.errorf(n.at("ca"), `%s.ca must be the PEM of certificates; ca = "${file:ca.pem}" is what the file holds`, name)
	}
}

// algorithms are those that bundles may be signed with.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
	"ES512", "HS256", "HS384", "HS512"}

func (l *loader) checkKey(k Key, n *node) {
	name := "policy.key." + k.Name
	l.oneOf(&k.Algorithm, n, name, "algorithm", algorithms...)
	switch block, _ := pem.Decode([]byte(k.Key)); {
	case l.saidAt(n.at("key")):
	case k.Key == "":
		l.errorf(n.at("key"), `%s.key is missing or empty; key = "${file:bundle.pub}" is what the file holds`, name)
	case strings.HasPrefix(k.Algorithm, "HS"):
	case block == nil:
		l.errorf(n.at("key"), `%s.key must be the PEM of a public key or a certificate; key = "${file:bundle.pub}" is what the file holds`, name)
	case strings.Contains(block.Type, "PRIVATE"):
		l.errorf(n.at("key"), "%s.key is a private key; bundles are verified with the public "+
			"one, and who can read this file could sign them", name)
	}
}
