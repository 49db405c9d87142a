package receivers

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/test/harness"
	"gatekit/test/peers"
)

// witnessKeys returns the private key of a witness, as omniwitness reads it, and the public key of
// its cosignatures.
func witnessKeys(name string) (private, public string) {
	seed := sha256.Sum256([]byte(name))
	key := ed25519.NewKeyFromSeed(seed[:])
	line := func(kind byte, id, b []byte) string {
		sum := sha256.Sum256(append([]byte(name+"\n"), append([]byte{kind}, id...)...))
		return fmt.Sprintf("%s+%x+%s", name, sum[:4],
			base64.StdEncoding.EncodeToString(append([]byte{kind}, b...)))
	}
	own := key.Public().(ed25519.PublicKey)
	return "PRIVATE+KEY+" + line(1, own, seed[:]), line(4, own, own)
}

// TestRealWitnessRefusesFork lets transparency-dev/witness cosign the log. Then an older copy of
// the log replaces it, which Gatekit's own files cannot show. The witness does not cosign the copy,
// and the copy does not match the cosignature of the log.
func TestRealWitnessRefusesFork(t *testing.T) {
	binary := peers.Witness(t)
	dir, kept := t.TempDir(), t.TempDir()
	address, admin := peers.FreeAddress(t), peers.FreeAddress(t)
	private, public := witnessKeys("witness.example/w1")
	config := harness.ScriptedServer("box") + harness.AuditTable +
		fmt.Sprintf("[[audit.witness]]\nurl = \"http://%s\"\nkey = %q\n[admin]\nhttp = %q\n",
			address, public, admin)
	log := filepath.Join(dir, "audit.jsonl")
	gatekit := func(args ...string) string {
		cmd := exec.CommandContext(harness.Context(t), peers.Gatekit(t), args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return fmt.Sprintf("%s%v", out, err)
	}
	wantOutput := func(want string, args ...string) {
		t.Helper()
		if out := gatekit(args...); !strings.Contains(out, want) {
			t.Errorf("gatekit %s printed\n%s\nwant %s", strings.Join(args, " "), out, want)
		}
	}
	state := func(want string) func() string {
		return func() string {
			series := `gatekit_audit_witness_state{gatekit_state="` + want +
				`",gatekit_witness="witness.example/w1"} 1`
			if page := getPage(t, "http://"+admin+"/metrics"); !strings.Contains(page, series) {
				return fmt.Sprintf("/metrics has no %s\n%s", series, page)
			}
			return ""
		}
	}

	// The witness is not there yet, and calls pass.
	g := harness.StartHTTPIn(t, dir, config)
	callEcho(t, g, 2)
	eventually(t, state("failing"))
	wantOutput("note  witness.example/w1", "check")
	g.Stop()
	wantOutput("there is no cosignature of witness.example/w1", "audit", "verify", "--witness",
		public)
	older := filepath.Join(kept, "older")
	copyFolder(t, dir, older)

	startWitness(t, binary, address, private, log)
	g = harness.StartHTTPIn(t, dir, config)
	callEcho(t, g, 10)
	eventually(t, func() string {
		if out := gatekit("audit", "verify", "--witness", public); !strings.Contains(out,
			"are cosigned: witness.example/w1 (") {
			return out
		}
		return ""
	})
	eventually(t, state("cosigning"))
	g.Stop()
	wantOutput("ok    witness.example/w1", "check")
	records := len(g.Records())
	wantOutput(fmt.Sprintf("records 1 to %d are cosigned: witness.example/w1 (%[1]d at ", records),
		"audit", "verify", "--witness", public)
	wantOutput(fmt.Sprintf(`"witnessed":%d`, records), "audit", "verify", "--witness", public,
		"--json")
	proof := filepath.Join(kept, "proof")
	if err := os.WriteFile(proof, []byte(strings.TrimSuffix(gatekit("audit", "prove", "3"),
		"<nil>")), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOutput(`{"seq":3,`, "audit", "verify-proof", "--key", log+".pub", "--witness", public,
		proof)
	_, stranger := witnessKeys("stranger.example")
	wantOutput("fewer than 1 of 1 witness key have cosigned", "audit", "verify-proof", "--key",
		log+".pub", "--witness", stranger, proof)
	cosigned := readFile(t, log+".tree/cosigned")

	for _, name := range []string{"audit.jsonl", "audit.jsonl.tree"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	copyFolder(t, older, dir)
	g = harness.StartHTTPIn(t, dir, config)
	callEcho(t, g, 20)
	eventually(t, state("refused"))
	eventually(t, func() string {
		for _, r := range g.Records() {
			if r.Action == "witness refused" && r.Reason == `witness "witness.example/w1"` &&
				strings.Contains(r.Error, "it has cosigned") {
				return ""
			}
		}
		return "the log has no record that the witness has refused it"
	})
	callEcho(t, g, 1) // traffic goes on
	g.Stop()
	wantOutput("FAIL  witness.example/w1", "check")
	wantOutput("are complete and unmodified", "audit", "verify")
	wantOutput("there is no cosignature of witness.example/w1", "audit", "verify", "--witness",
		public)
	if err := os.WriteFile(log+".tree/cosigned", cosigned, 0o600); err != nil {
		t.Fatal(err)
	}
	wantOutput("do not match the checkpoint", "audit", "verify", "--witness", public)
}

// startWitness starts the witness, which knows the log.
func startWitness(t *testing.T, binary, address, private, log string) {
	t.Helper()
	dir := t.TempDir()
	known := fmt.Sprintf("Logs:\n  - Origin: %q\n    PublicKey: %q\n    URL: \"http://none/\"\n",
		strings.TrimSpace(string(readFile(t, log+".tree/origin"))),
		strings.TrimSpace(string(readFile(t, log+".pub"))))
	for name, text := range map[string]string{"key": private + "\n", "logs.yaml": known} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := &harness.Output{}
	startProgram(t, address, out, binary, "--listen", address, "--metrics_listen", "",
		"--private_key_path", filepath.Join(dir, "key"), "--additional_logs",
		filepath.Join(dir, "logs.yaml"), "--db_file", filepath.Join(dir, "witness.db"))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// copyFolder copies a folder over another one. Its files can be read by their owner only, as the
// key of a log must be.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(target, b, 0o600)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
