package limits_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const loopsOnly = `{"calls":[],"result":{"action":"off"},"loop":{"same":3,"within":"2m","except":["job_*"]}}`

func TestLoops(t *testing.T) {
	const denied = "!" // suffix of a call that must be denied
	for _, c := range []struct{ name, calls string }{
		{"as often as allowed", "A A A"},
		{"once too often", "A A A A!"},
		{"two calls in turns", "A B A B A B A B! A! B!"},
		{"three calls in turns", "A B C A B C A B C A B C! A!"},
		{"three calls in no order", "A B C B A A C B C C!"},
		{"a new call in between", "A A A B A A A C A A A A!"},
		{"a test after each of several edits", "T E1 T E2 T E3 T E4 T E5 T"},
		{"a denied call does not count", "A A A A! A! A! B A"},
		{"an excepted tool", "job_1 job_1 job_1 job_1 job_1 job_1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, loopsOnly)
				for i, name := range strings.Fields(c.calls) {
					name, wantDenied := strings.CutSuffix(name, denied)
					m := call(name, `{"x":1}`, exchange(fmt.Sprint(i)))
					if wantDenied {
						requireDenied(t, s, m, "loop: the same call was made 3 times within "+
							"2m0s, with no new call in between", "loop")
					} else {
						requireAllowed(t, s, m)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestSpellingOfArgumentsDoesNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		requireAllowed(t, s, call("read", `{"path":"/a","n":1}`))
		requireAllowed(t, s, call("read", `{ "n": 1, "path": "\u002fa" }`))
		requireAllowed(t, s, call("read", "{\"n\":1,\n\t\"path\":\"\\/a\"}"))
		requireDenied(t, s, call("read", `{"path":"/a","n":1}`),
			"loop: the same call was made 3 times within 2m0s, with no new call in between", "loop")
		requireAllowed(t, s, call("read", `{"path":"/a","n":2}`))
	})
}

func TestOldCallsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for range 20 {
			requireAllowed(t, s, call("read", `{}`))
			time.Sleep(45 * time.Second)
		}
	})
}

func TestLoopsAreSeparateForSessionsPrincipalsAndServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for range 3 {
			requireAllowed(t, s, call("read", `{}`))
			requireAllowed(t, s, call("read", `{}`, principalSession("", "s2")))
			requireAllowed(t, s, call("read", `{}`, principalSession("bob", "s1")))
		}
		requireDenied(t, s, call("read", `{}`),
			"loop: the same call was made 3 times within 2m0s, with no new call in between", "loop")
		requireAllowed(t, s, call("read", `{}`, server("other")))
	})
}

// In MCP 2026-07-28, a server may answer a call with questions. The client then repeats the call
// with the answers. Such repetitions are no loop, unless the answers are the same.
func TestRoundsOfACallAreNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for i := range 8 {
			m := call("deploy", fmt.Sprintf(
				`{},"inputResponses":{"q":{"action":"accept","content":{"step":%d}}},"requestState":"x"`, i))
			requireAllowed(t, s, m)
		}
		for range 2 {
			requireAllowed(t, s, call("deploy",
				`{},"inputResponses":{"q":{"action":"accept","content":{"step":7}}},"requestState":"x"`))
		}
		requireDenied(t, s, call("deploy",
			`{},"requestState":"x","inputResponses":{"q":{"action":"accept","content":{"step":7}}}`),
			"loop: the same call was made 3 times within 2m0s, with no new call in between", "loop")
	})
}

// When a principal has too many sessions, a new session replaces the one that made no call for the
// longest time.
func TestSessionsAreLimitedPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for range 3 {
			requireAllowed(t, s, call("read", `{}`, principalSession("bob", "s1")))
			requireAllowed(t, s, call("read", `{}`, principalSession("", "first")))
		}
		time.Sleep(time.Second)
		for i := range 256 {
			requireAllowed(t, s, call("read", `{}`, principalSession("", fmt.Sprint(i))))
		}
		requireAllowed(t, s, call("read", `{}`, principalSession("", "first")))
		requireDenied(t, s, call("read", `{}`, principalSession("bob", "s1")),
			"loop: the same call was made 3 times within 2m0s, with no new call in between", "loop")
	})
}

// A session without calls for some time is forgotten, even before the histories are swept.
func TestAllCallsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[],"result":{"action":"off"},"loop":{"same":1,"within":"1s"}}`)
		requireAllowed(t, s, call("read", `{}`))
		requireDenied(t, s, call("read", `{}`),
			"loop: the same call was made 1 times within 1s, with no new call in between", "loop")
		time.Sleep(2 * time.Second)
		requireAllowed(t, s, call("read", `{}`))
	})
}

func TestSessionsOfAllPrincipalsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[],"result":{"action":"off"},"loop":{"within":"1s"}}`)
		for i := range 8192 {
			requireAllowed(t, s, call("read", `{}`, principalSession(fmt.Sprint(i/256),
				fmt.Sprint(i%256))))
		}
		more := call("read", `{}`, principalSession("one more", "0"))
		requireDenied(t, s, more,
			"the message cannot be counted: too many principals at once", "full")
		requireAllowed(t, s, call("read", `{}`, principalSession("7", "7")))
		time.Sleep(2 * time.Second)
		requireAllowed(t, s, more)
	})
}

// A sweep keeps a principal that still has a counter and a history.
func TestSweepKeepsActivePrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, `{"calls":[{"per":"principal","rate":1,"burst":100}],`+
			`"result":{"action":"off"},"loop":{"same":3,"within":"10m"}}`)
		for range 3 {
			requireAllowed(t, s, call("read", `{}`))
		}
		time.Sleep(2 * time.Minute)
		requireAllowed(t, s, call("read", `{}`, principalSession("bob", "s1"))) // sweeps
		requireDenied(t, s, call("read", `{}`),
			"loop: the same call was made 3 times within 10m0s, with no new call in between",
			"loop")
	})
}
