package clustertest

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gatekit/test/peers"
)

// StartHAProxy starts Debian's haproxy in front of the replicas with these URLs, of which only the
// host counts, and returns the address of the balancer. Each request goes to another replica than
// the last, in turn. haproxy sends no request twice. It takes a replica out with the first
// connection that is refused, or when /readyz has failed for ten seconds, and back when /readyz
// answers again. haproxy ends with the test.
//
// haproxy must not take replicas out sooner because of /readyz: when the server of [shared] has
// been away for ten seconds, no replica is ready, and then clients would not learn why.
func StartHAProxy(t testing.TB, urls ...string) (address string) {
	t.Helper()
	var servers strings.Builder
	for i, host := range hosts(t, urls) {
		fmt.Fprintf(&servers, "    server replica-%d %s check inter 1s fall 10 rise 1 "+
			"observe layer4 error-limit 1 on-error mark-down\n", i, host)
	}
	address = peers.FreeAddress(t)
	config := fmt.Sprintf(`global
    maxconn 4096
defaults
    mode http
    retries 0
    no option redispatch
    timeout connect 2s
    timeout client 5m
    timeout server 5m
frontend clients
    bind %s
    default_backend replicas
backend replicas
    balance roundrobin
    option httpchk GET /readyz
    http-check expect status 200
%s`, address, servers.String())
	startBalancer(t, address, config, "haproxy", "-db", "-f")
	return address
}

// StartNginx is StartHAProxy with nginx, which does not ask the replicas whether they are ready. It
// takes a replica out for a time with each connection that is refused, and sends a request there
// again when this time is over.
func StartNginx(t testing.TB, out time.Duration, urls ...string) (address string) {
	t.Helper()
	var servers strings.Builder
	for _, host := range hosts(t, urls) {
		fmt.Fprintf(&servers, "        server %s max_fails=1 fail_timeout=%ds;\n", host,
			int(out.Seconds()))
	}
	address = peers.FreeAddress(t)
	dir := t.TempDir()
	var folders strings.Builder
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&folders, "    %s_temp_path %s;\n", name, filepath.Join(dir, name))
	}
	config := fmt.Sprintf(`daemon off;
master_process off;
pid %s;
error_log stderr crit;
events {
    worker_connections 4096;
}
http {
    access_log off;
%s    upstream replicas {
%s        keepalive 64;
    }
    server {
        listen %s;
        location / {
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_read_timeout 5m;
            proxy_next_upstream off;
        }
    }
}
`, filepath.Join(dir, "pid"), folders.String(), servers.String(), address)
	startBalancer(t, address, config, "nginx", "-e", "stderr", "-p", dir, "-c")
	return address
}

// hosts returns the hosts of URLs.
func hosts(t testing.TB, urls []string) (all []string) {
	t.Helper()
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, u.Host)
	}
	return all
}

// startBalancer starts a command, to which it adds the file of the configuration, and waits until
// the command listens.
func startBalancer(t testing.TB, address, config string, command ...string) {
	t.Helper()
	// Debian has both in /usr/sbin, which is not in the PATH of every user.
	program := filepath.Join("/usr/sbin", command[0])
	if _, err := exec.LookPath(program); err != nil {
		peers.Installed(t, command[0])
		program = command[0]
	}
	file := filepath.Join(t.TempDir(), command[0]+".conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	process := exec.Command(program, append(command[1:], file)...)
	process.Stdout, process.Stderr = &output, &output
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = process.Wait()
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("%s printed\n%s", command[0], output.String())
		}
	})
	alive := func() bool {
		select {
		case <-exited:
			return false
		default:
			return true
		}
	}
	if !peers.Listening(address, alive) {
		t.Fatalf("%s does not listen on %s:\n%s", command[0], address, output.String())
	}
}
