package transport_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gatekit/transport"
)

func TestListenAdminRefusesAddressesThatOtherMachinesReach(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		a, err := transport.ListenAdmin(transport.AdminServerOptions{Addr: addr})
		if err == nil {
			a.Close()
			t.Errorf("ListenAdmin on %s succeeded, want an error", addr)
		} else if !strings.Contains(err.Error(), "not a loopback address") ||
			!strings.Contains(err.Error(), "\nhint: listen on 127.0.0.1:") {
			t.Errorf("ListenAdmin on %s: got %v, want a hint to use a loopback address", addr, err)
		}
	}
}

func TestAdminServerEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{})
	a, err := transport.ListenAdmin(transport.AdminServerOptions{Addr: "127.0.0.1:0",
		Pages: map[string]http.Handler{
			"/slow": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(asked)
				<-r.Context().Done()
			}),
			"/page": http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				io.WriteString(w, "good")
			}),
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Serve(ctx) }()
	url := "http://" + a.Addr().String()
	answer, err := http.Get(url + "/page")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(answer.Body); string(b) != "good" ||
		answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %q, %v, want the page and Cache-Control: no-store", b, answer.Header)
	}
	answer.Body.Close()
	go http.Get(url + "/slow")
	<-asked
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve returned %v, want nil", err)
	}
}

func TestListenAdminNamesTheSettingOfAnAddressInUse(t *testing.T) {
	first, err := transport.ListenAdmin(transport.AdminServerOptions{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for setting, want := range map[string]string{"": "[admin] http", "--addr": "--addr"} {
		a, err := transport.ListenAdmin(transport.AdminServerOptions{Setting: setting,
			Addr: first.Addr().String()})
		if err == nil {
			a.Close()
			t.Fatal("two servers listen on one address")
		}
		if !strings.Contains(err.Error(), "or set "+want+" to another port") {
			t.Errorf("with the setting %q: error %v", setting, err)
		}
	}
}

func TestAdminServerWithoutPagesNamesTheConsole(t *testing.T) {
	a, err := transport.ListenAdmin(transport.AdminServerOptions{Addr: "127.0.0.1:0",
		Console: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/", nil))
	if w.Code != 404 || !strings.Contains(w.Body.String(), "try /console/") {
		t.Errorf("got status %d, %q", w.Code, w.Body)
	}
}
