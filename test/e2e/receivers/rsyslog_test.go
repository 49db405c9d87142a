package receivers

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// TestRsyslogGetsEveryRecord sends the audit log to rsyslog, and restarts rsyslog in between.
func TestRsyslogGetsEveryRecord(t *testing.T) {
	peers.Installed(t, "rsyslogd")
	for _, scheme := range []string{"tcp", "tls"} {
		for _, format := range []string{"jsonl", "ocsf"} {
			t.Run(scheme+" "+format, func(t *testing.T) {
				dir := t.TempDir()
				address, received := peers.FreeAddress(t), filepath.Join(dir, "received")
				config := writeRsyslogConfig(t, dir, address, received, scheme == "tls")
				start := func() (stop func()) {
					return startProgram(t, address, &harness.Output{}, "rsyslogd", "-n",
						"-f", config, "-i", filepath.Join(dir, "pid"))
				}
				stop := start()
				sink := fmt.Sprintf("[[audit.sink]]\nname = \"rsyslog\"\nkind = \"syslog\"\n"+
					"url = \"%s://%s\"\nformat = %q\n", scheme, address, format)
				if scheme == "tls" {
					sink += fmt.Sprintf("ca = %q\n", filepath.Join(dir, "cert.pem"))
				}
				g := harness.StartHTTP(t, harness.ScriptedServer("box")+harness.AuditTable+sink)
				callEcho(t, g, 50)
				eventually(t, func() string { return missingRecords(t, g, received, format) })
				stop()
				callEcho(t, g, 20)
				start()
				callEcho(t, g, 20)
				g.Stop()
				eventually(t, func() string { return missingRecords(t, g, received, format) })
			})
		}
	}
}

// writeRsyslogConfig writes a configuration in which rsyslog appends the messages that it receives
// to the file received. It returns the path of the configuration.
func writeRsyslogConfig(t *testing.T, dir, address, received string, secure bool) string {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	global := fmt.Sprintf(`global(workDirectory=%q maxMessageSize="256k"`, dir)
	input := ""
	if secure {
		cert, key := writeCertificate(t, dir)
		global += fmt.Sprintf(` defaultNetstreamDriverCAFile=%q defaultNetstreamDriverCertFile=%q`+
			` defaultNetstreamDriverKeyFile=%q`, cert, cert, key)
		input = ` streamDriver.name="gtls" streamDriver.mode="1" streamDriver.authMode="anon"`
	}
	return writeFile(t, filepath.Join(dir, "rsyslog.conf"),
		global+")",
		`module(load="imtcp")`,
		`template(name="raw" type="string" string="%msg%\n")`,
		fmt.Sprintf(`input(type="imtcp" address=%q port=%q maxFrameSize="200000"%s)`, host, port,
			input),
		fmt.Sprintf(`action(type="omfile" file=%q template="raw")`, received))
}

// writeCertificate writes a self-signed certificate for 127.0.0.1, and its key.
func writeCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pair := s.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return writeFile(t, filepath.Join(dir, "cert.pem"), encode("CERTIFICATE", pair.Certificate[0])),
		writeFile(t, filepath.Join(dir, "key.pem"), encode("PRIVATE KEY", der))
}

// missingRecords returns "" if the file received has a line for every record of the log, in the
// order of the log. A record may be there twice. Otherwise it returns a text that says what
// differs.
func missingRecords(t *testing.T, g *harness.Gatekit, received, format string) string {
	t.Helper()
	b, err := os.ReadFile(received)
	if err != nil {
		return err.Error()
	}
	var got []uint64
	for line := range strings.Lines(string(b)) {
		var r struct {
			Seq      uint64
			Metadata struct{ Sequence uint64 }
		}
		line = strings.TrimPrefix(strings.TrimSpace(line), "\ufeff")
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Sprintf("rsyslog got a line that is no JSON: %v: %.200q", err, line)
		}
		seq := r.Seq
		if format == "ocsf" {
			seq = r.Metadata.Sequence
		}
		if !slices.Contains(got, seq) {
			got = append(got, seq)
		}
	}
	var want []uint64
	for _, r := range g.Records() {
		want = append(want, r.Seq)
	}
	if !slices.Equal(got, want) {
		return fmt.Sprintf("rsyslog got %d records, want the %d of the log, in its order:\n%v",
			len(got), len(want), got)
	}
	return ""
}
