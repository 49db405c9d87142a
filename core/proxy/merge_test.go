package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// objects returns the text of n members of an object, each with an empty object as its value.
func objects(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":{}`, i)
	}
	return strings.TrimPrefix(b.String(), ",")
}

func TestCapabilitiesAreBounded(t *testing.T) {
	const refused = `"gatekit/partial":[{"server":"bad","reason":"server \"bad\" is not available: its capabilities have more than 1000 members"}]`
	for _, c := range []struct {
		name, capabilities string
		refused            bool
	}{
		{"1000 members", `{` + objects(1000) + `}`, false},
		{"1001 members", `{` + objects(1001) + `}`, true},
		{"1001 members at all depths together", `{"experimental":{` + objects(500) +
			`},"tasks":{"requests":{` + objects(498) + `}}}`, true},
		{"1000 members at all depths together", `{"experimental":{` + objects(500) +
			`},"tasks":{"requests":{` + objects(497) + `}}}`, false},
		{"5000 members below the depth that is merged",
			`{"tasks":{"a":{"b":{"c":{` + objects(5000) + `}}}}}`, false},
		{"100,000 members", `{"extensions":{` + objects(100_000) + `}}`, true},
	} {
		for method, params := range map[string]string{"initialize": initializeParams,
			"server/discover": `{}`} {
			w := open(t, map[string]*fakeServer{"bad": serverAnswering(`{"capabilities":` +
				c.capabilities +
				`}`), "good": serverAnswering(`{"capabilities":{"tools":{},"logging":{}}}`)}, nil)
			got := w.call(t, method, params)
			if strings.Contains(got, refused) != c.refused {
				t.Errorf("%s, %s: got %.500s, want refused: %v", c.name, method, got, c.refused)
			}
			if !strings.Contains(got, `"logging":{}`) {
				t.Errorf("%s, %s: got %.500s, want logging, which the good server has", c.name,
					method, got)
			}
		}
	}
}

// A former version searched each object from the start of the message. When large members came
// first, merging took minutes. The time for 900 objects is compared with the time for one.
func TestCapabilitiesAreMergedInLinearTime(t *testing.T) {
	padding := `"pad":[` + strings.Repeat(`[],`, 2<<20) + `0],`
	greet := func(ctx context.Context, n int) {
		w := open(t, map[string]*fakeServer{"a": serverAnswering(`{"capabilities":{"tasks":{` +
			padding +
			objects(n) + `}}}`), "b": serverAnswering(`{"capabilities":{"tasks":{"list":{}}}}`)},
			nil)
		m := w.session.Call(ctx, request(t, "7", "initialize", initializeParams),
			w.client).Message()
		tasks, _ := m.Get("/capabilities/tasks")
		if want := `{` + padding + objects(n) + `,"list":{}}`; string(tasks) != want {
			t.Errorf("%d objects became %d bytes, want %d", n, len(tasks), len(want))
		}
	}
	began := time.Now()
	greet(t.Context(), 1)
	enough := 20 * time.Since(began)
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	greet(ctx, 900)
	if ctx.Err() != nil {
		t.Errorf("900 objects took more than %v, which is 20 times the time for one", enough)
	}
}
