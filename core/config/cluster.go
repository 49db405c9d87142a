package config

import (
	"net"
	"slices"

	"gatekit/core/tlsconfig"
)

// Cluster is [cluster]: the other replicas behind the same address. They share state_key.
type Cluster struct {
	// Name is the name of this replica, in the records of the others.
	Name string `toml:"name"`
	// Listen is the address for the other replicas, as host:port.
	Listen string `toml:"listen"`
	// Advertise is the address by which the other replicas reach this one, as host:port. The
	// certificate must be valid for the host.
	Advertise string `toml:"advertise"`
	// CA is the absolute path of a PEM file with the certificate of the cluster's own authority.
	// Whoever has a certificate of it counts as a replica.
	CA string `toml:"ca"`
	// Cert is the absolute path of a PEM file with the certificate of this replica.
	Cert string `toml:"cert"`
	// Key is the absolute path of a PEM file with the private key of the certificate.
	Key string `toml:"key"`
	// Replicas holds the names of all replicas, at most 255. The audit log names them, so that
	// gatekit audit verify --fleet finds out when the log of a replica is missing that no other
	// replica has met yet. Default: none.
	Replicas []string `toml:"replicas"`
}

// Bounds of the names of replicas, which the audit log records.
const (
	maxReplicas    = 255
	maxReplicaName = 256 // bytes
)

// TLS returns the files of the certificates.
func (c *Cluster) TLS() tlsconfig.Files {
	return tlsconfig.Files{CA: c.CA, Cert: c.Cert, Key: c.Key}
}

func (l *loader) checkCluster(c *Cluster, listen *Listen, root *node) {
	if listen.Console {
		l.errorf(root.lookup("listen", "console"), "listen.console cannot be used with [cluster]: "+
			"each replica has its own log, and knows only its own logins; set [admin] console, "+
			"which serves the machine of a replica")
	}
	n := root.lookup("cluster")
	complete := !l.partial
	for _, key := range []struct {
		name  string
		value *string
		file  bool
	}{{"name", &c.Name, false}, {"listen", &c.Listen, false}, {"advertise", &c.Advertise, false},
		{"ca", &c.CA, true}, {"cert", &c.Cert, true}, {"key", &c.Key, true}} {
		switch {
		case *key.value != "" && key.file:
			*key.value = l.absPath(*key.value)
		case *key.value == "" && !l.isUnknown(n, key.name) && complete:
			l.errorf(n, "cluster.%s is missing: [cluster] needs name, listen, advertise, ca, cert "+
				"and key", key.name)
			return
		}
	}
	for key, address := range map[string]string{"listen": c.Listen, "advertise": c.Advertise} {
		at := n.lookup(key)
		host, ok := splitAddress(address)
		ip := net.ParseIP(host)
		switch {
		case address == "" || l.hasErrorAt(at):
		case !ok:
			l.errorf(at, "cluster.%s must be an address and port such as "+
				`"gatekit-0.gatekit:7443", not %q`, key, at.raw)
		case key == "advertise" && (host == "" || ip != nil && ip.IsUnspecified()):
			l.errorf(at, "cluster.advertise = %q names no machine: other replicas connect to it",
				at.raw)
		}
	}
	for i, name := range c.Replicas {
		at := n.lookup("replicas").item(i)
		switch {
		case l.hasErrorAt(at):
		case name == "":
			l.errorf(at, "cluster.replicas[%d] is empty: write the name of a replica", i)
		case slices.Contains(c.Replicas[:i], name):
			l.errorf(at, "cluster.replicas has %q twice", at.raw)
		}
	}
	if len(c.Replicas) > maxReplicas {
		l.errorf(n.lookup("replicas"), "cluster.replicas has %d names, but can have at most %d",
			len(c.Replicas), maxReplicas)
	}
	if len(c.Name) > maxReplicaName {
		l.errorf(n.lookup("name"), "cluster.name has %d bytes, but can have at most %d",
			len(c.Name), maxReplicaName)
	}
	if c.CA != "" && c.Cert != "" && c.Key != "" {
		l.checkTLSFiles(c.TLS(), n, "cluster")
	}
	if !complete {
		return
	}
	if listen.HTTP == "" && !l.isUnknown(root.lookup("listen"), "http") {
		l.errorf(n, "[cluster] needs listen.http: only HTTP clients reach several replicas")
	}
	if listen.StateKey == "" && !l.isUnknown(root.lookup("listen"), "state_key") {
		l.errorf(n, "[cluster] needs listen.state_key, the same in all replicas: without it, no "+
			"replica can read the ids of another one")
	}
}
