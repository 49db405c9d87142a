package injection

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write confusables.txt")

// corpora is the folder with data of third parties, which may be absent.
const corpora = "../../../../shared/corpora/"

const licence = `# Characters that look alike: a table made from Unicode's confusables.txt 17.0.0 (UTS 39), by confusable_test.go.
# Copyright 1991-2025 Unicode, Inc. Used under the Unicode License v3, https://www.unicode.org/license.txt: permission is granted, free of charge, to
# deal in the data files without restriction, provided that this copyright and permission notice appears with all copies.
# Each line: a prototype, a colon, the characters that look like it.
`

// TestTableEqualsUnicode makes the table from Unicode's file and compares it with confusables.txt.
// With -update, it writes confusables.txt instead.
func TestTableEqualsUnicode(t *testing.T) {
	source := corpora + "unicode/confusables.txt"
	raw, err := os.ReadFile(source)
	if err != nil {
		t.Skip("no corpora on this machine: ", err)
	}
	byPrototype := map[string][]string{}
	for line := range strings.Lines(strings.TrimPrefix(string(raw), "\ufeff")) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Split(line, ";")
		if len(fields) < 3 {
			continue
		}
		from, to := strings.ToLower(strings.TrimSpace(fields[0])),
			strings.ToLower(strings.TrimSpace(fields[1]))
		byPrototype[to] = append(byPrototype[to], strings.TrimLeft(from, "0"))
	}
	var b bytes.Buffer
	b.WriteString(licence)
	for _, to := range slices.Sorted(maps.Keys(byPrototype)) {
		fmt.Fprintf(&b, "%s:%s\n", to, strings.Join(byPrototype[to], " "))
	}
	if *update {
		if err := os.WriteFile("confusables.txt", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if b.String() != confusablesText {
		t.Error("confusables.txt differs from Unicode's table: run go test -run TestTable -update")
	}
}

func TestSkeletonsOfSimilarNamesAreEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"read_file", "reаd_file", true}, // Cyrillic а
		{"read_file", "Read_File", true},
		{"read_file", "read\u200b_file", true},
		{"list_files", "l1st_files", false}, // 1 looks like l, not like i
		{"pull", "pu1l", true},
		{"merge", "rnerge", true},
		{"read_file", "ｒｅａｄ_file", true},
		{"read_file", "read_files", false},
		{"read_file", "readfile", false},
		{"файл", "файл", true},
		{"größe", "gro\u0308ße", true},
	} {
		if got := skeleton(c.a) == skeleton(c.b); got != c.same {
			t.Errorf("%q and %q: got equal skeletons %v, want %v", c.a, c.b, got, c.same)
		}
	}
}
