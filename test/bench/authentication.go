//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"gatekit/test/issuertest"
)

// resource is the audience of the tokens of authenticationVariants.
const resource = "https://gatekit.example/mcp"

// authenticationVariants returns the baseline, which lets in everybody, and the variants with
// authentication. Gatekit finds the keys of the issuer i, or asks it about a token. It keeps the
// verdict on a token; an introspection for 10 seconds. The variants write files to dir.
func authenticationVariants(i *issuertest.Issuer, dir string) ([]variant, error) {
	secret := filepath.Join(dir, "introspection.secret")
	if err := os.WriteFile(secret, []byte("s3:cret"), 0o600); err != nil {
		return nil, err
	}
	i.AddKey("first", "ES256")
	const listen = "public_url = \"https://gatekit.example\"\n"
	issuer := fmt.Sprintf("[[listen.auth.issuer]]\nissuer = %q\n", i.URL)
	return []variant{
		{name: baseline},
		{name: "jwt", listenKeys: listen, tables: issuer,
			token: i.Token("first", i.Claims(resource, nil))},
		{name: "introspection", listenKeys: listen, tables: issuer + fmt.Sprintf(
			"tokens = \"introspection\"\nintrospect = { id = \"gatekit\", secret = "+
				"\"${file:%s}\" }\n", secret),
			token: i.Opaque(i.Claims(resource, nil))},
	}, nil
}

// startIssuer starts an issuer in this process.
func startIssuer() (i *issuertest.Issuer, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	i = issuertest.New("http://" + listener.Addr().String())
	server := &http.Server{Handler: i}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return i, func() error {
		err := server.Close()
		<-ended
		return err
	}, nil
}

// measureAuthentication compares Gatekit with and without authentication of the client. The issuer
// runs in the client's process.
func (p *plan) measureAuthentication(s setup, out report) (err error) {
	issuer, stop, err := startIssuer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	all, err := authenticationVariants(issuer, s.dir)
	if err != nil {
		return err
	}
	return p.measureVariants(s, all, out.authenticationHeader, out.authenticationRows)
}

// measurePrincipals measures the memory of an idle principal. Each has a JWT of its own, has made
// one call, and has closed its connection. A principal of the legacy era leaves a session behind.
func (p *plan) measurePrincipals(s setup, out report) (err error) {
	issuer, stop, err := startIssuer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	all, err := authenticationVariants(issuer, s.dir)
	if err != nil {
		return err
	}
	jwt := all[1]
	jwt.tables += fmt.Sprintf("[limits]\nsessions = %d\n", 2*p.sessions)
	s.variants = []variant{jwt}
	out.principalsHeader(p.sessions)
	s.route, s.workers = httpHTTP, 1
	for _, s.era = range p.eras {
		targets, end, err := s.open(jwt.name)
		if err == nil {
			var bytes int
			bytes, err = memoryPerClient(targets[0], s.era, p.sessions, false, func(i int) string {
				return issuer.Token("first", issuer.Claims(resource,
					map[string]any{"sub": fmt.Sprintf("user-%d", i)}))
			})
			if err == nil {
				out.principalsRow(s.era, bytes)
			}
		}
		if err = errors.Join(err, end()); err != nil {
			return err
		}
	}
	return nil
}
