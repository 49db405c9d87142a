package pipeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// redacting is a store, and the results whose values it keeps for an hour.
type redacting struct {
	t     *testing.T
	store pipeline.RedactedValues
}

// send sends a result of a server, in which a stage redacts values.
func (r *redacting) send(server string, values ...pipeline.Redacted) {
	r.t.Helper()
	m := answerTo(r.t, call(r.t), `{"jsonrpc":"2.0","id":7,"result":{"text":"x"}}`)
	m.Principal, m.Server = callWith(r.t, `{}`).Principal, server
	p := newRestoring(&r.store, &pipeline.Restore{For: time.Hour}, values...)
	if _, err := p.Pass(r.t.Context(), m); err != nil {
		r.t.Fatal(err)
	}
}

// restored returns the arguments that a server gets.
func (r *redacting) restored(server, arguments string) string {
	r.t.Helper()
	m := callWith(r.t, arguments)
	m.Server = server
	passed, err := newRestoring(&r.store, &pipeline.Restore{For: time.Hour}).Pass(r.t.Context(), m)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, _ := passed.Restoration().Apply(passed.Message()).Get("/arguments")
	return string(raw)
}

// has reports whether a server can get a value.
func (r *redacting) has(server string, n int) bool {
	return !strings.Contains(r.restored(server, `{"a":"`+placeholderOf(n)+`"}`), placeholderOf(n))
}

// want checks which of the values the server can get.
func (r *redacting) want(server string, isKept map[int]bool) {
	r.t.Helper()
	for n, want := range isKept {
		if got := r.has(server, n); got != want {
			r.t.Errorf("the value %d of the server %s is kept: %v, want %v", n, server, got, want)
		}
	}
}

// valuesOf returns count values of a size, from the number first.
func valuesOf(first, count, size int) (all []pipeline.Redacted) {
	for n := range count {
		all = append(all, pipeline.Redacted{Placeholder: placeholderOf(first + n),
			Value: strings.Repeat("v", size)})
	}
	return all
}

// maxPointer is how many bytes of a pointer the record has.
const maxPointer = 1 << 10

// sealing is how many bytes an encrypted value has more than the value: a nonce and a tag.
const sealing = 12 + 16

func TestLargestKeptValues(t *testing.T) {
	for _, c := range []struct {
		name         string
		first, later []pipeline.Redacted
		kept         map[int]bool
	}{
		{"the largest value", valuesOf(1, 1, 64<<10), nil, map[int]bool{1: true}},
		{"a value that is too large", valuesOf(1, 1, 64<<10+1), valuesOf(2, 1, 1),
			map[int]bool{1: false, 2: true}},
		{"an empty value", valuesOf(1, 1, 0), nil, map[int]bool{1: false}},
		{"as many values as a server may have", valuesOf(1, 999, 1), valuesOf(1000, 1, 1),
			map[int]bool{1: true, 500: true, 1000: true}},
		{"a value more", valuesOf(1, 999, 1), valuesOf(1000, 2, 1),
			map[int]bool{1: false, 2: true, 1001: true}},
		{"the same values again", valuesOf(1, 1000, 1), valuesOf(1, 999, 1),
			map[int]bool{1: true, 1000: true}},
		{"as many bytes as a server may have", valuesOf(1, 15, 64<<10-sealing),
			valuesOf(16, 1, 64<<10-sealing), map[int]bool{1: true, 16: true}},
		{"a byte more", valuesOf(1, 15, 64<<10-sealing), valuesOf(16, 1, 64<<10-sealing+1),
			map[int]bool{1: false, 2: true, 16: true}},
		{"a small value instead of a large one", valuesOf(1, 16, 64<<10-sealing),
			slices.Concat(valuesOf(1, 1, 1), valuesOf(17, 1, 64<<10-2*sealing-1)),
			map[int]bool{1: true, 2: true, 16: true, 17: true}},
		{"a placeholder of another form", []pipeline.Redacted{{Placeholder: "[secret:key:1]",
			Value: "v"}}, nil, map[int]bool{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &redacting{t: t}
			r.send("files", c.first...)
			if c.later != nil {
				r.send("files", c.later...)
			}
			r.want("files", c.kept)
		})
	}
}

// If all values together have too many bytes, those of the server are forgotten whose last value is
// the oldest.
func TestLargestStoreOfRedactedValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redacting{t: t}
		for n := range 32 {
			r.send(fmt.Sprint("s", n), valuesOf(1, 16, 64<<10-sealing)...)
			time.Sleep(time.Millisecond)
		}
		for n := range 32 {
			r.want(fmt.Sprint("s", n), map[int]bool{1: true, 16: true})
		}
		r.send("s0", valuesOf(1, 1, 1)...) // now s1 is the oldest
		r.want("s1", map[int]bool{1: true})
		time.Sleep(time.Millisecond)
		r.send("other", valuesOf(1, 2, 64<<10-sealing)...)
		for server, want := range map[string]bool{"s0": true, "s1": false, "s2": true,
			"s31": true, "other": true} {
			r.want(server, map[int]bool{1: want})
		}
	})
}

func TestMostServersWithRedactedValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redacting{t: t}
		for n := range 4096 {
			r.send(fmt.Sprint("s", n), redactedOnce)
			time.Sleep(time.Millisecond)
		}
		r.want("s0", map[int]bool{0: true})
		r.send("other", redactedOnce)
		for server, want := range map[string]bool{"s0": false, "s1": true, "s4095": true,
			"other": true} {
			r.want(server, map[int]bool{0: want})
		}
	})
}

// Each value has its own time, also if later values keep their server in the store.
func TestEachRedactedValueExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redacting{t: t}
		r.send("files", valuesOf(1, 1, 10)...)
		r.send("mail", valuesOf(1, 1, 10)...)
		time.Sleep(30 * time.Minute)
		r.send("files", valuesOf(2, 1, 10)...)
		time.Sleep(30*time.Minute - 1)
		r.want("files", map[int]bool{1: true, 2: true})
		time.Sleep(time.Nanosecond)
		r.want("files", map[int]bool{1: false, 2: true})
		r.want("mail", map[int]bool{1: false})
		time.Sleep(5 * time.Minute)
		r.want("files", map[int]bool{1: false, 2: true})
		time.Sleep(25 * time.Minute)
		r.want("files", map[int]bool{2: false})
	})
}

func TestPlaceholdersInTexts(t *testing.T) {
	r := &redacting{t: t}
	longest := "[secret:" + strings.Repeat("k", 128-len("[secret::]")-26) + ":" +
		strings.Repeat("a", 26) + "]"
	tooLong := strings.Replace(longest, "k", "kk", 1)
	r.send("files", redactedOnce, pipeline.Redacted{Placeholder: longest, Value: "long"},
		pipeline.Redacted{Placeholder: tooLong, Value: "too long"})
	p, unknown := placeholderOf(0), placeholderOf(7)
	for text, want := range map[string]string{
		p + p:                         secretValue + secretValue,
		longest:                       "long",
		"[" + longest + "]":           "[long]",
		tooLong:                       tooLong,
		"[secret:" + p:                "[secret:" + secretValue,
		"[secret:key:" + p:            "[secret:key:" + secretValue,
		p[:len(p)-1] + p:              p[:len(p)-1] + secretValue,
		p[:len(p)-1]:                  p[:len(p)-1],
		unknown + p + unknown:         unknown + secretValue + unknown,
		`\u0061` + unknown:            `\u0061` + unknown,
		"[secret:" + tooLong[8:] + p:  tooLong + secretValue,
		strings.Repeat("x", 200) + p:  strings.Repeat("x", 200) + secretValue,
		p + strings.Repeat("]", 200):  secretValue + strings.Repeat("]", 200),
		strings.Repeat("[secret:", 9): strings.Repeat("[secret:", 9),
	} {
		got := r.restored("files", `{"a":"`+p+`","b":"`+text+`"}`)
		if want := `{"a":"` + secretValue + `","b":"` + want + `"}`; got != want {
			t.Errorf("%s: the server gets %s, want %s", text, got, want)
		}
	}
}

func TestKindsAndDigitsOfPlaceholders(t *testing.T) {
	for c := byte(' '); c < 127; c++ {
		isKind := strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789-", c) >= 0
		if got := pipeline.IsPlaceholder("[secret:k" + string(c) + ":" +
			strings.Repeat("a", 26) + "]"); got != isKind {
			t.Errorf("a kind with %q is valid: %v, want %v", c, got, isKind)
		}
		isDigit := strings.IndexByte("abcdefghijklmnopqrstuvwxyz234567", c) >= 0
		if got := pipeline.IsPlaceholder("[secret:k:" + string(c) +
			strings.Repeat("a", 25) + "]"); got != isDigit {
			t.Errorf("a digit %q is valid: %v, want %v", c, got, isDigit)
		}
	}
}

