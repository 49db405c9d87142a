package config

import (
	"encoding/pem"
	"net/url"
	"slices"
	"strings"
	"time"

	"gatekit/core/tlsconfig"
)

// checkBundles checks the services, bundles and keys of the policies.
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
			l.errorf(at, `%q is not a valid bundle name: it must start with a-z and contain only `+
				`a-z, 0-9 and "-"`, b.Name)
		}
		if b.Resource == "" && !at.has("resource") {
			b.Resource = "bundles/" + b.Name
		}
		if i := l.resolveService(&b.Service, services, at, name); i >= 0 && len(keys) == 0 &&
			!l.isUnknown(n, "key") && canBeChangedInTransit(p.Services[i].URL) {
			l.errorf(at, "%s comes over http and is not signed, so its policies could be changed "+
				"in transit; use https, or verify its signature with [policy.key.NAME]", name)
		}
		if b.Key != "" && !slices.Contains(keys, b.Key) && !l.partial {
			l.errorf(at.lookup("key"), "%s.key: key %q does not exist%s",
				name, at.lookup("key").raw,
				suggest(at.lookup("key").raw, keys))
		}
		if b.Persist != "" {
			b.Persist = l.absPath(b.Persist)
		}
		l.checkOneOf(&b.Rollback, at, name, "rollback", "refuse", "allow")
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

// resolveService checks the service that a table names. If the table names no service and there is
// only one service, resolveService sets that service. It returns the index of the service, or -1.
func (l *loader) resolveService(service *string, services []string, at *node, name string) int {
	if *service == "" && len(services) == 1 && !at.has("service") {
		*service = services[0]
	}
	i := slices.Index(services, *service)
	switch {
	case i >= 0 || l.partial || l.hasErrorAt(at.lookup("service")):
	case *service == "":
		l.errorf(at, "%s.service must name one of the [policy.service.NAME] tables", name)
	default:
		l.errorf(at.lookup("service"), "%s.service: service %q does not exist%s", name,
			at.lookup("service").raw, suggest(at.lookup("service").raw, services))
	}
	return i
}

// checkDelays checks the shortest and the longest time between two requests. If the file sets only
// a min_delay that is longer than the default max_delay, checkDelays makes max_delay as long.
func (l *loader) checkDelays(low, high *time.Duration, at *node, name string) {
	inSeconds := map[string]time.Duration{"min_delay": *low, "max_delay": *high}
	if *high < *low {
		if at.has("max_delay") && !l.isUnknown(at, "max_delay") && !l.isUnknown(at, "min_delay") {
			l.errorf(at.lookup("max_delay"), "%s.max_delay must not be shorter than min_delay, "+
				"which is %s",
				name, *low)
		}
		*high = *low
	}
	for key, d := range inSeconds {
		if d%time.Second != 0 {
			l.errorf(at.lookup(key), "%s.%s must be whole seconds, not %q",
				name, key, at.lookup(key).raw)
		}
	}
}

// canBeChangedInTransit reports whether other machines on the network can change data that comes
// from a URL.
func canBeChangedInTransit(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "http" && !isLoopback(u.Hostname())
}

func (l *loader) checkService(s Service, n *node) {
	name := "policy.service." + s.Name
	switch {
	case l.isUnknown(n, "url"):
	case n.has("url"):
		l.checkURL(s.URL, n.lookup("url"), name)
	default:
		l.errorf(n, "%s has no url", name)
	}
	for key, value := range s.Headers {
		l.checkHeader(key, string(value), n.lookup("headers", key), name)
	}
	if _, err := tlsconfig.Client([]byte(s.CA)); err != nil {
		l.errorf(n.lookup("ca"), `%s.ca must hold certificates in PEM format; to read them from `+
			`a file, write ca = "${file:ca.pem}"`, name)
	}
}

// signingAlgorithms holds the algorithms with which a bundle may be signed.
var signingAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
	"ES256", "ES384", "ES512", "HS256", "HS384", "HS512",
}

func (l *loader) checkKey(k Key, n *node) {
	name := "policy.key." + k.Name
	l.checkOneOf(&k.Algorithm, n, name, "algorithm", signingAlgorithms...)
	switch block, _ := pem.Decode([]byte(k.Key)); {
	case l.isUnknown(n, "key"):
	case k.Key == "":
		l.errorf(n.lookup("key"), `%s.key is missing or empty; to read the key from a file, `+
			`write key = "${file:bundle.pub}"`, name)
	case strings.HasPrefix(k.Algorithm, "HS") || l.isUnknown(n, "algorithm"):
	case block == nil:
		l.errorf(n.lookup("key"), `%s.key must be a public key or a certificate in PEM format; `+
			`to read it from a file, write key = "${file:bundle.pub}"`, name)
	case strings.Contains(block.Type, "PRIVATE"):
		l.errorf(n.lookup("key"), "%s.key is a private key; use the public key, or everybody who "+
			"can read this file can sign bundles", name)
	}
}
