package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/policies"
	"gatekit/policies/service"
	"gatekit/test/bundles"
)

// signed returns a bundle with a revision, signed with a key. The signature has the given claims.
func signed(t *testing.T, revision string, k *bundles.Key, claims map[string]any) []byte {
	t.Helper()
	return bundles.Build(t, revision, map[string]string{"acme.rego": rule},
		&bundles.Signature{Key: k, ID: "acme", Claims: claims})
}

// TestOlderBundleIsRejected checks that an older bundle with a valid signature is rejected, both
// while Gatekit runs and after a restart.
func TestOlderBundleIsRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: waits until bundles are fetched again")
	}
	iat := func(seconds int) map[string]any { return map[string]any{"iat": seconds} }
	for name, c := range map[string]struct {
		first, second             string
		firstClaims, secondClaims map[string]any
		older                     string // part of the error; "" if the second bundle is accepted
	}{
		"a lower number":   {"10", "9", nil, nil, "its revision is lower"},
		"a higher number":  {"9", "10", nil, nil, ""},
		"a lower version":  {"v1.10.0", "1.9.7", nil, nil, "its revision is lower"},
		"a higher version": {"1.9.7", "v1.10.0", nil, nil, ""},
		"an earlier time": {
			"2026-11-22T10:00:00Z", "2026-11-22T09:59:59Z", nil, nil, "is lower"},
		"a later time": {
			"2026-11-22T10:00:00Z", "2026-11-23T09:00:00Z", nil, nil, ""},
		"another opaque revision":  {"abc", "abb", nil, nil, ""},
		"no revision":              {"abc", "", nil, nil, "it has no revision"},
		"signed earlier":           {"abc", "abd", iat(2000), iat(1999), "signed before"},
		"signed later":             {"abc", "abd", iat(2000), iat(2001), ""},
		"signed later, but lower":  {"10", "9", iat(2000), iat(2001), ""},
		"the same, signed later":   {"abc", "abc", iat(2000), iat(2001), ""},
		"the same, without a time": {"abc", "abc", iat(2000), nil, "has no time"},
		"higher, without a time":   {"9", "10", iat(2000), nil, "has no time"},
		"signed, after no time":    {"abc", "abd", nil, iat(1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := bundles.NewKey(t)
			s := newServer(t, plain)
			s.serveBundle("/bundles/acme", `"1"`, signed(t, c.first, key, c.firstClaims))
			source := acme(s.remote(), key)
			source.RevisionFile = filepath.Join(t.TempDir(), "state", "acme.json")
			source.CacheFile = filepath.Join(t.TempDir(), "cache")
			b := newTestClient(t, source)
			running := b.open()
			s.serveBundle("/bundles/acme", `"2"`, signed(t, c.second, key, c.secondClaims))
			until(t, "the second bundle", func() bool {
				return strings.Contains(b.activated(), ", ") || b.rejections() != ""
			})
			running.Close()
			if (b.rejections() != "") != (c.older != "") ||
				!strings.Contains(b.rejections(), c.older) {
				t.Errorf("the rejections are %q, want %q in them", b.rejections(), c.older)
			}
			// After a restart, the older bundle is in the cache.
			if c.older != "" {
				if err := os.WriteFile(source.CacheFile, signed(t, c.second, key,
					c.secondClaims), 0o600); err != nil {
					t.Fatal(err)
				}
				s.serve("/bundles/acme", nil)
				again := newTestClient(t, source)
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if client, err := service.Open(ctx, again.o); err == nil {
					client.Close()
					t.Error("the older bundle is accepted from the cache")
				}
				if !strings.Contains(again.rejections(), c.older) {
					t.Errorf("the rejections are %q, want %q in them", again.rejections(), c.older)
				}
			}
		})
	}
}

