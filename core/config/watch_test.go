package config_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/config"
)

// event holds the arguments of one call of the function that is passed to Watch.
type event struct {
	c   *config.Config
	err error
}

// watch loads the configuration at path, and watches its files until the test ends.
func watch(t *testing.T, path string, checks ...config.Check) <-chan event {
	t.Helper()
	c, err := config.Load(path, checks...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan event, 10), make(chan struct{})
	go func() {
		defer close(done)
		config.Watch(ctx, c, nil, func(c *config.Config, err error) { events <- event{c, err} })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return events
}

// next waits for a change. The fake time of synctest does not advance while Watch reads a file. So
// the ten seconds pass only if Watch reports no change, however slow the disk is.
func next(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("no change was reported within 10s")
		return event{}
	}
}

func TestWatchReportsChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, secret := filepath.Join(dir, "gatekit.toml"), filepath.Join(dir, "secrets", "token")
		doc := "[server.a]\ncommand = \"a\"\nenv = { T = \"${file:secrets/token}\" }\n"
		write(t, secret, "one")
		write(t, path, doc)
		events := watch(t, path)

		// Each step must be reported as one change. The next two writes change no contents and must
		// not be reported. A report of them would make the step after them fail.
		write(t, path, doc) // the same contents
		write(t, filepath.Join(dir, "other"), "x")

		write(t, path, doc+"era = \"modern\"\n")
		if e := next(t, events); e.err != nil || e.c.Servers[0].Era != "modern" {
			t.Fatalf("a changed file: got %v, %v, want era modern", e.c, e.err)
		}

		write(t, filepath.Join(dir, "new.toml"), doc+"era = \"legacy\"\n") // as editors do
		if err := os.Rename(filepath.Join(dir, "new.toml"), path); err != nil {
			t.Fatal(err)
		}
		if e := next(t, events); e.err != nil || e.c.Servers[0].Era != "legacy" {
			t.Fatalf("a replaced file: got %v, %v, want era legacy", e.c, e.err)
		}

		write(t, secret, "two")
		if e := next(t, events); e.err != nil || string(e.c.Servers[0].Env["T"]) != "two" {
			t.Fatalf("a changed secret: got %v, %v, want two", e.c, e.err)
		}

		write(t, path, doc+"era = \"new\"\n")
		if e := next(t, events); e.c != nil || len(mistakes(t, e.err)) != 1 {
			t.Fatalf("a mistake: got %v, %v, want no config and one mistake", e.c, e.err)
		}

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if e := next(t, events); e.c != nil || !os.IsNotExist(unwrap(e.err)) {
			t.Fatalf("a removed file: got %v, %v, want an error that the file does not exist", e.c,
				e.err)
		}

		write(t, path, doc)
		if e := next(t, events); e.err != nil || string(e.c.Servers[0].Env["T"]) != "two" {
			t.Fatalf("the file was written again: got %v, %v, want its contents", e.c, e.err)
		}
		select {
		case e := <-events:
			t.Errorf("one change too many was reported: %v, %v", e.c, e.err)
		default:
		}
	})
}

func TestWatchFollowsASymbolicLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "gatekit.toml")
		write(t, filepath.Join(dir, "v1", "gatekit.toml"), "[server.a]\ncommand = \"a\"\n")
		write(t, filepath.Join(dir, "v2", "gatekit.toml"), "[server.b]\ncommand = \"b\"\n")
		// Kubernetes mounts a ConfigMap like this: the file is a link to a file in ..data, and
		// ..data is a link that is replaced.
		for link, to := range map[string]string{filepath.Join(dir, "..data"): "v1",
			path: "..data/gatekit.toml"} {
			if err := os.Symlink(to, link); err != nil {
				t.Fatal(err)
			}
		}
		events := watch(t, path)
		if err := os.Symlink("v2", filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if e := next(t, events); e.err != nil || e.c.Servers[0].Name != "b" {
			t.Errorf("got %v, %v, want server b", e.c, e.err)
		}
	})
}

func TestWatchReportsChangedPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, one, data := filepath.Join(dir, "gatekit.toml"), filepath.Join(dir, "one.rego"),
			filepath.Join(dir, "data.json")
		sub := filepath.Join(dir, "policies", "sub", "deep.rego")
		write(t, one, "1")
		write(t, data, "1")
		write(t, sub, "1")
		const doc = "[server.a]\ncommand = \"a\"\n[policy]\nfiles = [\"one.rego\", " +
			"\"policies\"]\ndata = [\"data.json\"]\n"
		write(t, path, doc)
		events := watch(t, path)

		// None of these files is a policy.
		for _, file := range []string{"x.txt", "deep_test.rego", "sub/.hidden/deep.rego"} {
			write(t, filepath.Join(dir, "policies", file), "x")
		}
		write(t, one, "1") // the same contents
		time.Sleep(10 * time.Second)
		select {
		case e := <-events:
			t.Fatalf("no policy changed: %v, %v was reported", e.c, e.err)
		default:
		}
		for step, file := range map[string]string{"a file": one, "the data": data,
			"a file in a folder": sub, "a new file": filepath.Join(dir, "policies", "new.rego")} {
			write(t, file, "22")
			if e := next(t, events); e.err != nil || e.c.Policy == nil {
				t.Fatalf("%s: got %v, %v, want a change", step, e.c, e.err)
			}
		}
		if err := os.Remove(sub); err != nil {
			t.Fatal(err)
		}
		if e := next(t, events); e.err != nil {
			t.Fatalf("a file in a folder was removed: got error %v, want none", e.err)
		}
		if err := os.Remove(one); err != nil {
			t.Fatal(err)
		}
		if e := next(t, events); e.c != nil || len(mistakes(t, e.err)) != 1 {
			t.Fatalf("a file in policy.files was removed: got %v, %v, want one mistake", e.c, e.err)
		}
		write(t, one, "1")
		if e := next(t, events); e.err != nil {
			t.Fatalf("the file was written again: got error %v, want none", e.err)
		}
		write(t, path, strings.Replace(doc, "\"one.rego\", ", "", 1))
		if e := next(t, events); e.err != nil || len(e.c.Policy.Files) != 1 {
			t.Fatalf("the file was removed from policy.files: got %v, %v, want one entry left",
				e.c, e.err)
		}
		write(t, one, "333")
		write(t, sub, "333")
		if e := next(t, events); e.err != nil {
			t.Fatal(e.err)
		}
		select {
		case e := <-events:
			t.Errorf("one change too many was reported: %v, %v", e.c, e.err)
		default:
		}
	})
}

// With policy.tests, a corrected test makes a rejected configuration usable, so Watch reports it.
func TestWatchReportsChangedTestsOnlyWithPolicyTests(t *testing.T) {
	for tests, want := range map[string]bool{"true": true, "false": false} {
		t.Run("tests = "+tests, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "gatekit.toml")
				beside := filepath.Join(dir, "one_test.rego")
				below := filepath.Join(dir, "policies", "deep_test.rego")
				for _, file := range []string{"one.rego", "one_test.rego", "policies/deep.rego",
					"policies/deep_test.rego"} {
					write(t, filepath.Join(dir, file), "1")
				}
				write(t, path, "[server.a]\ncommand = \"a\"\n[policy]\ntests = "+tests+
					"\nfiles = [\"one.rego\", \"policies\"]\n")
				events := watch(t, path)
				for _, file := range []string{beside, below} {
					write(t, file, "22")
					time.Sleep(10 * time.Second)
					reported := false
					select {
					case e := <-events:
						reported = true
						if e.err != nil {
							t.Fatal(e.err)
						}
					default:
					}
					if reported != want {
						t.Errorf("%s: the change was reported: %v, want %v", file, reported, want)
					}
				}
			})
		})
	}
}

