package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Spec is one plugin of a configuration.
type Spec struct {
	Name string // of the stage
	Use  string // the built-in that it is; "" for a program
	// the program and its arguments; the program is looked up in our PATH when it holds no slash
	Command []string
	SHA256  []byte // that the program must have; nil does not check it
	Env     map[string]string
	// no TLS on its socket, for plugins that cannot do it; the socket is in a folder that only we
	// can enter
	NoTLS bool

	Servers []string      // whose messages it sees, "*" is all
	Skip    bool          // its failures are skipped
	Timeout time.Duration // of one verdict
	Config  []byte        // a JSON object
	Grants  Grants
}

// Grants are what a plugin may see of a message, and what its verdicts may do beside letting it
// pass and refusing it. The zero Grants let it do neither.
type Grants struct {
	Body      bool // params, result, error
	Request   bool // of an answer: the params of the request that it answers
	Principal bool // on whose behalf

	Modify bool
	Answer bool
	Hide   bool
	Rename bool
	Label  bool
}

// AllGrants is what a plugin is granted when the configuration says nothing.
func AllGrants() Grants {
	return Grants{Body: true, Request: true, Principal: true, Modify: true, Answer: true,
		Hide: true, Rename: true, Label: true}
}

// program is what tells processes apart: specs of the same program share one process when it is
// Gatekit itself, and have one each otherwise.
func (s Spec) program() string {
	if s.Use != "" {
		return "built-in"
	}
	return fmt.Sprintf("%q %q %x %q %v", s.Name, s.Command, s.SHA256, s.Env, s.NoTLS)
}

// key tells stages apart.
func (s Spec) key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q", s.program(), s.Use, s.Config))
	return s.Name + " " + hex.EncodeToString(sum[:])
}

// label is how logs call its process, which those of Gatekit share.
func (s Spec) label() string {
	if s.Use != "" {
		return "built-in"
	}
	return s.Name
}

// what is how errors call it.
func (s Spec) what() string {
	if s.Use != "" {
		return fmt.Sprintf("plugin %q (built-in %s)", s.Name, s.Use)
	}
	return fmt.Sprintf("plugin %q (%s)", s.Name, strings.Join(s.Command, " "))
}
