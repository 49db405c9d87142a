package auth_test

import (
	"errors"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/core/identity"
	"gatekit/transport/auth"
)

func revocations(t *testing.T, dir string) *auth.Revocations {
	t.Helper()
	r, err := auth.OpenRevocations(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A token that was issued before the revocation, or within the skew after it, is refused. A later
// one is accepted, and so are the tokens of others.
func TestRevokedPrincipalIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "revoked")
	store := revocations(t, dir)
	a, ia, _ := start(t, func(o *auth.Options) {
		o.Revocations, o.Skew = store, 10*time.Second
	})
	token := func(subject string, issued any) string {
		return ia.Token("a1", ia.Claims(resource, map[string]any{"sub": subject, "iat": issued}))
	}
	ask := func(token string) int {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		p, refused := a.Authenticate(r)
		if refused == nil {
			return 200
		}
		if p != nil {
			t.Errorf("a refused request has the principal %s", p.ID())
		}
		if refused.Status == 401 && (strings.Contains(refused.Reason, "lost") ||
			!strings.Contains(refused.Detail, "revoked") || refused.Principal == "" ||
			!strings.Contains(refused.Header.Get("WWW-Authenticate"), "invalid_token")) {
			t.Errorf("got the refusal %+v", refused)
		}
		return refused.Status
	}
	at := time.Now().Add(-time.Minute)
	cases := []struct {
		name, token string
		want        int
	}{
		{"issued before", token("ann", at.Add(-time.Hour).Unix()), 401},
		{"issued within the skew", token("ann", at.Add(5*time.Second).Unix()), 401},
		{"issued later", token("ann", at.Add(12*time.Second).Unix()), 200},
		{"without a time", token("ann", nil), 401},
		{"with a text as time", token("ann", "tomorrow"), 401},
		{"of another user", token("bob", at.Add(-time.Hour).Unix()), 200},
	}
	for _, tt := range cases {
		if got := ask(tt.token); got != 200 {
			t.Errorf("before the revocation, %s: got status %d", tt.name, got)
		}
	}
	if err := store.Add(auth.Revocation{Principal: ia.URL + "#ann", At: at,
		Reason: "laptop lost"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range cases {
		if got := ask(tt.token); got != tt.want {
			t.Errorf("%s: got status %d, want %d", tt.name, got, tt.want)
		}
	}
	ann, err := identity.New(identity.Attributes{Method: identity.JWT, Issuer: ia.URL,
		Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if a.Revoked(ann) == nil || a.Revoked(nil) != nil {
		t.Error("Revoked does not agree with Authenticate")
	}

	// A restart keeps the revocation. After its removal, the principal is accepted.
	if again := revocations(t, dir).All(); len(again) != 1 || !again[0].At.Equal(at) {
		t.Errorf("after a restart, the revocations are %+v", again)
	}
	if err := store.Remove(ia.URL + "#ann"); err != nil {
		t.Fatal(err)
	}
	if got := ask(cases[0].token); got != 200 {
		t.Errorf("after the removal: got status %d, want 200", got)
	}
	if err := store.Remove(ia.URL + "#ann"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a second removal: got the error %v", err)
	}
	if again := revocations(t, dir).All(); len(again) != 0 {
		t.Errorf("after a second restart, the revocations are %+v", again)
	}
}

func TestRevocationsThatCannotBeStored(t *testing.T) {
	store := revocations(t, filepath.Join(t.TempDir(), "revoked"))
	for name, r := range map[string]auth.Revocation{
		"no principal":      {Reason: "x"},
		"control character": {Principal: "token:a\n", Reason: "x"},
		"long principal":    {Principal: strings.Repeat("a", 1025), Reason: "x"},
		"no reason":         {Principal: "token:ci"},
		"blank reason":      {Principal: "token:ci", Reason: " "},
		"two lines":         {Principal: "token:ci", Reason: "a\nb"},
		"long reason":       {Principal: "token:ci", Reason: strings.Repeat("a", 501)},
	} {
		if err := store.Add(r); err == nil {
			t.Errorf("%s: stored", name)
		}
	}
	if all := store.All(); len(all) > 0 {
		t.Errorf("stored %+v", all)
	}
}

// A revocation that cannot be read must not let its principal in.
func TestDamagedRevocationEndsTheStart(t *testing.T) {
	for name, damage := range map[string]func(dir, file string) error{
		"half a file": func(_, file string) error { return os.Truncate(file, 10) },
		"the file of another principal": func(dir, file string) error {
			return os.Rename(file, filepath.Join(dir, strings.Repeat("0", 64)+".json"))
		},
		"without its time": func(_, file string) error {
			return os.WriteFile(file, []byte(`{"principal":"token:ci","reason":"leaked"}`), 0o600)
		},
		"others can write it":  func(_, file string) error { return os.Chmod(file, 0o666) },
		"others can add files": func(dir, _ string) error { return os.Chmod(dir, 0o777) },
	} {
		dir := filepath.Join(t.TempDir(), "revoked")
		if err := revocations(t, dir).Add(auth.Revocation{Principal: "token:ci",
			At: time.Now(), Reason: "leaked"}); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("got the files %q, %v", files, err)
		}
		if err := damage(dir, files[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.OpenRevocations(dir); err == nil {
			t.Errorf("%s: opened without an error", name)
		}
	}
}
