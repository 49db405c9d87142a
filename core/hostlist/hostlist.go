// Package hostlist parses and matches lists of hosts that a program may connect to, such as
// "api.github.com" and "*.example.com:8443".
package hostlist

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// DefaultPort is the port of a host without a port: that of HTTPS.
const DefaultPort = 443

const (
	// MaxHosts is how many hosts a list may have.
	MaxHosts = 256
	// MaxPorts is how many different ports the hosts of a list may have.
	MaxPorts = 32
	maxName  = 253 // bytes of a name of DNS, without the last dot
	maxLabel = 63
)

// Host is one entry of a list.
type Host struct {
	// Name is a host name in lower case, "*." and a domain for all names below the domain, or an IP
	// address in its shortest form.
	Name string
	Port uint16
}

// Parse parses a host with or without a port. Names must be written in ASCII. A domain after "*."
// must have two labels or more.
func Parse(text string) (Host, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addressHost(addr, DefaultPort)
	}
	if strings.HasPrefix(text, "[") {
		if addr, err := netip.ParseAddrPort(text); err == nil {
			return addressHost(addr.Addr(), addr.Port())
		}
		inner := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
		if addr, err := netip.ParseAddr(inner); err == nil && addr.Is6() {
			return addressHost(addr, DefaultPort)
		}
	}
	name, portText, hasPort := strings.Cut(text, ":")
	port := uint64(DefaultPort)
	if hasPort {
		var err error
		if port, err = strconv.ParseUint(portText, 10, 16); err != nil {
			return Host{}, fmt.Errorf("%q has no valid port: a port is a number from 1 to 65535",
				text)
		}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return addressHost(addr, uint16(port))
	}
	switch domain, isWildcard := strings.CutPrefix(name, "*."); {
	case port == 0:
		return Host{}, fmt.Errorf("%q has no valid port: a port is a number from 1 to 65535", text)
	case Normalize(domain) == "" && strings.Trim(domain, ascii) != "":
		return Host{}, fmt.Errorf("%q is not a host name: write names that are not ASCII in their "+
			"xn-- form, and hosts without a scheme or path", text)
	case Normalize(domain) == "":
		return Host{}, fmt.Errorf("%q is not a host such as api.example.com, *.example.com or "+
			"example.com:8443", text)
	case isWildcard && !strings.Contains(Normalize(domain), "."):
		return Host{}, fmt.Errorf("%q has too many hosts: a domain after *. needs two labels, "+
			"such as *.example.com", text)
	case isWildcard:
		return Host{"*." + Normalize(domain), uint16(port)}, nil
	default:
		return Host{Normalize(name), uint16(port)}, nil
	}
}

const ascii = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.*"

func addressHost(addr netip.Addr, port uint16) (Host, error) {
	if addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() || port == 0 {
		return Host{}, fmt.Errorf("%s is not the address of one host", addr)
	}
	return Host{addr.Unmap().String(), port}, nil
}

// Normalize returns a host name in lower case and without the dot at its end. It returns "" if the
// text is no host name. A name whose last label is a number is none: some programs take it for an
// IP address.
func Normalize(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > maxName {
		return ""
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return ""
		}
	}
	last := labels[len(labels)-1]
	if _, err := strconv.ParseUint(last, 10, 64); err == nil || strings.HasPrefix(last, "0x") {
		return ""
	}
	return name
}

// Address returns the IP address of a host that is one.
func (h Host) Address() (netip.Addr, bool) {
	addr, err := netip.ParseAddr(h.Name)
	return addr, err == nil
}

// String returns the host as Parse reads it, without the default port.
func (h Host) String() string {
	if h.Port == DefaultPort {
		return h.Name
	}
	if addr, ok := h.Address(); ok {
		return netip.AddrPortFrom(addr, h.Port).String()
	}
	return h.Name + ":" + strconv.Itoa(int(h.Port))
}

// matches reports whether the host is the name, or a wildcard for it. The name must be normal.
func (h Host) matches(name string) bool {
	if domain, ok := strings.CutPrefix(h.Name, "*"); ok {
		return strings.HasSuffix(name, domain) && len(name) > len(domain)
	}
	return h.Name == name
}

// List is a list of hosts.
type List []Host

// Allows reports whether the list has a host with this port. The name must be a result of
// Normalize, or an IP address in its shortest form.
func (l List) Allows(name string, port uint16) bool {
	return slices.ContainsFunc(l, func(h Host) bool { return h.Port == port && h.matches(name) })
}

// Names reports whether the list has a host on any port.
func (l List) Names(name string) bool {
	return slices.ContainsFunc(l, func(h Host) bool { return h.matches(name) })
}

// Ports returns the different ports of the list, sorted.
func (l List) Ports() []uint16 {
	ports := make([]uint16, 0, len(l))
	for _, h := range l {
		ports = append(ports, h.Port)
	}
	slices.SortFunc(ports, cmp.Compare)
	return slices.Compact(ports)
}

// Check returns an error if the list has more hosts or ports than it may have.
func (l List) Check() error {
	switch {
	case len(l) > MaxHosts:
		return fmt.Errorf("%d hosts are too many: the limit is %d", len(l), MaxHosts)
	case len(l.Ports()) > MaxPorts:
		return fmt.Errorf("%d different ports are too many: the limit is %d", len(l.Ports()),
			MaxPorts)
	}
	return nil
}

// String returns the hosts, separated by commas.
func (l List) String() string {
	var texts []string
	for _, h := range l {
		texts = append(texts, h.String())
	}
	return strings.Join(texts, ", ")
}
