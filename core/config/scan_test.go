package config

import (
	"os"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// FuzzScannerFindsEveryKey compares the scanner with the parser: the scanner must know the position
// of each key that the parser returns.
func FuzzScannerFindsEveryKey(f *testing.F) {
	for _, doc := range []string{
		"a = 1\nb.c = 2\n[d]\n\"e f\" = '''x\n'''''\n[[g.h]]\ni = [1, {j = 2, k.l = \"]\"}, " +
			"[3]]\n[[g.h]]\n[g.h.m]\nn = 1979-05-27 07:32:00Z # x\n",
		"a = \"\"\"x\\\"\"\"\"\"\nb = \"\\\\\"\nc = ''\nd = \"\"\ne = '\\'\n",
		"a = { b = 1, # x\n c = [\n 1,\n], }\n'quo.ted'.\"\\u0041\" = 1\n",
		"[ a . b ]\n[\"a\".c]\nx=1\r\n[[ d ]]\r\n",
		"a=[[[]],[]]\nb=[{},{}]#]\n",
	} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		root := scan(doc) // must end whatever it gets
		if isUTF16(doc) || strings.HasPrefix(doc, "\ufeff") {
			return // load handles these before it scans
		}
		values := map[string]any{}
		md, err := toml.Decode(doc, &values)
		if err != nil {
			return
		}
		for _, key := range md.Keys() {
			if n, ok := find(root, key); !ok {
				t.Errorf("the scanner did not find the key %q in\n%s", key, doc)
			} else if n.offset < 0 || n.offset >= len(doc) {
				t.Errorf("the offset of %q is %d, want one in the document", key, n.offset)
			}
		}
		agree(t, doc, "", values, root)
	})
}

// FuzzEveryMistakeHasPosition loads any file: the result is a configuration, or mistakes with
// positions within the file.
func FuzzEveryMistakeHasPosition(f *testing.F) {
	example, err := os.ReadFile("../../gatekit.toml.example")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add("[server.a]\ncommand = \"a\nargs = [\n[names]\nprefix = \"never\"\n[server]\nb = " +
		"1\n[[server.c]]\n")
	f.Add("server = { a = { command = \"x\", env = { T = \"${env:NO}${file:/no}\" } } " +
		"}\n[[plugin]]\nconfig = [1]\nname = 1\nservers = [\"b\", 2]\n")
	f.Add("listen.http = \":1\"\nlisten.allowed_hosts = [[]]\npolicy = 1\nlimits.depth = " +
		"-1\naudit.file = \"\"\n")
	f.Fuzz(func(t *testing.T, doc string) {
		if strings.Contains(doc, "${file:") && !strings.Contains(doc, "${file:/no}") {
			return // it would read the file
		}
		l := &loader{dir: "/nowhere", files: map[string][]byte{}}
		l.load("/gatekit.toml", newDocument("gatekit.toml", doc))
		for _, e := range l.errs {
			if e.Position.Line < 1 || e.Position.Line > strings.Count(doc, "\n")+1 ||
				e.Message == "" {
				t.Errorf("got the mistake %v, want a message and one of the %d lines:\n%s", e,
					strings.Count(doc, "\n")+1, doc)
			}
		}
	})
}

// find returns the node of a key below n. Below a list, the key may be in any element.
func find(n *node, key toml.Key) (*node, bool) {
	if len(key) == 0 {
		return n, true
	}
	if c := n.table[key[0]]; c != nil {
		return find(c, key[1:])
	}
	for _, item := range n.items {
		if c, ok := find(item, key); ok {
			return c, true
		}
	}
	return nil, false
}

// agree fails the test unless the tree has the same keys and numbers of elements as the values.
func agree(t *testing.T, doc, at string, value any, n *node) {
	if table, ok := value.(map[string]any); ok {
		if len(table) != len(n.keys) {
			t.Errorf("%q has %d keys, the scanner found %q in\n%s", at, len(table), n.keys, doc)
		}
		for k, v := range table {
			if k == "" {
				// the parser loses elements of a list under an empty name; no key of Gatekit is
				// empty
				continue
			}
			if n.table[k] == nil {
				t.Errorf("the scanner did not find the key %q of %q in\n%s", k, at, doc)
				continue
			}
			agree(t, doc, at+"."+k, v, n.table[k])
		}
	}
	if items, ok := asList(value); ok {
		if len(items) != len(n.items) {
			t.Errorf("%q has %d elements, the scanner found %d in\n%s", at, len(items),
				len(n.items), doc)
			return
		}
		for i, v := range items {
			agree(t, doc, at+"[]", v, n.items[i])
		}
	}
}
