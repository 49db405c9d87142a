package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/core/regularfile"
)

// maxKeyFile bounds a public key and a checkpoint, in bytes.
const maxKeyFile = 1 << 20

// Status is the result of a log.
type Status string

// Statuses of logs.
const (
	OK      Status = "ok"
	Damaged Status = "damaged" // changed, cut, forked, or signed with another key
	Behind  Status = "behind"  // complete in itself, but another log knows more of its records
	Missing Status = "missing" // another log, a key or the configuration names it
)

// Result is the result of one log.
type Result struct {
	Log
	Status Status
	Origin string        // "" if it is unknown
	Key    note.Verifier // nil if it is unknown
	// Key as text, NAME+ID+KEY
	PublicKey string
	Done      *audit.VerificationResult // nil unless the log itself passed
	Notes     []string                  // of the caller's Run
	// what is wrong; nil with OK
	Err error
}

// Options configure Verify.
type Options struct {
	// public keys that were kept elsewhere, as lines NAME+ID+KEY; if there are any, each log must
	// be signed by one of them, and each of them must have signed a log
	Keys []string
	// Run verifies one log with its key. The log must also match the other checkpoints. Run returns
	// notes for people.
	Run func(ctx context.Context, log Log, key note.Verifier,
		others []*audit.Checkpoint) (*audit.VerificationResult, []string, error)
}

// Verify verifies the logs of a fleet, and compares what they say about each other. It returns the
// results of all logs that are there or are missing, sorted by name. After an error, verification
// could not be finished.
func Verify(ctx context.Context, logs []Log, o Options) ([]Result, error) {
	v := &verifier{options: o, said: map[string]statements{}, origins: map[string]string{},
		names: map[string]bool{}}
	for _, l := range logs {
		if l.File != "" {
			v.said[l.Dir] = read(ctx, l)
		}
	}
	var results []Result
	for _, l := range logs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		results = append(results, v.verify(ctx, l))
	}
	for i := range results {
		v.checkVias(&results[i])
	}
	results = append(results, v.missing(results)...)
	slices.SortStableFunc(results, func(a, b Result) int {
		return strings.Compare(a.Name, b.Name)
	})
	return results, ctx.Err()
}

type verifier struct {
	options Options
	said    map[string]statements // by the folder of the log
	origins map[string]string     // name of the log that has the origin
	names   map[string]bool       // names of replicas that have a log here
}

// named returns what the logs say about other logs, sorted by the name of the log that says so.
func (v *verifier) named() (all []statement) {
	for _, dir := range slices.Sorted(maps.Keys(v.said)) {
		all = append(all, v.said[dir].named...)
	}
	return all
}

func (v *verifier) verify(ctx context.Context, l Log) Result {
	r := Result{Log: l, Status: Damaged}
	if l.File == "" {
		r.Status = Missing
		r.Err = fmt.Errorf("the folder %s has no audit log\nhint: copy the log with all files "+
			"beside it: gatekit.jsonl, its segments, gatekit.jsonl.tree and gatekit.jsonl.pub",
			l.Dir)
		return r
	}
	v.names[l.Name] = true
	if r.PublicKey, r.Key, r.Err = v.keyOf(l); r.Err != nil {
		return r
	}
	// The origin is not verified yet. It only selects what other logs say.
	r.Origin = originOf(l, r.Key)
	others, said, err := v.saidAbout(&r)
	if err != nil {
		r.Err = err
		return r
	}
	r.Done, r.Notes, r.Err = v.options.Run(ctx, l, r.Key, others)
	if r.Err != nil {
		v.explain(ctx, &r, said)
		return r
	}
	if other, taken := v.origins[r.Origin]; taken {
		r.Err = fmt.Errorf("it is another copy of the log of %s", other)
		return r
	}
	v.origins[r.Origin], r.Status = l.Name, OK
	return r
}

// keyOf returns the public key beside a log. If keys were kept elsewhere, it must be one of them.
func (v *verifier) keyOf(l Log) (string, note.Verifier, error) {
	b, err := regularfile.Read(audit.PublicKeyFile(l.File), maxKeyFile)
	if err != nil {
		return "", nil, fmt.Errorf("read the public key: %w", err)
	}
	text := strings.TrimSpace(string(b))
	key, err := note.NewVerifier(text)
	if err != nil {
		return "", nil, fmt.Errorf("read the public key %s: %w\nhint: the file must hold one line "+
			"NAME+ID+KEY", audit.PublicKeyFile(l.File), err)
	}
	if len(v.options.Keys) > 0 && !slices.Contains(v.options.Keys, text) {
		return "", nil, fmt.Errorf("its key %s is none of the keys that were given: somebody has "+
			"written the log anew, or the key of this replica is missing among them", keyID(key))
	}
	return text, key, nil
}

func keyID(key note.Verifier) string { return fmt.Sprintf("%s+%08x", key.Name(), key.KeyHash()) }

// originOf returns the origin in the checkpoint of a log, or "" if the checkpoint cannot be read.
func originOf(l Log, key note.Verifier) string {
	signed, err := regularfile.Read(filepath.Join(l.File+".tree", "checkpoint"), maxKeyFile)
	if err != nil {
		return ""
	}
	c, err := audit.OpenCheckpoint(signed, key)
	if err != nil {
		return ""
	}
	return c.Origin
}

