// Openidprovider is an OpenID provider for test/e2e/credentials that needs no Node. It is built on
// github.com/zitadel/oidc, which OpenID has certified, and has the clients of provider.mjs beside
// these tests. It is a separate module, because Gatekit does not depend on the library.
//
// Usage: openidprovider SECONDS REFRESHED
//
// It listens on a free loopback port. Access tokens of a login are valid for SECONDS, refreshed
// ones for REFRESHED seconds. Everybody can log in, with any name and password. The first line of
// stdout is the issuer. Each further line is a successful grant, or a revocation. The variable
// CONNECT is the URL of Gatekit's own pages. With JWTS, access tokens are JWTs, and otherwise
// opaque. A POST to /rotate replaces the key that signs tokens.
//
// The library ignores the parameter resource of RFC 8707, so this program handles it: the resource
// becomes the audience of access tokens. There is no registration of clients.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("got %d arguments; usage: openidprovider SECONDS REFRESHED", len(args))
	}
	var times [2]time.Duration
	for i, arg := range args {
		seconds, err := strconv.Atoi(arg)
		if err != nil {
			return fmt.Errorf("%s is not a number of seconds: %w", arg, err)
		}
		times[i] = time.Duration(seconds) * time.Second
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the log of the library
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := "http://" + listener.Addr().String()
	s := newStorage(times[0], times[1], os.Getenv("CONNECT"), os.Getenv("JWTS") != "")
	handler, err := newHandler(issuer, s)
	if err != nil {
		return err
	}
	fmt.Println(issuer)
	return http.Serve(listener, handler)
}

// newHandler returns the handler of the provider. Its paths are those of provider.mjs.
func newHandler(issuer string, s *storage) (http.Handler, error) {
	var key [32]byte
	rand.Read(key[:])
	provider, err := op.NewProvider(&op.Config{
		CryptoKey:             key,
		CryptoKeyId:           "first",
		CodeMethodS256:        true,
		AuthMethodPost:        true,
		GrantTypeRefreshToken: true,
		SupportedScopes:       []string{"openid", "offline_access", "read", "write"},
		DeviceAuthorization: op.DeviceAuthorizationConfig{Lifetime: 5 * time.Minute,
			PollInterval: time.Second, UserFormPath: "/device", UserCode: op.UserCodeBase20},
	}, s, op.StaticIssuer(issuer), op.WithAllowInsecure(),
		op.WithCustomAuthEndpoint(op.NewEndpoint("auth")),
		op.WithCustomTokenEndpoint(op.NewEndpoint("token")),
		op.WithCustomIntrospectionEndpoint(op.NewEndpoint("token/introspection")),
		op.WithCustomRevocationEndpoint(op.NewEndpoint("token/revocation")),
		op.WithCustomDeviceAuthorizationEndpoint(op.NewEndpoint("device/auth")))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", provider)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, status: http.StatusOK}
		provider.ServeHTTP(a, r)
		if a.status == http.StatusOK {
			fmt.Println("grant", r.PostForm.Get("grant_type"))
		}
	})
	mux.HandleFunc("POST /rotate", func(http.ResponseWriter, *http.Request) { s.rotate() })
	callback := op.AuthCallbackURL(provider)
	p := &pages{storage: s, callback: func(id string) string {
		return callback(op.ContextWithIssuer(context.Background(), issuer), id)
	}}
	mux.HandleFunc("/login", p.serveLogin)
	mux.HandleFunc("/device", p.serveDevice)
	return withResource(mux), nil
}

// answer is a response whose status is kept.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

type resourceKey struct{}

// withResource puts the parameter resource of a request into its context.
func withResource(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), resourceKey{},
			r.Form["resource"])))
	})
}

// resourcesOf returns the resources that a request names.
func resourcesOf(ctx context.Context) []string {
	resources, _ := ctx.Value(resourceKey{}).([]string)
	return resources
}

// pages are the pages to log in at. They keep nothing in the browser: each form has the values of
// those before.
type pages struct {
	storage  *storage
	callback func(id string) string // the URL that a login continues at
}

// serveLogin asks for a name and for the consent of the user.
func (p *pages) serveLogin(w http.ResponseWriter, r *http.Request) {
	id := r.FormValue("id")
	to := "/login?id=" + id
	switch {
	case r.FormValue("prompt") == "":
		writeForm(w, to, map[string]string{"prompt": "login"})
	case r.FormValue("prompt") == "login":
		if err := p.storage.logIn(id, r.FormValue("login")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeForm(w, to, map[string]string{"prompt": "consent"})
	default:
		p.storage.consent(id)
		http.Redirect(w, r, p.callback(id), http.StatusFound)
	}
}

// serveDevice asks for the code, for a confirmation, a name and the consent of the user.
func (p *pages) serveDevice(w http.ResponseWriter, r *http.Request) {
	hidden := map[string]string{}
	for _, name := range []string{"user_code", "confirm", "login"} {
		if r.FormValue(name) == "" {
			writeForm(w, "/device", hidden)
			return
		}
		hidden[name] = r.FormValue(name)
	}
	if r.FormValue("prompt") != "consent" {
		hidden["prompt"] = "consent"
		writeForm(w, "/device", hidden)
		return
	}
	if err := p.storage.completeDevice(hidden["user_code"], hidden["login"]); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	io.WriteString(w, "You are logged in on the other device.")
}

// writeForm writes a page with a form, whose visible fields the tests know.
func writeForm(w http.ResponseWriter, to string, hidden map[string]string) {
	form.Execute(w, struct {
		To     string
		Hidden map[string]string
	}{to, hidden})
}

var _ interface {
	op.Storage
	op.TokenExchangeStorage
	op.DeviceAuthorizationStorage
} = (*storage)(nil)

var _ op.AuthRequest = (*login)(nil)
