package plugins_test

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		serves, word string
		want         string // of the error or reason in the record
		lost         bool   // the process
		twice        int    // how often it takes for that
	}{
		{"words", "fail", "it was told to fail", false, 0},
		{"words", "panic", "panicked: it was told to", false, 0},
		{"words", "hang", "no verdict within", true, 3},
		{"words", "stop", "no verdict within", true, 3},
		{"words", "die", "killed", true, 1},
		{"words", "eat", "", true, 1},
		{"another id", "x", "it answered question", false, 0},
		{"an unknown action", "x", "unknown action", false, 0},
		{"no verdict", "x", "it gave 0 verdicts", false, 0},
		{"two verdicts", "x", "it gave 2 verdicts", false, 0},
		{"no JSON", "x", "edit", false, 0},
		{"an edit that it hides", "x", "edits without the action modify", false, 0},
		{"10 MiB", "x", "is too large", false, 0},
		{"an error of gRPC", "x", "it did not answer: no", false, 0},
		{"the end of the stream", "x", "it did not answer", false, 0},
	} {
		t.Run(c.serves+" "+c.word, func(t *testing.T) {
			t.Parallel()
			s := spec("words", c.serves)
			switch {
			case c.twice > 1:
				s.Timeout = time.Second // which has to be waited for
			case c.lost:
				s.Timeout = 5 * time.Second // the waits between starts grow
			}
			w := start(t, s)
			for kind, make := range kinds {
				before := w.told("words plugin_lost")
				for range max(c.twice, 1) {
					_, err := w.pass(make(c.word))
					denied(t, err)
					if got := w.record.last(); !strings.HasPrefix(got, "deny words:deny:") ||
						!strings.Contains(got, c.want) {
						t.Errorf("%s is recorded as %q, want %q in it", kind, got, c.want)
					}
				}
				if c.lost {
					// which may be found out after the last of them was denied
					w.wait("words plugin_lost", before+1)
				}
				w.works(kind)
				if now := w.host.Status(); len(now) != 1 || now[0].Name != "words" ||
					!now[0].Running ||
					now[0].InFlight != 0 || c.lost != (now[0].Starts > 1) {
					t.Errorf("%s: its state is %+v", kind, now)
				}
			}
		})
	}
}

func TestAPluginThatDiesAfterItsAnswer(t *testing.T) {
	w := start(t, spec("words", "dies after its answer"))
	for n := range 3 {
		if _, err := w.pass(kinds["a request"]("x")); err != nil {
			t.Error(err)
		}
		w.wait("words plugin_lost", n+1)
	}
}

func TestFailuresAreSkippedWhereTheConfigurationSaysSo(t *testing.T) {
	s := spec("words", "words")
	s.Skip, s.Timeout = true, time.Second
	w := start(t, s)
	for _, word := range []string{"fail", "panic", "hang", "die"} {
		if m, err := w.pass(kinds["a request"](word)); err != nil || m == nil {
			t.Errorf("%s: %v", word, err)
		}
		if got := w.record.last(); !strings.HasPrefix(got, "skip words:skip:") {
			t.Errorf("%s is recorded as %q", word, got)
		}
	}
	w.wait("words plugin_lost", 1)
	var err error
	// it is skipped until it runs again
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(
		10 * time.Millisecond) {
		if _, err = w.pass(kinds["a request"]("deny")); err != nil {
			break
		}
	}
	denied(t, err)
	bad := spec("bad", "an unknown action")
	bad.Skip = true
	w.load(bad)
	_, err = w.pass(kinds["a request"]("x")) // it wanted something
	denied(t, err)
}

// Other calls go on while one hangs, and while the process is started again.
func TestNoOtherCallIsHarmed(t *testing.T) {
	s := spec("words", "words")
	w := start(t, s)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 20 {
				word := "good"
				if i == 0 && j == 5 {
					word = "die"
				}
				_, err := w.pass(kinds["a request"](word))
				if (err != nil) != (word == "die") {
					t.Errorf("%s: %v", word, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAServiceThatEndsInAProcessThatLivesIsStartedAgain(t *testing.T) {
	w := start(t, spec("words", "stops serving"))
	w.pass(kinds["a request"]("x"))
	// only questions find it out
	for deadline := time.Now().Add(patience); w.told(
		"words plugin_restarted") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody was told that it was started again: %q", w.events)
		}
		w.pass(kinds["a request"]("good"))
	}
	w.works("a request")
}
