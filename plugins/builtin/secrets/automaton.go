package secrets

// automaton finds many words in a text in one pass, ignoring the case of ASCII letters. It is an
// Aho-Corasick automaton with all transitions in one table.
type automaton struct {
	column         [256]uint8 // the table's column of a byte; 0 for bytes that are in no word
	columns        int
	next           []int32   // next[row+column] is the next state's row, which is an offset in next
	firstAccepting int32     // the first row of the states that end a word
	wordsAt        [][]int32 // the words that end in a state, by (row - firstAccepting) / columns
}

// newAutomaton returns the automaton of words, which must be in lower case.
func newAutomaton(words []string) *automaton {
	k := &automaton{columns: 1}
	for _, w := range words {
		for i := range len(w) {
			if c := w[i]; k.column[c] == 0 {
				k.column[c] = uint8(k.columns)
				if c >= 'a' && c <= 'z' {
					k.column[c-'a'+'A'] = uint8(k.columns)
				}
				k.columns++
			}
		}
	}
	type node struct {
		next []int32
		fail int32
		ends []int32
	}
	trie := []node{{next: make([]int32, k.columns)}}
	for n, w := range words {
		at := int32(0)
		for i := range len(w) {
			c := k.column[w[i]]
			if trie[at].next[c] == 0 {
				trie = append(trie, node{next: make([]int32, k.columns)})
				trie[at].next[c] = int32(len(trie) - 1)
			}
			at = trie[at].next[c]
		}
		trie[at].ends = append(trie[at].ends, int32(n))
	}
	queue := []int32{0}
	for n := 0; n < len(queue); n++ {
		at := queue[n]
		for c, to := range trie[at].next {
			fail := trie[trie[at].fail].next[c]
			switch {
			case to == 0:
				trie[at].next[c] = fail
				continue
			case at != 0:
				trie[to].fail = fail
				trie[to].ends = append(trie[to].ends, trie[fail].ends...)
			}
			queue = append(queue, to)
		}
	}
	// The states that end a word come last, so that one comparison recognises them.
	row := make([]int32, len(trie))
	rows := int32(0)
	for _, ends := range []bool{false, true} {
		if ends {
			k.firstAccepting = rows
		}
		for n := range trie {
			if (len(trie[n].ends) > 0) == ends {
				row[n] = rows
				rows += int32(k.columns)
			}
		}
	}
	k.next = make([]int32, rows)
	k.wordsAt = make([][]int32, (rows-k.firstAccepting)/int32(k.columns))
	for n := range trie {
		for c, to := range trie[n].next {
			k.next[row[n]+int32(c)] = row[to]
		}
		if row[n] >= k.firstAccepting {
			k.wordsAt[(row[n]-k.firstAccepting)/int32(k.columns)] = trie[n].ends
		}
	}
	return k
}

// scan calls yield for each index in s at which words end. It passes the index and the numbers of
// the words. It stops when yield returns false.
func (k *automaton) scan(s string, yield func(end int, words []int32) (more bool)) {
	row := int32(0)
	for i := 0; i < len(s); i++ {
		row = k.next[row+int32(k.column[s[i]])]
		if row < k.firstAccepting {
			continue
		}
		if !yield(i+1, k.wordsAt[(row-k.firstAccepting)/int32(k.columns)]) {
			return
		}
	}
}

// containsAny reports whether s contains one of the words.
func (k *automaton) containsAny(s string) (found bool) {
	k.scan(s, func(int, []int32) bool {
		found = true
		return false
	})
	return found
}