// TestEarlierRevisionIsRejected checks that a revision that was active before cannot become active
// again, even if revisions have no order.
func TestEarlierRevisionIsRejected(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	source := acme(s.remote(), key)
	source.RevisionFile = filepath.Join(t.TempDir(), "acme.json")
	for _, revision := range []string{"red", "green"} {
		s.serveBundle("/bundles/acme", `"`+revision+`"`, pack(t, revision, key))
		c := newTestClient(t, source)
		c.open().Close()
		if c.rejections() != "" {
			t.Fatalf("rejected: %s; want no rejection", c.rejections())
		}
	}
	s.serveBundle("/bundles/acme", `"old"`, pack(t, "red", key))
	b := newTestClient(t, source)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	client, err := service.Open(ctx, b.o)
	if err == nil {
		client.Close()
		t.Fatal("the earlier revision is accepted")
	}
	if want := `revision "red" is older than revision "green", which was active: its revision was ` +
		"active before"; !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "rollback = \"allow\"") {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestEqualSpellingsAreNotNewer checks that a revision that was active before stays rejected if the
// last revision is another spelling of the same number.
func TestEqualSpellingsAreNotNewer(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	source := acme(s.remote(), key)
	source.RevisionFile = filepath.Join(t.TempDir(), "acme.json")
	for i, c := range []struct{ revision, rejected string }{
		{"1", ""}, {"v1", ""}, {"1", "its revision was active before"}, {"2", ""}} {
		s.serveBundle("/bundles/acme", fmt.Sprintf(`"%d"`, i), pack(t, c.revision, key))
		requireRejection(t, source, c.rejected)
	}
}

// TestManyLongRevisionsAreKept starts with as many revisions as are kept, in the form that takes
// the most bytes in the file.
func TestManyLongRevisionsAreKept(t *testing.T) {
	key := bundles.NewKey(t)
	s := newServer(t, plain)
	source := acme(s.remote(), key)
	source.RevisionFile = filepath.Join(t.TempDir(), "acme.json")
	revision := func(i int) string { return strings.Repeat("<", 252) + fmt.Sprintf("%04d", i) }
	var kept struct {
		Revisions []string `json:"revisions"`
	}
	for i := range 1000 {
		kept.Revisions = append(kept.Revisions, revision(i))
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source.RevisionFile, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ revision, rejected string }{
		{revision(1000), ""},
		{revision(1001), ""},
		{revision(500), "its revision was active before"},
	} {
		s.serveBundle("/bundles/acme", fmt.Sprintf(`"%d"`, i), pack(t, c.revision, key))
		requireRejection(t, source, c.rejected)
	}
}

// requireRejection opens a Client with the bundle that the source has. It fails the test unless the
// bundle is rejected with the text want, or accepted if want is "".
func requireRejection(t *testing.T, source service.BundleSource, want string) {
	t.Helper()
	b := newTestClient(t, source)
	if want == "" {
		b.open().Close()
		if b.rejections() != "" {
			t.Fatalf("rejected: %.300s; want no rejection", b.rejections())
		}
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	client, err := service.Open(ctx, b.o)
	if err == nil {
		client.Close()
		t.Fatalf("the bundle is accepted, want the error %q", want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %.300v, want %q in it", err, want)
	}
}

// TestExpiredBundleIsRejected checks the times in a signature, which OPA ignores.
func TestExpiredBundleIsRejected(t *testing.T) {
	key := bundles.NewKey(t)
	keys := map[string]policies.Key{"acme": {Key: key.Public, Algorithm: bundles.Algorithm}}
	now := time.Now().Unix()
	for name, c := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"no times":      {nil, ""},
		"expired":       {map[string]any{"exp": now - 1}, "the signature expired at "},
		"expires later": {map[string]any{"exp": now + 3600}, ""},
		"not yet valid": {map[string]any{"nbf": now + 3600}, "is only valid from"},
		"valid":         {map[string]any{"nbf": now - 3600, "iat": now - 3600}, ""},
	} {
		_, err := policies.ReadBundle("acme", signed(t, "1", key, c.claims), keys)
		if c.want == "" && err != nil || c.want != "" && (err == nil ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
