// Package clustertest helps tests and measurements that start several replicas of Gatekit: it has
// their configurations, their certificates, and a load balancer.
package clustertest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// Config returns the configuration of replica i, whose address for the others is between. The
// certificates are in the folder dir. The configuration begins within [listen].
func Config(i int, between, dir string) string {
	return "state_key = \"" + strings.Repeat("k", 32) + "\"\n" +
		fmt.Sprintf("sse = true\n[cluster]\nname = \"replica-%d\"\nlisten = %q\n"+
			"advertise = %[2]q\nca = %q\ncert = %q\nkey = %q\n", i, between,
			filepath.Join(dir, "ca.pem"), filepath.Join(dir, "replica.pem"),
			filepath.Join(dir, "replica.key"))
}

// RoundRobin returns a balancer that sends each request to another URL than the last, in turn. Only
// the host of a URL counts. The balancer keeps the header Host, which Gatekit checks.
func RoundRobin(urls ...string) (http.Handler, error) {
	var hosts []string
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, u.Host)
	}
	var next atomic.Int64
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", hosts[int(next.Add(1))%len(hosts)]
		r.Out.Host = r.In.Host
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// net/http closes the body of r with the first byte of the answer. If http.Transport has
		// not yet seen the end of this body, it breaks the connection to the replica.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the body of the request broke off", http.StatusBadRequest)
			return
		}
		r.Body = http.NoBody
		if len(body) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		proxy.ServeHTTP(w, r)
	}), nil
}

// WriteCertificates writes a CA, and a certificate for 127.0.0.1, to a folder. They are valid for
// an hour.
func WriteCertificates(dir string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	end := time.Now().Add(time.Hour)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"},
		NotAfter: end, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	replica := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	replicaDER, err := x509.CreateCertificate(rand.Reader, replica, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem":      {Type: "CERTIFICATE", Bytes: caDER},
		"replica.pem": {Type: "CERTIFICATE", Bytes: replicaDER},
		"replica.key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block),
			0o600); err != nil {
			return err
		}
	}
	return nil
}
