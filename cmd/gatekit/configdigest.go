package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"

	"gatekit/core/config"
)

// configDigest returns a digest of a configuration, to compare replicas. It leaves out secrets, and
// what differs between replicas by design: names, addresses and certificates of [cluster], the
// addresses of the listeners, and the files of the audit log. Paths below the folder of the file
// count as relative. The digest does not cover what other files contain.
func configDigest(c *config.Config) string {
	compared := *c
	compared.File = ""
	compared.Listen.HTTP, compared.Admin.HTTP = "", ""
	compared.Audit.File, compared.Audit.Key, compared.Audit.Anchor = "", "", ""
	if c.Cluster != nil {
		compared.Cluster = &config.Cluster{}
	}
	text, err := json.Marshal(compared) // a Secret is marshalled as "[redacted]"
	if err != nil {
		return ""
	}
	var tree any
	if json.Unmarshal(text, &tree) != nil {
		return ""
	}
	removePositions(tree)
	if text, err = json.Marshal(tree); err != nil {
		return ""
	}
	masks := &masked{} // values that were substituted into other keys
	masks.add(c)
	plain := masks.mask(string(text))
	if c.File != "" {
		folder := filepath.Dir(c.File)
		plain = strings.ReplaceAll(strings.ReplaceAll(plain, folder+"/", ""), folder, ".")
	}
	return shortDigest(plain)
}

// removePositions removes the places in the file from a configuration in JSON.
func removePositions(tree any) {
	switch v := tree.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.HasSuffix(key, "Position") || strings.HasSuffix(key, "Positions") {
				delete(v, key)
				continue
			}
			removePositions(value)
		}
	case []any:
		for _, value := range v {
			removePositions(value)
		}
	}
}

// shortDigest returns 12 hexadecimal digits that name a text.
func shortDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// replicaState has the digests that replicas compare.
type replicaState struct{ configuration, policies string }

// String returns the state as the other replicas and the log get it.
func (s replicaState) String() string {
	if s.policies == "" {
		return "configuration " + s.configuration + ", no policies"
	}
	return "configuration " + s.configuration + ", policies " + s.policies
}

// publishState makes the active configuration the one that other replicas and /metrics see. The
// caller must hold g.mu, or be the only user of g.
func (g *gateway) publishState() {
	s := replicaState{configuration: configDigest(g.active.config)}
	if p := describePolicies(g.active.policies.stage); p != "" {
		s.policies = shortDigest(p)
	}
	g.state.Store(&s)
}

// currentState returns the state that publishState has published last.
func (g *gateway) currentState() replicaState {
	if s := g.state.Load(); s != nil {
		return *s
	}
	return replicaState{}
}
