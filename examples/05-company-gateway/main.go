// Company starts two identity providers, the servers of gatekit.toml and Gatekit. Then two users
// log in and call tools.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"example.com/company/idp"
)

const (
	address    = "127.0.0.1:7778" // the identity providers and the servers over HTTP
	base       = "http://" + address
	gatekitURL = "http://127.0.0.1:7777/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := runAll
	if filepath.Base(os.Args[0]) == "reports" {
		run = runReports
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "company:", err)
		os.Exit(1)
	}
}

func runAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "company-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := installPrograms(ctx, filepath.Join(dir, "bin")); err != nil {
		return err
	}
	secrets := map[string]string{}
	for _, name := range []string{"CONNECT_SECRET", "STAFF_SECRET", "DESK_SECRET"} {
		secrets[name] = rand.Text()
	}
	if err := serve(secrets); err != nil {
		return err
	}
	end, err := startGatekit(ctx, dir, secrets)
	if err != nil {
		return err
	}
	if err := errors.Join(useIt(ctx), end()); err != nil {
		return err
	}
	return showAudit(ctx, dir, secrets)
}

// installPrograms puts gatekit and reports into dir. The environment variable GATEKIT can name a
// binary of gatekit. Without it, gatekit is built.
func installPrograms(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err := errors.Join(err, os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	gatekit := filepath.Join(dir, "gatekit")
	if built := os.Getenv("GATEKIT"); built != "" {
		err = os.Symlink(built, gatekit)
	} else {
		build := exec.CommandContext(ctx, "go", "-C", "../..", "build", "-o", gatekit,
			"./cmd/gatekit")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	return errors.Join(err, os.Symlink(self, filepath.Join(dir, "reports")))
}

// serve starts the identity providers and the servers tickets and orders.
func serve(secrets map[string]string) error {
	public := strings.TrimSuffix(gatekitURL, "/mcp")
	editor := idp.Client{Redirects: []string{base + "/editor/callback"}}
	staff := &idp.Provider{Issuer: base + "/staff",
		Users: map[string][]string{"ann": {"dev"}, "bea": {"support"}},
		Clients: map[string]idp.Client{"editor": editor,
			"gatekit-connect": {Secret: secrets["CONNECT_SECRET"],
				Redirects: []string{public + "/connect/login"}},
			"gatekit": {Secret: secrets["STAFF_SECRET"], Exchanges: true}},
		Targets: map[string]string{"orders": base + "/orders/mcp"}}
	partners := &idp.Provider{Issuer: base + "/partners",
		Users:   map[string][]string{"paul": {"partner"}},
		Clients: map[string]idp.Client{"editor": editor}}
	desk := &idp.Provider{Issuer: base + "/desk", Users: map[string][]string{"ann": nil},
		Clients: map[string]idp.Client{"gatekit": {Secret: secrets["DESK_SECRET"],
			Redirects: []string{public + "/connect/callback"}}}}
	mux := http.NewServeMux()
	for _, p := range []*idp.Provider{staff, partners, desk} {
		if err := errors.Join(p.Start(), p.Register(mux)); err != nil {
			return err
		}
	}
	registerServer(mux, desk, "/tickets", "mine", func(user, _ string) string {
		return "ticket 7 of " + user + ": the printer is on fire"
	})
	registerServer(mux, staff, "/orders", "open", func(user, client string) string {
		return "3 open orders, for " + user + " by " + client
	})
	mux.HandleFunc("GET /editor/callback", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "You can close this page.")
	})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go http.Serve(listener, mux)
	return nil
}

// gatekit returns a command of gatekit, with its programs and secrets.
func gatekit(ctx context.Context, dir string, secrets map[string]string,
	args ...string) *exec.Cmd {
	bin := filepath.Join(dir, "bin")
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "gatekit"), args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"),
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, secret := range secrets {
		cmd.Env = append(cmd.Env, name+"="+secret)
	}
	return cmd
}

// startGatekit starts gatekit with gatekit.toml, and returns when it listens. Its log is
// gatekit.log.
func startGatekit(ctx context.Context, dir string, secrets map[string]string) (end func() error,
	err error) {
	log, err := os.Create("gatekit.log")
	if err != nil {
		return nil, err
	}
	cmd := gatekit(ctx, dir, secrets, "run")
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	end = func() error {
		cmd.Process.Signal(os.Interrupt)
		return cmp.Or(<-exited, log.Close())
	}
	for {
		if answer, err := http.Get(gatekitURL); err == nil {
			answer.Body.Close()
			return end, nil
		}
		select {
		case err := <-exited:
			return nil, fmt.Errorf("gatekit ended at once (%w): see gatekit.log", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// useIt is the session of the two users.
func useIt(ctx context.Context) error {
	ann, err := logIn(ctx, "ann", base+"/staff")
	if err != nil {
		return err
	}
	defer ann.session.Close()
	paul, err := logIn(ctx, "paul", base+"/partners")
	if err != nil {
		return err
	}
	defer paul.session.Close()
	welcome := map[string]any{"path": "welcome.txt"}

	if err := ann.list(ctx); err != nil {
		return err
	}
	ann.call(ctx, "files__read_file", welcome)
	ann.call(ctx, "orders__open", nil)
	ann.call(ctx, "tickets__connect", nil)
	if err := ann.list(ctx); err != nil {
		return err
	}
	ann.call(ctx, "tickets__mine", nil)
	ann.call(ctx, "reports__weekly", nil)

	if err := paul.list(ctx); err != nil {
		return err
	}
	paul.call(ctx, "files__read_file", welcome)
	paul.call(ctx, "files__delete_file", welcome)
	paul.call(ctx, "tickets__mine", nil)
	return nil
}

// showAudit prints what the audit log has about logins and denials.
func showAudit(ctx context.Context, dir string, secrets map[string]string) error {
	for _, args := range [][]string{{"audit", "show", "--action", "exchanged"},
		{"audit", "show", "--action", "login"}, {"audit", "show", "--action", "deny"}} {
		fmt.Println("gatekit", strings.Join(args, " "))
		cmd := gatekit(ctx, dir, secrets, args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	return nil
}
