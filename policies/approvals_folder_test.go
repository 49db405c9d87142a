package policies_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/policies"
)

// useOrSubmit uses the approval of a request. If the request is not approved, useOrSubmit submits
// it. approved reports whether the request was approved.
func useOrSubmit(a *policies.Approvals) (approved bool, err error) {
	m := called("x", `{}`)
	if a.Consume(m) {
		return true, nil
	}
	_, err = a.Submit(m, "it is large", "")
	return false, err
}

// approveAnew submits and approves the request of useOrSubmit.
func approveAnew(t *testing.T, a *policies.Approvals) {
	t.Helper()
	if _, err := a.Submit(called("x", `{}`), "it is large", ""); err != nil {
		t.Fatal(err)
	}
	all, err := a.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d requests wait, error %v; want 1", len(all), err)
	}
	if _, err := a.Approve(all[0].ID); err != nil {
		t.Fatal(err)
	}
}

// If several callers use an approval at the same time, only one of them succeeds. The others submit
// the request again meanwhile.
func TestApprovalIsUsedOnce(t *testing.T) {
	if dir := os.Getenv("GATEKIT_TEST_APPROVALS"); dir != "" { // set by the subtest "processes"
		for rounds := bufio.NewScanner(os.Stdin); rounds.Scan(); {
			approved, err := useOrSubmit(&policies.Approvals{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("approved=%t\n", approved)
		}
		return
	}
	if testing.Short() {
		t.Skip("left out by -short: submits and uses hundreds of approvals")
	}
	t.Run("goroutines", func(t *testing.T) {
		a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
		for round := range 200 {
			approveAnew(t, a)
			var used atomic.Int64
			var callers sync.WaitGroup
			begin := make(chan struct{})
			for range 8 {
				callers.Go(func() {
					<-begin
					approved, err := useOrSubmit(a)
					if err != nil {
						t.Error(err)
					}
					if approved {
						used.Add(1)
					}
				})
			}
			close(begin)
			callers.Wait()
			if used.Load() != 1 {
				t.Fatalf("round %d: one approval was used %d times, want once", round, used.Load())
			}
		}
		checkNothingTaken(t, a.Dir)
	})
	t.Run("processes", func(t *testing.T) {
		a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
		type process struct {
			in  io.Writer
			out *bufio.Scanner
		}
		var processes []process
		for range 6 {
			c := exec.Command(os.Args[0], "-test.run=^TestApprovalIsUsedOnce$")
			c.Env = append(os.Environ(), "GATEKIT_TEST_APPROVALS="+a.Dir)
			in, err := c.StdinPipe()
			must(t, err)
			out, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			t.Cleanup(func() {
				in.Close()
				if err := c.Wait(); err != nil {
					t.Error(err)
				}
			})
			processes = append(processes, process{in, bufio.NewScanner(out)})
		}
		for round := range 300 {
			approveAnew(t, a)
			for _, p := range processes {
				_, err := io.WriteString(p.in, "begin\n")
				must(t, err)
			}
			used := 0
			for _, p := range processes {
				if !p.out.Scan() {
					t.Fatal("a process ended before it answered")
				}
				if p.out.Text() == "approved=true" {
					used++
				}
			}
			if used != 1 {
				t.Fatalf("round %d: one approval was used %d times, want once", round, used)
			}
		}
		checkNothingTaken(t, a.Dir)
	})
}

// checkNothingTaken fails the test if Consume has left a file that it renamed.
func checkNothingTaken(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*.taken")); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
}

// An approval counts only if other users have no access to its file and folder, and if neither of
// them is a link.
func TestApprovalThatOthersCouldWriteDoesNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir, file string)
		folder string // part of the error that Submit and List return; "" if they succeed
	}{
		"no change": {func(*testing.T, string, string) {}, ""},
		"a folder that others can write to": {func(t *testing.T, dir, _ string) {
			must(t, os.Chmod(dir, 0o770))
		}, "has mode 0770"},
		"a folder that others can read": {func(t *testing.T, dir, _ string) {
			must(t, os.Chmod(dir, 0o755))
		}, "has mode 0755"},
		"a link to a folder": {func(t *testing.T, dir, _ string) {
			must(t, os.Rename(dir, dir+".real"))
			must(t, os.Symlink(dir+".real", dir))
		}, "is not a folder"},
		"a folder of another user": {func(t *testing.T, dir, _ string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a folder away")
			}
			must(t, os.Chown(dir, 12345, -1))
		}, "belongs to another user"},
		"a file that others can write": {func(t *testing.T, _, file string) {
			must(t, os.Chmod(file, 0o620))
		}, ""},
		"a file that others can read": {func(t *testing.T, _, file string) {
			must(t, os.Chmod(file, 0o604))
		}, ""},
		"a file of another user": {func(t *testing.T, _, file string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			must(t, os.Chown(file, 12345, -1))
		}, ""},
		"a link to a file": {func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, dir+".other"))
			must(t, os.Symlink(dir+".other", file))
		}, ""},
		"a folder in place of the file": {func(t *testing.T, _, file string) {
			must(t, os.Remove(file))
			must(t, os.Mkdir(file, 0o700))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
			how, err := a.Submit(called("x", `{}`), "it is large", "")
			must(t, err)
			_, rest, _ := strings.Cut(how, "gatekit approve ")
			id, _, _ := strings.Cut(rest, "`")
			_, err = a.Approve(id)
			must(t, err)
			c.change(t, a.Dir, filepath.Join(a.Dir, id+".json"))
			if got := a.Consume(called("x", `{}`)); got != (name == "no change") {
				t.Errorf("the approval counts: %v, want %v", got, !got)
			}
			_, listErr := a.List()
			_, submitErr := a.Submit(called("y", `{}`), "it is large", "")
			for what, err := range map[string]error{"List": listErr, "Submit": submitErr} {
				if c.folder == "" && err != nil || c.folder != "" && (err == nil ||
					!strings.Contains(err.Error(), c.folder)) {
					t.Errorf("%s: error %v, want %q in it, or no error for \"\"", what, err,
						c.folder)
				}
			}
			if _, err := a.Approve(id); err == nil {
				t.Error("Approve accepts the file, want an error")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
