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

// measureAuthentication compares Gatekit with and without authentication of the client. The issuer
// runs in the client's process.
func (p *plan) measureAuthentication(s setup, out report) (err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := issuertest.New("http://" + listener.Addr().String())
	server := &http.Server{Handler: issuer}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		err = errors.Join(err, server.Close())
		<-ended
	}()
	all, err := authenticationVariants(issuer, s.dir)
	if err != nil {
		return err
	}
	return p.measureVariants(s, all, out.authenticationHeader, out.authenticationRows)
}
