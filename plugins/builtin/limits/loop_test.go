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
	const refused = "!" // the last call is refused
	for _, c := range []struct{ name, calls string }{
		{"a few times is no loop", "A A A"},
		{"the same again and again", "A A A A!"},
		{"in turns", "A B A B A B A B! A! B!"},
		{"in turns of three", "A B C A B C A B C A B C! A!"},
		{"in no order", "A B C B A A C B C C!"},
		{"something new in between", "A A A B A A A C A A A A!"},
		{"what is edited between two tests", "T E1 T E2 T E3 T E4 T E5 T"},
		{"what was refused does not count, and stays refused", "A A A A! A! A! B A"},
		{"a tool that is excepted", "job_1 job_1 job_1 job_1 job_1 job_1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, loopsOnly)
				for i, name := range strings.Fields(c.calls) {
					name, bad := strings.CutSuffix(name, refused)
					m := call(name, `{"x":1}`, in(fmt.Sprint(i)))
					if bad {
						refuses(t, s, m, "loop: the same call 3 times within 2m0s, and nothing "+
							"new in between", "loop")
					} else {
						passes(t, s, m)
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestTheSameCallIsSeenHoweverItIsSpelt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		passes(t, s, call("read", `{"path":"/a","n":1}`))
		passes(t, s, call("read", `{ "n": 1, "path": "\u002fa" }`))
		passes(t, s, call("read", "{\"n\":1,\n\t\"path\":\"\\/a\"}"))
		refuses(t, s, call("read", `{"path":"/a","n":1}`),
			"loop: the same call 3 times within 2m0s, and nothing new in between", "loop")
		passes(t, s, call("read", `{"path":"/a","n":2}`))
	})
}

func TestACallIsForgottenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for range 20 {
			passes(t, s, call("read", `{}`))
			time.Sleep(45 * time.Second)
		}
	})
}

func TestSessionsAndPrincipalsAndServersLoopForThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for range 3 {
			passes(t, s, call("read", `{}`))
			passes(t, s, call("read", `{}`, from("", "s2")))
			passes(t, s, call("read", `{}`, from("bob", "s1")))
		}
		refuses(t, s, call("read", `{}`),
			"loop: the same call 3 times within 2m0s, and nothing new in between", "loop")
		passes(t, s, call("read", `{}`, at("other")))
	})
}

// 2026-07-28: a call that is answered with questions is made again with the answers. That is no
// loop, unless it is the same answers.
func TestRoundsOfACallAreNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for i := range 8 {
			m := call("deploy", fmt.Sprintf(
				`{},"inputResponses":{"q":{"action":"accept","content":{"step":%d}}},"requestState":"x"`, i))
			passes(t, s, m)
		}
		for range 2 {
			passes(t, s, call("deploy",
				`{},"inputResponses":{"q":{"action":"accept","content":{"step":7}}},"requestState":"x"`))
		}
		refuses(t, s, call("deploy",
			`{},"requestState":"x","inputResponses":{"q":{"action":"accept","content":{"step":7}}}`),
			"loop: the same call 3 times within 2m0s, and nothing new in between", "loop")
	})
}

// Sessions beyond the bound push out the quietest of the same principal, and of nobody else.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, loopsOnly)
		for range 3 {
			passes(t, s, call("read", `{}`, from("bob", "s1")))
			passes(t, s, call("read", `{}`, from("", "first")))
		}
		time.Sleep(time.Second)
		for i := range 256 {
			passes(t, s, call("read", `{}`, from("", fmt.Sprint(i))))
		}
		passes(t, s, call("read", `{}`, from("", "first")))
		refuses(t, s, call("read", `{}`, from("bob", "s1")),
			"loop: the same call 3 times within 2m0s, and nothing new in between", "loop")
	})
}
