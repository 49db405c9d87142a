// Package egress lets a confined process connect to a list of hosts, and to nothing else. The
// process lives in a network namespace without any connection to the outside. All its packets lead
// to sockets that package sandbox hands to Gatekit, and a Relay serves them:
//
//   - The Relay answers DNS itself. A name on the list gets an address of 198.18.0.0/15 that stands
//     for the name. Other names do not exist. No query leaves Gatekit.
//   - For each connection, the Relay connects to the host that the address stands for. It looks the
//     name up at that moment, and refuses addresses that are neither public nor in the networks of
//     the operator (see package ssrfguard).
//   - The first bytes of the process must fit the host. The server name of TLS, or the header Host
//     of HTTP, must be the host. On port 443 they must be TLS, and on port 80 HTTP. On other ports,
//     other protocols pass.
//
// # Bounds
//
// A Relay serves at most 128 connections at a time and remembers 4096 names. It closes a connection
// over which nothing was sent for 15 minutes. A connection must be recorded before the first byte
// is sent. At most 256 different refusals are recorded one by one.
//
// # Known limits
//
//   - Within TLS, and after the first request of a connection of HTTP, a process can name other
//     hosts that the same address serves (domain fronting).
//   - The name of a wildcard such as *.example.com is looked up when the process connects to it. It
//     can carry data to the DNS servers of example.com.
//   - There is no UDP but that of DNS, so no HTTP/3, and no connections to the process.
//   - A name in /etc/hosts leads to the address that this file gives, which the Relay refuses
//     unless the list has the address. The exception is localhost.
package egress
