package config

import (
	"net/netip"
	"net/url"
	"strings"
)

// Witness is one [[audit.witness]]: a service that cosigns the checkpoints of the audit log.
type Witness struct {
	// URL is the submission prefix of the witness: checkpoints go to URL/add-checkpoint (C2SP
	// tlog-witness).
	URL string `toml:"url"`
	// Key is the public key of the witness, a line NAME+ID+KEY of the type cosignature/v1
	// (Ed25519).
	Key string `toml:"key"`
	// Networks holds the networks that the witness may be in besides the public internet, such as
	// 10.0.0.0/8. Default: none.
	Networks []string `toml:"networks"`
	// CA is the absolute path of a PEM file with the certificates to trust. Default: the
	// certificates that the system trusts.
	CA string `toml:"ca"`
}

// String returns the URL without its path.
func (w Witness) String() string {
	u, err := url.Parse(w.URL)
	if err != nil {
		return "witness"
	}
	return u.Scheme + "://" + u.Host
}

// maxWitnesses is the largest number of witnesses.
const maxWitnesses = 16

func (l *loader) checkWitnesses(a *Audit, n *node) {
	if len(a.Witnesses) > maxWitnesses {
		l.errorf(n, "there are %d witnesses, but at most %d are possible", len(a.Witnesses),
			maxWitnesses)
	}
	keys := map[string]bool{}
	for i := range a.Witnesses {
		w, n := &a.Witnesses[i], n.item(i)
		name := elementName("audit.witness", i, "")
		prefix := join(name, "")
		l.checkWitnessURL(w, n, name)
		key := n.lookup("key")
		w.Key = strings.TrimSpace(w.Key)
		switch {
		case l.isUnknown(n, "key"):
		case w.Key == "":
			l.errorf(n, "%s has no key: set it to the public key of the witness, NAME+ID+KEY", name)
		case strings.Count(w.Key, "+") < 2:
			l.errorf(key, "%skey must be a public key NAME+ID+KEY, not %q", prefix, key.raw)
		case keys[w.Key]:
			l.errorf(key, "%skey is the key of an earlier witness: each witness has its own",
				prefix)
		}
		keys[w.Key] = true
		for k, network := range w.Networks {
			item := n.lookup("networks").item(k)
			if _, err := netip.ParsePrefix(network); err != nil && !l.hasErrorAt(item) {
				l.errorf(item, `%snetworks[%d] must be a network such as "10.0.0.0/8", not %q`,
					prefix, k, item.raw)
			}
		}
		if w.CA != "" {
			w.CA = l.absPath(w.CA)
		}
	}
}

func (l *loader) checkWitnessURL(w *Witness, n *node, name string) {
	at, prefix := n.lookup("url"), join(name, "")
	u, err := url.Parse(w.URL)
	switch {
	case l.isUnknown(n, "url"):
	case w.URL == "":
		l.errorf(n, `%s has no url, such as "https://witness.example"`, name)
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" ||
		u.RawQuery != "" || u.Fragment != "":
		l.errorf(at, `%surl must be a URL such as "https://witness.example", not %q`, prefix,
			at.raw)
	case u.User != nil:
		l.errorf(at, "%surl contains credentials, which would be logged; witnesses need none",
			prefix)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		l.errorf(at, "%surl = %q must be https: only a witness on this machine may use http",
			prefix, at.raw)
	}
}
