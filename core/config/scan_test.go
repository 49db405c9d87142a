package config

import (
	"os"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// FuzzScannerFindsEveryKey compares the scanner with the parser. The scanner must find the position
// of each key that the parser returns.
func FuzzScannerFindsEveryKey(f *testing.F) {
	for _, doc := range []string{
		"a = 1\nb.c = 2\n[d]\n\"e f\" = '''x\n'''''\n[[g.h]]\ni = [1, {j = 2, k.l = \"]\"}, " +
			"[3]]\n[[g.h]]\n[g.h.m]\nn = 1979-05-27 07:32:00Z # x\n",
		"a = \"\"\"x\\\"\"\"\"\"\nb = \"\\\\\"\nc = ''\nd = \"\"\ne = '\\'\n",
		"a = { b = 1, # x\n c = [\n 1,\n], }\n'quo.ted'.\"\\u0041\" = 1\n",
		"[ a . b ]\n[\"a\".c]\nx=1\r\n[[ d ]]\r\n",
		"a=[[[]],[]]\nb=[{},{}]#]\n",
		"a = [\"\\\"]\", 2]\nb = ['\\', 'c', \"]\"]\n",
		// The scan of an invalid document must end.
		"a", "a ", "a.", "a =", "a = ", "[", "[[", "]", "a = [", "a = [1,", "a = [}", "a = {",
		"a = {]", "a = {b = 1,", "\"", "a = \"x", "a = \"\\", "a = '''x", "a = 1 # x",
	} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		root := scan(doc) // must end for every document
		if isUTF16(doc) || strings.HasPrefix(doc, "\ufeff") {
			return // load handles such documents before it scans
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
				t.Errorf("the offset of %q is %d, want an offset from 0 to %d", key, n.offset,
					len(doc)-1)
			}
		}
		agree(t, doc, "", values, root)
	})
}

// FuzzEveryMistakeHasPosition loads arbitrary files. Each mistake that is reported must have a
// message and a position within the file.
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
			return // the fuzzer must not read arbitrary files
		}
		l := &loader{dir: "/nowhere", files: map[string][]byte{}}
		l.load("/gatekit.toml", newDocument("gatekit.toml", doc))
		for _, e := range l.errs {
			if e.Position.Line < 1 || e.Position.Line > strings.Count(doc, "\n")+1 ||
				e.Message == "" {
				t.Errorf("got the mistake %v, want a message and a line from 1 to %d:\n%s", e,
					strings.Count(doc, "\n")+1, doc)
			}
		}
	})
}

// find returns the node of a key below n. If n is a list, any element of the list may contain the
// key.
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

// agree fails the test unless the node n has the same keys as the value, and lists of the same
// length. The parameter at is the path of the value.
func agree(t *testing.T, doc, at string, value any, n *node) {
	if table, ok := value.(map[string]any); ok {
		if len(table) != len(n.keys) {
			t.Errorf("%q has %d keys, the scanner found %q in\n%s", at, len(table), n.keys, doc)
		}
		for k, v := range table {
			if k == "" {
				// If the key of a list is empty, the parser loses elements of the list. No key
				// of Gatekit is empty.
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
