package tlsconfig_test

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/core/tlsconfig"
)

// write writes content to a file and returns the path of the file.
func write(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadedConfigTrustsCAAndHasClientCertificate(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := write(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw}))
	f := tlsconfig.Files{CA: cert, Cert: cert,
		Key: write(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))}
	config, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Certificates) != 1 {
		t.Errorf("got %d client certificates, want 1", len(config.Certificates))
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	if r, err := client.Get(s.URL); err != nil {
		t.Errorf("a request with the CA: got error %v, want none", err)
	} else {
		r.Body.Close()
	}
	config, err = tlsconfig.Files{}.Load()
	if err != nil {
		t.Fatal(err)
	}
	client = &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	if r, err := client.Get(s.URL); err == nil {
		r.Body.Close()
		t.Error("a request without the CA succeeded, want the error that the CA is unknown")
	}
}

func TestLoadRefusesBadFiles(t *testing.T) {
	text, empty := write(t, []byte("no PEM")), write(t, nil)
	for name, tt := range map[string]struct {
		files tlsconfig.Files
		want  string
	}{
		"missing CA": {tlsconfig.Files{CA: text + ".missing"}, "no such file"},
		"CA without PEM": {tlsconfig.Files{CA: text},
			text + ": no certificate in PEM format"},
		"empty CA":                       {tlsconfig.Files{CA: empty}, "is empty"},
		"client certificate without PEM": {tlsconfig.Files{Cert: text, Key: text}, text},
	} {
		if _, err := tt.files.Load(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want an error with %q", name, err, tt.want)
		}
	}
}
