package audit_test

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"gatekit/audit"
)

// newSigner returns a new key pair with a name.
func newSigner(t *testing.T, name string) (note.Signer, note.Verifier) {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, verifier
}

// sign returns a signed note with the lines.
func sign(t *testing.T, key note.Signer, lines ...string) []byte {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: strings.Join(lines, "\n") + "\n"}, key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// A signature alone makes no checkpoint: the key may have signed other notes.
func TestSignedNotesThatAreNoCheckpoints(t *testing.T) {
	signer, key := newSigner(t, "gatekit/test")
	hash := tlog.RecordHash([]byte("x"))
	root := base64.StdEncoding.EncodeToString(hash[:])
	const size = `size "`
	for _, tt := range []struct {
		name  string
		lines []string
		want  string // a part of the error; "" is none
	}{
		{"a checkpoint", []string{"o", "1", root}, ""},
		{"a checkpoint of no records", []string{"o", "0", root}, ""},
		{"lines of other programs", []string{"o", "1", root, "x 1", "closing"}, ""},
		{"a closed log and the end of its file",
			[]string{"o", "1", root, "file 1 9", "closed"}, ""},
		{"no root", []string{"o", "1"}, "origin, size or root is missing"},
		{"an empty origin", []string{"", "1", root}, "origin, size or root is missing"},
		{"a negative size", []string{"o", "-1", root}, size},
		{"a size with a zero before it", []string{"o", "01", root}, size},
		{"a size with a sign", []string{"o", "+1", root}, size},
		{"a size that is too large", []string{"o", "9223372036854775808", root}, size},
		{"a root that is too short", []string{"o", "1", root[:40]}, `root "`},
		{"a root that is too long", []string{"o", "1",
			base64.StdEncoding.EncodeToString(append(hash[:], 1))}, `root "`},
		{"a root that is no base64", []string{"o", "1", "?" + root[1:]}, `root "`},
		{"a root in another spelling", []string{"o", "1", root[:42] + "B="}, `root "`},
		{"a file without a length", []string{"o", "1", root, "file 1"}, `the line "file 1"`},
		{"a file that begins with no number", []string{"o", "1", root, "file x 9"},
			`the line "file x 9"`},
	} {
		c, err := audit.OpenCheckpoint(sign(t, signer, tt.lines...), key)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: got the error %v, want none", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %+v and the error %v, want an error with %s", tt.name, c, err,
				tt.want)
		case tt.want == "":
			closed := strings.Contains(tt.name, "closed")
			if c.Origin != "o" || c.Root != hash || c.Closed != closed ||
				(c.File == audit.FileEnd{First: 1, Bytes: 9}) != closed {
				t.Errorf("%s: got %+v", tt.name, c)
			}
		}
	}
}

// The key of a log has signed a tree whose first record has the number 2.
func TestProofOfARecordWithAnotherNumber(t *testing.T) {
	signer, key := newSigner(t, "gatekit/test")
	lines := logLines(t, 2)
	second := []byte(strings.TrimSpace(string(lines[1])))
	root := tlog.RecordHash(second)
	p := audit.Proof{Record: second, Index: 0, Checkpoint: sign(t, signer, "o", "1",
		base64.StdEncoding.EncodeToString(root[:]))}
	const want = "the record is number 1 of the log, but its seq is 2"
	if c, err := p.Verify(key); err == nil || err.Error() != want {
		t.Errorf("got %+v and the error %v, want %s", c, err, want)
	}
}