// A folder in policy.files is watched even if its own name begins with a dot.
func TestWatchReportsChangesInHiddenPolicyFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, policy := filepath.Join(dir, "gatekit.toml"), filepath.Join(dir, ".rules", "a.rego")
		write(t, policy, "1")
		write(t, path, "[server.a]\ncommand = \"a\"\n[policy]\nfiles = [\".rules\"]\n")
		events := watch(t, path)
		write(t, policy, "2")
		if e := next(t, events); e.err != nil {
			t.Fatal(e.err)
		}
	})
}

// Watch reports when a check begins to fail, and when it passes again.
func TestWatchReportsFailingAndRepairedPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, one := filepath.Join(dir, "gatekit.toml"), filepath.Join(dir, "one.rego")
		write(t, one, "good")
		write(t, path, "[server.a]\ncommand = \"a\"\n[policy]\nfiles = [\"one.rego\"]\n")
		events := watch(t, path, func(c *config.Config) (errs config.Errors) {
			if b, _ := os.ReadFile(one); string(b) == "bad" {
				errs = append(errs, &config.Error{Message: "one.rego:1: bad"})
			}
			return errs
		})
		for _, text := range []string{"bad", "good", "bad", "better"} {
			write(t, one, text)
			if e := next(t, events); (e.err != nil) != (text == "bad") {
				t.Errorf("policy %q: got error %v, want an error only for the policy bad", text,
					e.err)
			}
		}
	})
}

// A tick may come late on a busy machine, or after a change that took long to apply. Even after a
// late tick, Watch does not read a file that changed less than an interval before.
func TestWatchDoesNotReadHalfWrittenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const one, two = "[server.a]\ncommand = \"a\"\n", "[server.b]\ncommand = \"b\"\n"
		path := filepath.Join(t.TempDir(), "gatekit.toml")
		write(t, path, one)
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var reported []int
		go config.Watch(ctx, c, nil, func(c *config.Config, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			reported = append(reported, len(c.Servers))
			time.Sleep(499 * time.Millisecond) // almost two intervals
		})
		write(t, path, one+two)
		time.Sleep(time.Second - 2*time.Millisecond)
		write(t, path, one) // the beginning of a longer file
		time.Sleep(10 * time.Millisecond)
		write(t, path, one+two+"[server.c]\ncommand = \"c\"\n")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !slices.Equal(reported, []int{2, 3}) {
			t.Errorf("configurations with %v servers were reported, want one with 2 and one with 3",
				reported)
		}
	})
}

// TestWatchReadsAtOnceWhenAsked changes a file, and then sends a value to readNow. Watch reports
// the change at once, and does not wait until the file has stayed the same for an interval.
func TestWatchReadsAtOnceWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "gatekit.toml")
		write(t, path, "[server.a]\ncommand = \"a\"\n")
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		readNow, changed := make(chan os.Signal, 1), make(chan int)
		go config.Watch(ctx, c, readNow, func(c *config.Config, err error) {
			changed <- len(c.Servers)
		})
		write(t, path, "[server.a]\ncommand = \"a\"\n[server.b]\ncommand = \"b\"\n")
		start := time.Now()
		readNow <- os.Interrupt
		if n := <-changed; n != 2 {
			t.Errorf("a configuration with %d servers was reported, want 2", n)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("the change was reported after %v, want at once", d)
		}
	})
}

// TestWatchReadsFilesThatKeepChanging replaces a file ten times a second. Watch reads the file
// after two seconds.
func TestWatchReadsFilesThatKeepChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "gatekit.toml")
		doc := "[server.a]\ncommand = \"a\"\n"
		write(t, path, doc)
		events := watch(t, path)
		for i := range 21 {
			write(t, path+".new", doc+"era = \"modern\"\n#"+strings.Repeat("x", i))
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		select {
		case e := <-events:
			if e.err != nil || e.c.Servers[0].Era != "modern" {
				t.Errorf("got %v, %v, want era modern", e.c, e.err)
			}
		default:
			t.Error("no change was reported in 2.1 seconds")
		}
	})
}