// The record has what was restored, and what was not.
func TestRestorationIsRecorded(t *testing.T) {
	p, unknown := placeholderOf(0), placeholderOf(7)
	texts := func(n int, text string) string {
		return `{"a":["` + strings.Repeat(text+`","`, n) + `"]}`
	}
	last := func(kind string, n int) string { return fmt.Sprintf("%s /arguments/a/%d", kind, n) }
	name := func(n int) string { return strings.Repeat("n", n-len("/arguments/")) }
	for _, c := range []struct {
		name, arguments     string
		stage, reason, last string // the last finding
		findings            int
	}{
		{"one value", `{"a":"` + p + `"}`, "secrets", "restored 1 redacted value",
			"restored /arguments/a", 1},
		{"two values", `{"a":"` + p + p + `"}`, "secrets", "restored 2 redacted values",
			"restored /arguments/a", 1},
		{"one that is unknown", `{"a":"` + unknown + `"}`, "pipeline", "1 placeholder not restored: " +
			"unknown, expired, or of another server or session", "not-restored /arguments/a", 1},
		{"one of each", `{"a":"` + p + unknown + `"}`, "secrets", "restored 1 redacted value; " +
			"1 placeholder not restored: unknown, expired, or of another server or session",
			"not-restored /arguments/a", 2},
		{"as many texts as the record has", texts(100, p), "secrets",
			"restored 100 redacted values", last("restored", 99), 100},
		{"a text more", texts(101, p), "secrets", "restored 101 redacted values",
			last("restored", 99), 100},
		{"as many unknown ones", texts(100, unknown), "pipeline", "100 placeholders not " +
			"restored: unknown, expired, or of another server or session",
			last("not-restored", 99), 100},
		{"an unknown one more", texts(101, unknown), "pipeline", "101 placeholders not " +
			"restored: unknown, expired, or of another server or session",
			last("not-restored", 99), 100},
		{"the longest pointer", `{"` + name(maxPointer) + `":"` + p + `"}`, "secrets",
			"restored 1 redacted value", "restored /arguments/" + name(maxPointer), 1},
		{"a pointer that is too long", `{"` + name(maxPointer+1) + `":"` + p + `"}`, "secrets",
			"restored 1 redacted value", "restored ", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRestoring(nil, &pipeline.Restore{For: time.Hour}, redactedOnce)
			r.send(t)
			if _, err := r.Pass(t.Context(), callWith(t, c.arguments)); err != nil {
				t.Fatal(err)
			}
			steps := r.log.last(t).Steps
			step := steps[len(steps)-1]
			if step.Stage != c.stage || step.Reason != c.reason ||
				len(step.Findings) != c.findings {
				t.Fatalf("the step is %+v, want %d findings and %q by %q", step, c.findings,
					c.reason, c.stage)
			}
			f := step.Findings[c.findings-1]
			if got := f.Type + " " + f.Pointer; got != c.last {
				t.Errorf("the last finding is %q, want %q", got, c.last)
			}
		})
	}
}

// The values that a request gets have a limit, which counts each placeholder.
func TestLargestRestoredRequest(t *testing.T) {
	most := valuesOf(1, 16, 64<<10-sealing)
	for name, c := range map[string]struct {
		values []pipeline.Redacted
		times  int // how often the last one is in the request
		want   bool
	}{
		"the most bytes": {most, 1, true},
		"a byte more": {slices.Concat(most[:15], valuesOf(16, 1, 64<<10-sealing+1)), 1,
			false},
		"a value more":          {slices.Concat(most, valuesOf(17, 1, 1)), 1, false},
		"the most placeholders": {valuesOf(1, 1, 1), 1000, true},
		"a placeholder more":    {valuesOf(1, 1, 1), 1001, false},
	} {
		for _, separator := range []string{`","`, " "} { // several texts, or one
			r := &redacting{t: t}
			var placeholders []string
			for n, v := range c.values { // of two servers, since one may not have so many bytes
				r.send([]string{"files", "mail"}[n%2], v)
				placeholders = append(placeholders, v.Placeholder)
			}
			last := placeholders[len(placeholders)-1]
			placeholders = append(placeholders, slices.Repeat([]string{last}, c.times-1)...)
			m := callWith(t, `{"a":["`+strings.Join(placeholders, separator)+`"]}`)
			p := newRestoring(&r.store, &pipeline.Restore{For: time.Hour,
				Tools: []string{"files/use"}})
			_, err := p.Pass(t.Context(), m)
			if (err == nil) != c.want {
				t.Errorf("%s, separated by %s: got the error %v, want it to pass: %v", name,
					separator, err, c.want)
			}
		}
	}
}

// A value that a stage redacts in a message to a server is not kept.
func TestValuesOfRequestsAreNotKept(t *testing.T) {
	var store pipeline.RedactedValues
	restore := &pipeline.Restore{For: time.Hour}
	m := callWith(t, `{"a":"x"}`)
	redacts := pipeline.New(&record{}, pipeline.Options{RedactedValues: &store},
		pipeline.StageConfig{Name: "secrets", Restore: restore,
			Stage: always(pipeline.Verdict{Action: pipeline.Modify,
				Redacted: []pipeline.Redacted{redactedOnce},
				Edits:    []mcp.Edit{mcp.Set("/arguments/a", []byte(`"y"`))}})})
	if _, err := redacts.Pass(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	passed, err := newRestoring(&store, restore).Pass(t.Context(),
		callWith(t, `{"a":"`+placeholderOf(0)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := text(passed.Restoration().Apply(passed.Message())); strings.Contains(got,
		secretValue) {
		t.Errorf("the server gets a value of a request: %s", got)
	}
}
