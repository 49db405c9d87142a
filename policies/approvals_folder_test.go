package policies_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gatekit/core/mcp"
	"gatekit/policies"
)

// approvalRounds is how many requests each of the callers of TestApprovalIsUsedOnce makes.
const approvalRounds = 60

// approvalRound returns the request of one round.
func approvalRound(round int) *mcp.Message { return called("x", `{"n":`+strconv.Itoa(round)+`}`) }

// consumeRounds makes the request of each round, and submits it when it is not approved. It returns
// how many were approved.
func consumeRounds(a *policies.Approvals) (approved int, err error) {
	for round := range approvalRounds {
		if m := approvalRound(round); a.Consume(m) {
			approved++
		} else if _, err := a.Submit(m, "it is large", ""); err != nil {
			return approved, err
		}
	}
	return approved, nil
}

// approveRounds approves the request of each round.
func approveRounds(t *testing.T, a *policies.Approvals) {
	t.Helper()
	for round := range approvalRounds {
		how, err := a.Submit(approvalRound(round), "it is large", "")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(how, "gatekit approve ")
		id, _, _ := strings.Cut(rest, "`")
		if _, err := a.Approve(id); err != nil {
			t.Fatal(err)
		}
	}
}

// Of concurrent callers one can use an approval, also when the others submit the request anew at
// the same time.
func TestApprovalIsUsedOnce(t *testing.T) {
	if dir := os.Getenv("GATEKIT_TEST_APPROVALS"); dir != "" { // one of the processes below
		if _, err := io.ReadAll(os.Stdin); err != nil { // until all of them run
			t.Fatal(err)
		}
		approved, err := consumeRounds(&policies.Approvals{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("approved=%d\n", approved)
		return
	}
	t.Run("goroutines", func(t *testing.T) {
		for range 5 {
			a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
			approveRounds(t, a)
			var all atomic.Int64
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					n, err := consumeRounds(a)
					if err != nil {
						t.Error(err)
					}
					all.Add(int64(n))
				})
			}
			callers.Wait()
			if all.Load() != approvalRounds {
				t.Errorf("%d approvals were used %d times", approvalRounds, all.Load())
			}
			checkNothingTaken(t, a.Dir)
		}
	})
	t.Run("processes", func(t *testing.T) {
		a := &policies.Approvals{Dir: filepath.Join(t.TempDir(), "approvals")}
		approveRounds(t, a)
		var processes []*exec.Cmd
		var outputs []*strings.Builder
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestApprovalIsUsedOnce$")
			c.Env = append(os.Environ(), "GATEKIT_TEST_APPROVALS="+a.Dir)
			output := &strings.Builder{}
			c.Stdin, c.Stdout, c.Stderr = r, output, output
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			processes, outputs = append(processes, c), append(outputs, output)
		}
		r.Close()
		w.Close() // now they begin
		all := 0
		for i, c := range processes {
			err := c.Wait()
			_, count, _ := strings.Cut(outputs[i].String(), "approved=")
			count, _, _ = strings.Cut(count, "\n")
			n, bad := strconv.Atoi(count)
			if err != nil || bad != nil {
				t.Fatalf("%v: %s", err, outputs[i])
			}
			all += n
		}
		if all != approvalRounds {
			t.Errorf("%d approvals were used %d times", approvalRounds, all)
		}
		checkNothingTaken(t, a.Dir)
	})
}

// checkNothingTaken fails when a file that Consume renames is left.
func checkNothingTaken(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*.taken")); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
}

// Approvals are only believed when nobody else could have written them.
func TestApprovalOfSomebodyElseIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir, file string)
		folder string // of the error of Submit, List and Approve; "" when only the file is bad
	}{
		"nothing": {func(*testing.T, string, string) {}, ""},
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
			if got := a.Consume(called("x", `{}`)); got != (name == "nothing") {
				t.Errorf("the approval counts: %v", got)
			}
			_, listErr := a.List()
			_, submitErr := a.Submit(called("y", `{}`), "it is large", "")
			for what, err := range map[string]error{"List": listErr, "Submit": submitErr} {
				if c.folder == "" && err != nil || c.folder != "" && (err == nil ||
					!strings.Contains(err.Error(), c.folder)) {
					t.Errorf("%s: error %v, want %q", what, err, c.folder)
				}
			}
			if _, err := a.Approve(id); err == nil {
				t.Error("Approve believes the file")
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
