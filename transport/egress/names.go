package egress

import (
	"net/netip"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"gatekit/core/hostlist"
)

const (
	maxNames   = 4096
	maxQuery   = 1232 // bytes of a query; no honest one with a single question has more
	answerTime = 60   // seconds for which a process may remember an answer
)

// firstAddress is the address of the first name. The addresses before it are for the interface.
var firstAddress = netip.MustParseAddr("198.18.1.0")

// names gives addresses to names. Its methods may be called by many goroutines.
type names struct {
	hosts hostlist.List

	mu        sync.Mutex // guards the fields below
	next      netip.Addr
	addresses map[string]netip.Addr
	byAddress map[netip.Addr]string
}

func newNames(hosts hostlist.List) *names {
	n := &names{hosts: hosts, next: firstAddress, addresses: map[string]netip.Addr{},
		byAddress: map[netip.Addr]string{}}
	if hosts.Names("localhost") {
		for _, addr := range []string{"127.0.0.1", "::1"} {
			n.byAddress[netip.MustParseAddr(addr)] = "localhost"
		}
	}
	return n
}

// address returns the address that stands for a name of the list. It returns false if there are too
// many names.
func (n *names) address(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr, ok := n.addresses[name]; ok {
		return addr, true
	}
	if len(n.addresses) >= maxNames {
		return netip.Addr{}, false
	}
	for n.hosts.Names(n.next.String()) {
		n.next = n.next.Next()
	}
	addr := n.next
	n.next = addr.Next()
	n.addresses[name], n.byAddress[addr] = addr, name
	return addr, true
}

// name returns the name or IP address that an address stands for, or "". localhost and its address
// may be two hosts of the list, with different ports.
func (n *names) name(to netip.AddrPort) string {
	addr := to.Addr()
	if n.hosts.Allows(addr.String(), to.Port()) {
		return addr.String()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if name := n.byAddress[addr]; name != "" || !n.hosts.Names(addr.String()) {
		return name
	}
	return addr.String()
}

// answer returns the answer to a query of DNS, or nil if it deserves none. refused is the name if
// it is not on the list.
func (n *names) answer(query []byte) (answer []byte, refused string) {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		return nil, ""
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: header.ID, Response: true,
		OpCode: header.OpCode, RecursionDesired: header.RecursionDesired,
		RecursionAvailable: true}}
	questions, err := p.AllQuestions()
	switch {
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
	case header.OpCode != 0 || questions[0].Class != dnsmessage.ClassINET:
		reply.RCode = dnsmessage.RCodeNotImplemented
	default:
		q := questions[0]
		reply.Questions = questions
		name := hostlist.Normalize(q.Name.String())
		if name == "" || !n.hosts.Names(name) {
			reply.RCode, refused = dnsmessage.RCodeNameError, printable(q.Name.String())
			break
		}
		if q.Type != dnsmessage.TypeA {
			break // the name has only an address of IPv4
		}
		addr, ok := n.address(name)
		if !ok {
			reply.RCode = dnsmessage.RCodeServerFailure
			break
		}
		reply.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name,
			Class: dnsmessage.ClassINET, TTL: answerTime},
			Body: &dnsmessage.AResource{A: addr.As4()}}}
	}
	if answer, err = reply.Pack(); err != nil {
		return nil, refused
	}
	return answer, refused
}
