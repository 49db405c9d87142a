package tokenstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/transport/tokenstore"

	"github.com/zalando/go-keyring"
)

var key = bytes.Repeat([]byte("k"), 32)

func open(t *testing.T, folder string, key []byte) *tokenstore.Folder {
	t.Helper()
	s, err := tokenstore.Open(folder, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newFolder(t *testing.T) string { return filepath.Join(t.TempDir(), "tokens") }

func record() *tokenstore.Record {
	return &tokenstore.Record{
		ID: tokenstore.ID{Kind: tokenstore.Login, Server: "github",
			Principal: "https://login.example#ann"},
		AuthorizationServer: "https://github.example", ClientID: "gatekit", AuthMethod: "none",
		Redirect: "http://127.0.0.1:1/callback", Wanted: []string{"repo"},
		Resource: "https://api.example/mcp", Scopes: []string{"repo", "user"},
		Expiry:  time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		Secrets: tokenstore.Secrets{Access: "acc-secret", Refresh: "ref-secret"},
	}
}

// onlyFile returns the path of the only record in a folder.
func onlyFile(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.token"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got files %q, %v; want one", files, err)
	}
	return files[0]
}

func TestRecordsAreKeptAcrossRestarts(t *testing.T) {
	folder, want := newFolder(t), record()
	if err := open(t, folder, key).Save(want); err != nil {
		t.Fatal(err)
	}
	s := open(t, folder, key)
	got, err := s.Load(want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v %q", got, got.Secrets.Access+got.Secrets.Refresh) !=
		fmt.Sprintf("%+v %q", want, want.Secrets.Access+want.Secrets.Refresh) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	list, err := tokenstore.All(s)
	if err != nil || len(list) != 1 || list[0].ID != want.ID ||
		list[0].Secrets != (tokenstore.Secrets{}) {
		t.Errorf("All: got %+v, %v; want the record without secrets", list, err)
	}
	if err := s.Delete(want.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(want.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load after Delete: %v; want fs.ErrNotExist", err)
	}
	if err := s.Delete(want.ID); err != nil {
		t.Errorf("second Delete: %v; want nil", err)
	}
}

func TestOnlyTheOwnerCanReadRecords(t *testing.T) {
	folder := newFolder(t)
	s := open(t, folder, key)
	if err := s.Save(record()); err != nil {
		t.Fatal(err)
	}
	file := onlyFile(t, folder)
	for path, want := range map[string]fs.FileMode{folder: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"acc-secret", "ref-secret"} {
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("the file contains %q", secret)
		}
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", record().Secrets, record(),
		record().Secrets)} {
		if strings.Contains(text, "-secret") {
			t.Errorf("a printed record contains a secret: %s", text)
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(record().ID); err == nil || !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("Load of a file with mode 0644: %v; want an error with chmod 0600", err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := tokenstore.Open(folder, key); err == nil {
		t.Error("Open accepted a folder with mode 0755")
	}
}

func TestEveryChangedByteIsRefused(t *testing.T) {
	folder := newFolder(t)
	s := open(t, folder, key)
	if err := s.Save(record()); err != nil {
		t.Fatal(err)
	}
	file := onlyFile(t, folder)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(content) - 1 { // the last byte is the end of the line
		changed := bytes.Clone(content)
		changed[i] ^= 1
		if err := os.WriteFile(file, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(record().ID); err == nil {
			t.Fatalf("byte %d (%q) changed: got %+v, want an error", i, content[i], got)
		}
	}
}

func TestRecordInThePlaceOfAnotherIsRefused(t *testing.T) {
	folder := newFolder(t)
	s, bob := open(t, folder, key), record()
	if err := s.Save(record()); err != nil {
		t.Fatal(err)
	}
	alice := onlyFile(t, folder)
	content, err := os.ReadFile(alice)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(alice)
	bob.Principal = "https://login.example#bob"
	if err := s.Save(bob); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(onlyFile(t, folder), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(bob.ID); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("got %+v, %v; want an error that the file was changed", got, err)
	}
}

func TestAnotherKeyIsSaid(t *testing.T) {
	folder := newFolder(t)
	if err := open(t, folder, key).Save(record()); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, folder, bytes.Repeat([]byte("x"), 32)).Load(record().ID)
	if _, ok := errors.AsType[*tokenstore.KeyError](err); !ok ||
		!strings.Contains(err.Error(), "another machine") {
		t.Errorf("got %v; want a KeyError", err)
	}
	if _, err := tokenstore.Open(folder, key[:31]); err == nil {
		t.Error("Open accepted a key of 31 bytes")
	}
}

func TestListNamesDamagedFiles(t *testing.T) {
	folder := newFolder(t)
	s := open(t, folder, key)
	if err := s.Save(record()); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(folder, "damaged.token")
	if err := os.WriteFile(damaged, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := tokenstore.All(s)
	if len(list) != 1 || err == nil || !strings.Contains(err.Error(), damaged) {
		t.Errorf("got %d records, %v; want 1 and an error with %s", len(list), err, damaged)
	}
}

func TestLockExcludesOtherStores(t *testing.T) {
	folder := newFolder(t)
	first, second := open(t, folder, key), open(t, folder, key)
	_, unlock, err := first.Lock(t.Context(), record().ID)
	if err != nil {
		t.Fatal(err)
	}
	other := record().ID
	other.Server = "jira"
	_, unlockOther, err := second.Lock(t.Context(), other)
	if err != nil {
		t.Fatalf("lock of another record: %v", err)
	}
	unlockOther()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := second.Lock(ctx, record().ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lock that is held: %v; want context.DeadlineExceeded", err)
	}
	unlock()
	_, unlock, err = second.Lock(t.Context(), record().ID)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestKeyringKeepsOneKey(t *testing.T) {
	keyring.MockInit()
	first, err := tokenstore.KeyringKey()
	if err != nil || len(first) < tokenstore.MinKey {
		t.Fatalf("got %d bytes, %v; want a key", len(first), err)
	}
	second, err := tokenstore.KeyringKey()
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("second key: %v; want the first key again", err)
	}
	keyring.MockInitWithError(errors.New("no Secret Service"))
	if _, err := tokenstore.KeyringKey(); err == nil ||
		!strings.Contains(err.Error(), "no Secret Service") ||
		!strings.Contains(err.Error(), "${file:tokens.key}") {
		t.Errorf("without a keyring: %v; want the cause and the way out", err)
	}
}
