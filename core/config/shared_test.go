package config_test

import (
	"strings"
	"testing"
	"time"
)

func TestSharedIsChecked(t *testing.T) {
	cert, key := certificate(t)
	clusterOf := func(settings string) string {
		return "[cluster]\nname = \"a\"\nlisten = \"127.0.0.1:7443\"\n" +
			"advertise = \"127.0.0.1:7443\"\nca = \"ca.pem\"\ncert = \"ca.pem\"\n" +
			"key = \"key.pem\"\n" + settings + "\n"
	}
	listen := "[server.a]\ncommand = \"x\"\n[listen]\nhttp = \"127.0.0.1:7777\"\nstate_key = \"" +
		strings.Repeat("k", 32) + "\"\n"
	local := listen + "[shared]\nurl = \"redis://127.0.0.1\"\n"
	remote := listen + "[shared]\nurl = \"rediss://valkey.example:6380/2\"\n"
	for _, tt := range []struct{ name, text, want string }{
		{"on this machine", local, ""},
		{"by name", strings.Replace(local, "127.0.0.1\"\n[", "localhost\"\n[", 1), ""},
		{"encrypted", remote + "user = \"g\"\npassword = \"p\"\nca = \"ca.pem\"\ncopies = 1\n" +
			"timeout = \"1s\"\nprefix = \"gatekit:prod:\"\nlost = \"deny\"\n" +
			"limits = \"deny\"\n",
			""},
		{"nothing but the table", listen + "[shared]\n", "shared.url is missing"},
		{"not encrypted", strings.Replace(remote, "rediss", "redis", 1),
			"7:1: shared.url is not encrypted, and the server is on another machine"},
		{"no URL", strings.Replace(remote, "rediss://", "", 1), "shared.url must be"},
		{"no host", strings.Replace(remote, "valkey.example", "", 1), "shared.url must be a URL"},
		{"another scheme", strings.Replace(remote, "rediss", "https", 1),
			"shared.url must begin with rediss:// or redis://, not https://"},
		{"no number of a database", strings.Replace(remote, "6380/2", "6380/x", 1),
			"shared.url must be a URL"},
		{"a negative number of a database", strings.Replace(remote, "6380/2", "6380/-1", 1),
			"shared.url must be a URL"},
		{"the largest number of a database", strings.Replace(remote, "6380/2", "6380/1048576", 1),
			""},
		{"too large a number of a database", strings.Replace(remote, "6380/2", "6380/1048577", 1),
			"shared.url must be a URL"},
		{"a query", strings.Replace(remote, "6380/2", "6380/2?x=1", 1), "shared.url must be a URL"},
		{"a password in the URL", strings.Replace(remote, "valkey.example", ":s3cret@v.example", 1),
			"shared.url has a user or a password"},
		{"a user without a password", remote + "user = \"g\"\n", "shared.user needs"},
		{"a missing certificate", remote + "ca = \"missing.pem\"\n", "missing.pem: no such file"},
		{"a certificate for a plain connection", local + "ca = \"ca.pem\"\n",
			"shared.ca needs an encrypted shared.url"},
		{"a prefix with a brace", local + "prefix = \"a{b\"\n", "shared.prefix must have"},
		{"a prefix with a space", local + "prefix = \"a b\"\n", "shared.prefix must have"},
		{"a prefix with a sign after ~", local + "prefix = \"a\\u007f\"\n",
			"shared.prefix must have"},
		{"a prefix with the last sign", local + "prefix = \"!~\"\n", ""},
		{"an empty prefix", local + "prefix = \"\"\n", "shared.prefix must have"},
		{"a long prefix", local + "prefix = \"" + strings.Repeat("x", 101) + "\"\n",
			"shared.prefix must have"},
		{"the longest prefix", local + "prefix = \"" + strings.Repeat("x", 100) + "\"\n", ""},
		{"negative copies", local + "copies = -1\n", "shared.copies must be above zero"},
		{"many copies", local + "copies = 11\n", "shared.copies must be at most 10"},
		{"most copies", local + "copies = 10\n", ""},
		{"a short time", local + "timeout = \"999us\"\n", "shared.timeout must be from 1ms to 5s"},
		{"a long time", local + "timeout = \"5001ms\"\n", "shared.timeout must be from 1ms to 5s"},
		{"the shortest time", local + "timeout = \"1ms\"\n", ""},
		{"the longest time", local + "timeout = \"5s\"\n", ""},
		{"unknown loss", local + "lost = \"ignore\"\n", `shared.lost must be one of "taint"`},
		{"unknown limits", local + "limits = \"off\"\n", `shared.limits must be one of "deny"`},
		{"local limits of a number of replicas that is not known", local + "limits = \"local\"\n",
			`8:1: shared.limits = "local" needs cluster.replicas`},
		{"local limits without replicas", local + "limits = \"local\"\n" + clusterOf(""),
			`8:1: shared.limits = "local" needs cluster.replicas`},
		{"local limits", local + "limits = \"local\"\n" + clusterOf(`replicas = ["a", "b"]`), ""},
		{"no state key", "[server.a]\ncommand = \"x\"\n[shared]\nurl = \"redis://127.0.0.1\"\n",
			"[shared] needs listen.state_key, the same in all replicas"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text, "ca.pem", cert, "key.pem", key)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got the error %v, want none", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got the error %v, want %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "s3cret"):
				t.Errorf("the error %v shows the password", err)
			}
		})
	}
}

func TestSharedServer(t *testing.T) {
	for url, want := range map[string]struct {
		address   string
		encrypted bool
		database  int
	}{
		"rediss://valkey.example":     {"valkey.example:6379", true, 0},
		"valkeys://valkey.example/":   {"valkey.example:6379", true, 0},
		"redis://127.0.0.1:6380/12":   {"127.0.0.1:6380", false, 12},
		"valkey://[::1]:7000":         {"[::1]:7000", false, 0},
		"rediss://valkey.example:1/3": {"valkey.example:1", true, 3},
	} {
		c, err := load(t, "[server.a]\ncommand = \"x\"\n[listen]\nhttp = \"127.0.0.1:7777\"\n"+
			"state_key = \""+strings.Repeat("k", 32)+"\"\n[shared]\nurl = \""+url+"\"\n")
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		address, encrypted, database := c.Shared.Server()
		if address != want.address || encrypted != want.encrypted || database != want.database {
			t.Errorf("%s: got %s, %t, %d, want %v", url, address, encrypted, database, want)
		}
		if c.Shared.Timeout != 50*time.Millisecond || c.Shared.Prefix != "gatekit:" ||
			c.Shared.Lost != "taint" || c.Shared.Copies != 0 {
			t.Errorf("the defaults are %+v", c.Shared)
		}
	}
}
