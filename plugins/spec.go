package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Spec describes one plugin of a configuration.
type Spec struct {
	Name string // name of the stage
	Use  string // name of a built-in plugin; "" for a program
	// Shared is set for a built-in plugin that runs in the same process as the other built-in
	// plugins with Shared. Those whose Sandbox allows the network share a process of their own.
	// Every other plugin has a process of its own.
	Shared bool

	// Command is the program and its arguments. A program name without a slash is looked up in
	// Gatekit's PATH.
	Command []string
	SHA256  []byte            // checksum that the program must have; nil for no check
	Env     map[string]string // environment variables of the process
	Sandbox Sandbox           // what the process may do
	// NoTLS turns TLS off for the plugin's socket, for programs that do not support it. The socket
	// lies in a folder that only Gatekit's user can enter.
	NoTLS bool

	Servers     []string      // servers whose messages the plugin sees; "*" means all servers
	SkipOnError bool          // skip the plugin when it fails, instead of denying the message
	Timeout     time.Duration // time for one verdict
	Config      []byte        // the plugin's own configuration, a JSON object
	Grants      Grants        // what the plugin may see and do
	// why no plugin may restore values, for example because clients are not authenticated; "" if
	// the grants decide
	NoRestore string
}

// Grants are the parts of a message that a plugin may see, and the actions that its verdicts may
// take besides allow and deny. The zero Grants grant nothing.
type Grants struct {
	Body      bool // params, result or error
	Request   bool // for a response: the params of its request
	Principal bool // the user on whose behalf the message is sent

	Modify bool // edit messages
	Answer bool // answer requests in the server's place
	Hide   bool // hide names and URIs from the client
	Rename bool // give tools and prompts other names
	Label  bool // add labels to the session
	// let Gatekit restore values that the plugin redacted
	Restore bool
}

// AllGrants returns the grants of a plugin whose configuration does not restrict them.
func AllGrants() Grants {
	return Grants{Body: true, Request: true, Principal: true, Modify: true, Answer: true,
		Hide: true, Rename: true, Label: true, Restore: true}
}

// isShared reports whether the plugin runs in the process that built-in plugins share.
func (s Spec) isShared() bool { return s.Use != "" && s.Shared }

// processKey identifies the process that runs the plugin.
func (s Spec) processKey() string {
	if s.isShared() {
		return s.processName()
	}
	if s.Use != "" {
		return fmt.Sprintf("built-in %q %q %s", s.Use, s.Name, s.Sandbox.key())
	}
	return fmt.Sprintf("%q %q %x %q %v %s", s.Name, s.Command, s.SHA256, s.Env, s.NoTLS,
		s.Sandbox.key())
}

// stageKey identifies the stage. Specs with the same key, grants and servers share one stage.
func (s Spec) stageKey() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q", s.processKey(), s.Use, s.Config))
	return s.Name + " " + hex.EncodeToString(sum[:])
}

// processName returns the name of the plugin's process in logs.
func (s Spec) processName() string {
	switch {
	case s.isShared() && s.Sandbox.Network: // not together with plugins that need no network
		return "built-in with network"
	case s.isShared():
		return "built-in"
	}
	return s.Name
}

// String returns the plugin's name and program for error messages.
func (s Spec) String() string {
	if s.Use != "" {
		return fmt.Sprintf("plugin %q (built-in %s)", s.Name, s.Use)
	}
	return fmt.Sprintf("plugin %q (%s)", s.Name, strings.Join(s.Command, " "))
}
