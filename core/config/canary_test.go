package config_test

import (
	"fmt"
	"strings"
	"testing"

	"gatekit/core/config"
)

func TestMistakesInCanaries(t *testing.T) {
	const good = `"AKIAQ7ZX9LM2WT5K"`
	const byChance = ", so honest messages could have it by chance"
	for _, tt := range []struct{ name, table, want string }{
		{"no value", "[canary.a]",
			`3:1: canary.a.values is missing or empty; write values = ["${file:canary.key}"]`},
		{"a short value", "[canary.a]\nvalues = [\"AKIAQ7ZX9LM\"]",
			"4:11: canary.a.values[0] is shorter than 12 characters" + byChance},
		{"a long value", "[canary.a]\nvalues = [\"" + strings.Repeat("abcdefgh1", 57) + "\"]",
			"4:11: canary.a.values[0] is longer than 512 characters"},
		{"a monotonous value", "[canary.a]\nvalues = [\"ababcdeabcde\"]",
			"4:11: canary.a.values[0] has fewer than 6 different characters" + byChance},
		{"a blank", "[canary.a]\nvalues = [" + good + ", \"AKIAQ7ZX 9LM2WT5\"]",
			"4:31: canary.a.values[1] must be printable ASCII without a blank, on one line"},
		{"a letter that is not ASCII", "[canary.a]\nvalues = [\"AKIAQ7ZXé9LM2WT5\"]",
			"4:11: canary.a.values[0] must be printable ASCII without a blank, on one line"},
		{"the value of another", "[canary.a]\nvalues = [" + good + "]\n[canary.b]\nvalues = [" +
			strings.ToLower(good) + "]", "6:11: canary.b.values[0] is also a value of canary.a"},
		{"an unknown action", "[canary.a]\nvalues = [" + good + "]\naction = \"log\"",
			`5:1: canary.a.action must be one of "deny", "record", not "log"`},
		{"a bad name", "[canary.A]\nvalues = [" + good + "]", `3:1: "A" is not a valid canary ` +
			`name: it must start with a-z and contain only a-z, 0-9 and "-"`},
		{"a plugin with the name of the stage", "[canary.a]\nvalues = [" + good + "]\n" +
			"[[plugin]]\nname = \"canary\"\nuse = \"secrets\"", `6:1: plugin "canary": name ` +
			`must not be "canary": with [canary], the audit log has that name for the stage ` +
			`that finds planted values`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, server+tt.table)
			if got := strings.Join(mistakes(t, err), "\n"); got != tt.want {
				t.Errorf("got the mistakes %q, want %q", got, tt.want)
			}
		})
	}
}

func TestBoundsOfCanaries(t *testing.T) {
	// values returns the values from, from+1 and so on, up to to-1.
	values := func(from, to int) string {
		var list []string
		for i := from; i < to; i++ {
			list = append(list, fmt.Sprintf("\"AKIAQ7ZX9LM%03d\"", i))
		}
		return "values = [" + strings.Join(list, ",") + "]\n"
	}
	const tooMany = "5:1: the canaries have more than 256 values; remove values"
	for _, tt := range []struct{ name, table, want string }{
		{"256 values", "[canary.a]\n" + values(0, 200) + "[canary.b]\n" + values(200, 256), ""},
		{"257 values", "[canary.a]\n" + values(0, 200) + "[canary.b]\n" + values(200, 257),
			tooMany},
		{"257 values, and more", "[canary.a]\n" + values(0, 200) + "[canary.b]\n" +
			values(200, 257) + "[canary.c]\n" + values(257, 258), tooMany},
		{"256 values, and one more", "[canary.a]\n" + values(0, 256) + "[canary.b]\n" +
			values(256, 257), tooMany},
		{"the shortest value", "[canary.a]\nvalues = [\"AKIAQ7ZX9LM2\"]", ""},
		{"the longest value", "[canary.a]\nvalues = [\"" + strings.Repeat("abcdefgh", 64) + "\"]",
			""},
		{"few characters", "[canary.a]\nvalues = [\"abcdefabcdef\"]", ""},
		{"the first and the last character", "[canary.a]\nvalues = ['!bcdefabcde~']", ""},
		{"a plugin with the name of the stage, without canaries",
			"[[plugin]]\nname = \"canary\"\nuse = \"secrets\"", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, server+tt.table)
			got := ""
			if err != nil {
				got = strings.Join(mistakes(t, err), "\n")
			}
			if got != tt.want {
				t.Errorf("got the mistakes %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCanariesAreMaskedAndDenyByDefault(t *testing.T) {
	c, err := load(t, server+"[canary.a]\nvalues = [\"AKIAQ7ZX9LM2WT5K\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Canaries) != 1 || c.Canaries[0].Name != "a" || c.Canaries[0].Action != "deny" {
		t.Fatalf("got %+v, want the canary a, which denies", c.Canaries)
	}
	got := config.NewMask(c.Substituted()).Replace("error: AKIAQ7ZX9LM2WT5K")
	if got != "error: [redacted]" {
		t.Errorf("got %q, want the value masked", got)
	}
}