// saidAbout returns the checkpoints of a log that other logs have, with the statements that have
// them. If a statement has another key than the log, saidAbout returns an error.
func (v *verifier) saidAbout(r *Result) (others []*audit.Checkpoint, said []statement, err error) {
	for _, s := range v.named() {
		if r.Origin == "" || s.Origin != r.Origin {
			continue
		}
		if s.Key != r.PublicKey {
			return nil, nil, fmt.Errorf("it is signed with the key %s, but record %d of %s says "+
				"that it has another key: somebody has written it anew", keyID(r.Key), s.seq, s.by)
		}
		if c := open(s.RosterEntry); c != nil && c.Size > 0 {
			others, said = append(others, c), append(said, s)
		}
	}
	return others, said, nil
}

// explain finds out whether a log that did not pass is complete in itself, and only shorter than
// another log says.
func (v *verifier) explain(ctx context.Context, r *Result, said []statement) {
	r.Done = nil
	if len(said) == 0 {
		return
	}
	done, notes, err := v.options.Run(ctx, r.Log, r.Key, nil)
	if err != nil {
		r.Notes, r.Err = notes, err
		return
	}
	v.origins[r.Origin] = r.Name
	largest := slices.MaxFunc(said, func(a, b statement) int {
		return cmp.Compare(sizeOf(a.RosterEntry), sizeOf(b.RosterEntry))
	})
	size := sizeOf(largest.RosterEntry)
	if uint64(size) <= done.Last {
		r.Err = fmt.Errorf("it does not match what %s says about it in record %d\n%w", largest.by,
			largest.seq, r.Err)
		return
	}
	r.Status = Behind
	r.Err = fmt.Errorf("it ends at record %d, but record %d of %s has a checkpoint of %d of its "+
		"records: this is an older copy, or its end was removed", done.Last, largest.seq,
		largest.by, size)
}

// checkVias checks that each replica that forwarded a request to this log's replica is known.
func (v *verifier) checkVias(r *Result) {
	if r.Status != OK {
		return
	}
	s := v.said[r.Dir]
	for _, via := range slices.Sorted(maps.Keys(s.vias)) {
		known := v.names[via] || slices.ContainsFunc(v.named(), func(n statement) bool {
			return n.Replica == via
		})
		if !known {
			r.Status = Damaged
			r.Err = errors.Join(r.Err, fmt.Errorf("record %d was forwarded by replica %q, which "+
				"no roster names and whose log is not here", s.vias[via], via))
		}
	}
	if s.full {
		r.Notes = append(r.Notes, fmt.Sprintf("it names more than %d replicas: not all of them "+
			"were compared", maxNamed))
	}
}

// missing returns the logs that are named somewhere and are not there.
func (v *verifier) missing(results []Result) (missing []Result) {
	seen := map[string]bool{}
	add := func(id, name, origin, key string, err error) {
		if seen[id] {
			return
		}
		seen[id] = true
		missing = append(missing, Result{Log: Log{Name: name}, Status: Missing, Origin: origin,
			PublicKey: key, Err: err})
	}
	// names and origins of the logs here that did not pass, and may be the logs that are named
	damaged := map[string]bool{}
	for _, r := range results {
		if r.Status == Damaged {
			damaged[r.Name], damaged[r.Origin] = true, true
		}
	}
	withLog := map[string]bool{} // names for which some entry has an origin
	for _, s := range v.named() {
		withLog[s.Replica] = withLog[s.Replica] || s.Origin != ""
	}
	for _, s := range v.named() {
		_, here := v.origins[s.Origin]
		switch {
		case s.Origin == "" && (v.names[s.Replica] || withLog[s.Replica]):
		case s.Origin == "":
			add("name "+s.Replica, s.Replica, "", "", fmt.Errorf("the configuration of %s has "+
				"this replica (record %d), but its log is not here", s.by, s.seq))
		case here || damaged[s.Replica] || damaged[s.Origin]:
		default:
			add(s.Origin, s.Replica, s.Origin, s.Key, fmt.Errorf("its log %s, which the replica "+
				"has written since %s, is not here; record %d of %s names it", s.Origin,
				s.Since.Format("2006-01-02 15:04:05Z"), s.seq, s.by))
		}
	}
	for _, text := range v.options.Keys {
		key, err := note.NewVerifier(text)
		if err != nil {
			continue // Verify's caller has checked it
		}
		used := slices.ContainsFunc(results, func(r Result) bool { return r.PublicKey == text }) ||
			slices.ContainsFunc(missing, func(r Result) bool { return r.PublicKey == text })
		if !used {
			add("key "+text, keyID(key), "", text, fmt.Errorf("no log here is signed with the key "+
				"%s that was given", keyID(key)))
		}
	}
	return missing
}

// Find returns the log of a replica, by its name or the name of its folder.
func Find(logs []Log, name string) (Log, error) {
	var names []string
	for _, l := range logs {
		if l.File == "" {
			continue
		}
		if l.Name == name || filepath.Base(l.Dir) == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Log{}, fmt.Errorf("there is no log of a replica %q\nhint: the replicas are %s", name,
		strings.Join(names, ", "))
}
