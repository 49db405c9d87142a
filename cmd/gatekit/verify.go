package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/audit/format"
)

func (p *program) auditVerify() *cobra.Command {
	var config, key, fleetDir string
	var since []string
	var asJSON bool
	var witnesses witnessFlags
	c := &cobra.Command{
		Use:   "verify [FILE…]",
		Short: "Verify that the audit log is complete and unmodified",
		Long: `Verify reads all files of the log. It checks that each record contains the hash of
the record before it, and that all records match the signed checkpoint beside the log. If a check
fails, verify prints the file, line and number of the first record that was changed, removed or
moved. Gatekit may run at the same time.

The flags decide what the result proves:

  (no flag)      The key is beside the log. Anyone who can write there can forge a whole new log.
  --key KEY      A public key that was kept elsewhere (gatekit audit key). Only the holder of the
                 private key can forge a log.
  --since FILE   Checkpoints that were kept elsewhere: an [audit] anchor, or what a sink received.
                 Even with the private key, records before a checkpoint cannot be changed or
                 removed. FILE holds one or more checkpoints. The flag may be repeated.
  --witness KEY  The public key of a witness of [[audit.witness]]. Even with the private key, the
                 records that the witness has cosigned cannot be changed or removed. The flag may
                 be repeated. --quorum N demands cosignatures of N of these witnesses, instead of
                 all.

If the command line names no log, verify also compares the log with the anchor that the
configuration names, if any. If this anchor is missing, verify fails.

With [cluster], each replica has its own log. --fleet verifies all of them together. DIR has one
folder for each replica, with its log and all files beside the log. The logs name each other, with
their keys and checkpoints, so verify prints one line for each replica:

  ok       the log is complete and unmodified
  damaged  it was changed, cut, forked or written anew, or a replica that nobody knows has
           forwarded one of its requests
  behind   it is complete in itself, but shorter than another log says: an older copy
  missing  another log, a configuration or a key names it, and it is not in DIR

With --fleet, KEY may be a file with the public keys of all replicas, one in each line. Then each
log must be signed by one of them, and a key without a log counts as a missing log.`,
		Example: `  gatekit audit verify
  gatekit audit verify --key gatekit.pub --since /mnt/other/anchors audit/gatekit.jsonl
  gatekit audit verify --fleet /srv/audit --key replicas.pub`,
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, quorum, err := witnesses.required()
			if err != nil {
				return err
			}
			if fleetDir != "" {
				if len(args) > 0 || config != "" || len(since) > 0 {
					return errors.New("--fleet names all logs, so it cannot be used with FILE, " +
						"--config or --since")
				}
				return (&verifyOptions{key: key, json: asJSON, witnesses: keys,
					quorum: quorum}).verifyFleet(cmd, fleetDir)
			}
			logs, err := (&logSource{config: config, args: args}).logs()
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			if len(logs) > 1 && len(since) > 0 {
				return fmt.Errorf("--since works with one log, but there are %d\nhint: name "+
					"one of them", len(logs))
			}
			o := verifyOptions{key: key, since: since, json: asJSON, single: len(logs) == 1,
				witnesses: keys, quorum: quorum}
			var failed int
			for _, log := range logs {
				err := o.verify(cmd, log)
				if err == nil {
					continue
				}
				if o.single {
					return err
				}
				failed++
				fmt.Fprintln(cmd.ErrOrStderr(), "gatekit:", printable(err.Error()))
			}
			if failed > 0 {
				return fmt.Errorf("%d of %s failed", failed, plural(len(logs), "audit log"))
			}
			if key == "" && !asJSON {
				fmt.Fprintln(cmd.OutOrStdout(),
					"The key was read from beside the log: keep a copy elsewhere, and name it "+
						"with --key.")
			}
			return nil
		},
	}
	configFlag(c, &config)
	c.Flags().StringVar(&key,
		"key", "", "public `key`, or the file with it (default: the key beside the log)")
	c.Flags().StringArrayVar(&since, "since", nil,
		"`file` of checkpoints that the log must match; may be repeated")
	witnesses.add(c)
	c.Flags().StringVar(&fleetDir, "fleet", "", "`folder` with one folder for each replica")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each log")
	return c
}

// verifyOptions are the flags of verify.
type verifyOptions struct {
	key    string // the value of --key; "" for the key beside the log
	since  []string
	json   bool
	single bool // only one log is verified

	witnesses []*audit.WitnessKey
	quorum    int // number of witnesses that must have cosigned
}

// verify verifies a log and prints the result. If o.json is true, it also prints the error.
func (o *verifyOptions) verify(cmd *cobra.Command, log auditLog) error {
	key, err := o.readKey(log)
	if err != nil {
		return err
	}
	var progress func(uint64)
	if isTerminal(os.Stderr) {
		progress = func(records uint64) { fmt.Fprintf(os.Stderr, "\r%d records", records) }
	}
	done, notes, err := o.run(cmd.Context(), log, key, progress)
	if progress != nil {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	if o.json {
		if jsonErr := printVerificationJSON(cmd.OutOrStdout(), log.file, key, done, notes,
			err); jsonErr != nil {
			return jsonErr
		}
		return err
	}
	if err != nil {
		return err
	}
	printVerification(cmd.OutOrStdout(), log.file, key, done)
	for _, n := range notes {
		fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", n)
	}
	return nil
}

// readKey returns the public key of a log. A missing key beside the log is no error here: without a
// log there is no key, and run reports the missing log.
func (o *verifyOptions) readKey(log auditLog) (note.Verifier, error) {
	key, err := audit.ReadPublicKey(cmp.Or(o.key, audit.PublicKeyFile(log.file)))
	if o.key == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return key, err
}

// run verifies a log, which must also match the checkpoints others. progress may be nil.
func (o *verifyOptions) run(ctx context.Context, log auditLog, key note.Verifier,
	progress func(uint64), others ...*audit.Checkpoint) (done *audit.VerificationResult,
	notes []string, err error) {
	all, notes, unusable := checkpoints(log.file, o.since, log.anchor, key)
	all = append(all, others...)
	v := audit.Verification{File: log.file, Key: key, Checkpoints: all, Progress: progress,
		Witnesses: o.witnesses, Quorum: o.quorum}
	done, err = v.Run(ctx)
	if bad, ok := errors.AsType[*audit.RecordError](err); ok {
		bad.Position.File = displayPath(bad.Position.File)
	}
	return done, notes, errors.Join(err, unusable)
}

// printVerificationJSON prints the result of a verification as one line of JSON.
func printVerificationJSON(w io.Writer, file string, key note.Verifier,
	done *audit.VerificationResult, notes []string, failure error) error {
	return printJSON(w, newVerificationJSON(file, key, done, notes, failure))
}

// verificationJSON is the result of a verification as verify --json prints it.
type verificationJSON struct {
	Replica       string            `json:"replica,omitempty"` // with --fleet
	Status        string            `json:"status,omitempty"`  // with --fleet
	Origin        string            `json:"origin,omitempty"`  // with --fleet
	File          string            `json:"file"`
	OK            bool              `json:"ok"`
	Error         string            `json:"error,omitempty"`
	First         uint64            `json:"first"`
	Last          uint64            `json:"last"`
	Signed        int64             `json:"signed"` // records that the checkpoint covers
	Key           string            `json:"key,omitempty"`
	Recovered     []recordRangeJSON `json:"recovered"`
	FromElsewhere int               `json:"checkpoints_matched"`
	Witnessed     int64             `json:"witnessed,omitempty"` // records, with --witness
	Notes         []string          `json:"notes,omitempty"`
}

type recordRangeJSON struct {
	From    uint64 `json:"from"`
	Through uint64 `json:"through"`
}

func newVerificationJSON(file string, key note.Verifier, done *audit.VerificationResult,
	notes []string, failure error) verificationJSON {
	result := verificationJSON{File: file, OK: failure == nil, Recovered: []recordRangeJSON{},
		Notes: notes}
	if failure != nil {
		result.Error = failure.Error()
	}
	if failure == nil && done != nil {
		result.First, result.Last = done.First, done.Last
		result.FromElsewhere, result.Witnessed = done.CheckpointsMatched, done.Witnessed
		if done.Checkpoint != nil {
			result.Signed = done.Checkpoint.Size
		}
		for _, r := range done.Recovered {
			result.Recovered = append(result.Recovered, recordRangeJSON{r.From, r.Through})
		}
	}
	if key != nil {
		result.Key = fmt.Sprintf("%s+%08x", key.Name(), key.KeyHash())
	}
	return result
}

// printJSON prints a value as one line of JSON. Characters that control a terminal are escaped.
func printJSON(w io.Writer, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	_, err := w.Write(append(format.VisibleJSON(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), '\n'))
	return err
}

// checkpoints returns the checkpoints that a log must match, and notes about checkpoints that were
// skipped. The error names the files that cannot be used. The log is still compared with the other
// checkpoints.
func checkpoints(log string, files []string, anchor string,
	key note.Verifier) (all []*audit.Checkpoint, notes []string, err error) {
	var errs []error
	if anchor != "" {
		// The anchor may be a pipe. A pipe is not read, because the read might not end.
		if info, err := os.Stat(anchor); err == nil && !info.Mode().IsRegular() {
			notes = append(notes, fmt.Sprintf("anchor %s not read: it is not a regular file; "+
				"name a copy with --since", displayPath(anchor)))
		} else if !errors.Is(err, fs.ErrNotExist) {
			files = append(files, anchor)
		} else if _, err := os.Stat(log + ".tree"); err == nil {
			// Without a log this is no error, because Run reports the missing log.
			errs = append(errs, fmt.Errorf("anchor %s, which the configuration names, is "+
				"missing: it was removed, or never written\nhint: restore it, or start Gatekit "+
				"to create a new one; to verify without it, run: gatekit audit verify %s",
				displayPath(anchor), displayPath(log)))
		}
	}
	for _, file := range files {
		some, incomplete, err := checkpointsIn(file, key)
		if err != nil {
			errs = append(errs, err)
		}
		if all = append(all, some...); incomplete > 0 {
			notes = append(notes, fmt.Sprintf("%s in %s incomplete: the log was compared with "+
				"the other checkpoints in the file", plural(incomplete, "checkpoint"),
				displayPath(file)))
		}
	}
	return all, notes, errors.Join(errs...)
}

func checkpointsIn(file string,
	key note.Verifier) (all []*audit.Checkpoint, incomplete int, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, fmt.Errorf("read checkpoints: %w", err)
	}
	if key == nil {
		return nil, 0, fmt.Errorf("no key to verify %s with: name one with --key",
			displayPath(file))
	}
	if all, incomplete, err = audit.OpenCheckpoints(b, key); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", displayPath(file), err)
	}
	return all, incomplete, nil
}

// maxRecovered limits how many ranges of records printVerification lists as without a checkpoint.
const maxRecovered = 20

func printVerification(w io.Writer, file string, key note.Verifier,
	done *audit.VerificationResult) {
	if done.Last == 0 {
		fmt.Fprintf(w, "%s contains no records yet\n", displayPath(file))
		return
	}
	fmt.Fprintf(w, "%s: records %d to %d are complete and unmodified\n", displayPath(file),
		done.First, done.Last)
	fmt.Fprintf(w, "  checkpoint of %s, signed by %s+%08x\n", plural(int(done.Checkpoint.Size),
		"record"), printable(key.Name()), key.KeyHash())
	if after := int(done.Last) - int(done.Checkpoint.Size); after > 0 {
		fmt.Fprintf(w, "  %s after this checkpoint, verified only by the hash chain\n",
			plural(after, "record"))
	}
	if done.First > 1 {
		fmt.Fprintf(w, "  records 1 to %d were removed by the retention settings; their hashes "+
			"are kept\n", done.First-1)
	}
	for i, span := range done.Recovered {
		if i == maxRecovered {
			fmt.Fprintf(w, "  and %d more ranges; see the records with action \"recovered\"\n",
				len(done.Recovered)-i)
			break
		}
		fmt.Fprintf(w, "  records %d to %d had no checkpoint when Gatekit next started: changes "+
			"before that start cannot be detected\n", span.From, span.Through)
	}
	if done.Witnessed > 0 {
		fmt.Fprintf(w, "  records 1 to %d are cosigned: %s\n", done.Witnessed,
			printable(describeCosignatures(done.Cosigned)))
	}
	if done.CheckpointsMatched > 0 {
		fmt.Fprintf(w, "  %s from elsewhere: verified\n", plural(done.CheckpointsMatched,
			"checkpoint"))
	}
}

func (p *program) auditProve() *cobra.Command {
	var config, key, fleetDir string
	c := &cobra.Command{
		Use:   "prove SEQ [FILE]",
		Short: "Print a proof that a record is in the audit log",
		Long: `Prove prints a proof that record SEQ is in the log: the record, and the hashes that
connect it to a signed checkpoint. The proof contains no other record. With --fleet, SEQ is
REPLICA:SEQ, such as gatekit-1:41. To check a proof, you need only the public key (gatekit audit
key), and either gatekit audit verify-proof or another tool for the C2SP tlog-proof format.`,
		Example: `  gatekit audit prove 41 > record-41.tlog-proof
  gatekit audit prove gatekit-1:41 --fleet /srv/audit > record-41.tlog-proof`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return errors.New("prove takes the number of a record, and at most one file")
			}
			r, err := parseRecordRef(args[0])
			if err != nil {
				return fmt.Errorf("prove takes the number of a record: %w", err)
			}
			return r.checkFleet(fleetDir)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			source := &logSource{config, args[1:], fleetDir}
			record, err := parseRecordRef(args[0])
			if err == nil {
				err = source.check()
			}
			var log auditLog
			switch {
			case err != nil:
			case fleetDir != "":
				log, err = record.find(fleetDir)
			default:
				log, err = source.one()
			}
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			file := log.file
			if key == "" {
				key = audit.PublicKeyFile(file)
			}
			k, err := audit.ReadPublicKey(key)
			if err != nil {
				return err
			}
			proof, err := audit.Prove(file, record.seq, k)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(proof.Text())
			return err
		},
	}
	configFlag(c, &config)
	fleetFlag(c, &fleetDir)
	c.Flags().StringVar(&key,
		"key", "", "public `key`, or the file with it (default: the key beside the log)")
	return c
}

func (p *program) auditVerifyProof() *cobra.Command {
	var key string
	var witnesses witnessFlags
	c := &cobra.Command{
		Use:   "verify-proof --key KEY [FILE]",
		Short: "Verify the proof of a record",
		Long: `Verify-proof reads a proof that gatekit audit prove printed, from FILE or stdin. If
the record is in the log whose checkpoints KEY verifies, verify-proof prints the record unchanged;
on a terminal, unprintable characters are escaped. Verify-proof needs no log, no configuration and
no network. With --witness, the checkpoint in the proof must be cosigned, too.`,
		Example: `  gatekit audit verify-proof --key gatekit.pub record-41.tlog-proof`,
		Args: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				return errors.New("verify-proof needs --key, the public key of the log")
			}
			return atMostOne("verify-proof")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := audit.ReadPublicKey(key)
			if err != nil {
				return err
			}
			keys, quorum, err := witnesses.required()
			if err != nil {
				return err
			}
			text, err := readProof(cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			proof, err := audit.ParseProof(text)
			if err != nil {
				return err
			}
			c, err := proof.Verify(k)
			if err == nil && len(keys) > 0 {
				err = checkProofWitnesses(proof, k, keys, quorum)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"record %d of the log %s, in the checkpoint of %s signed by %s+%08x\n",
				proof.Index+1, printable(c.Origin), plural(int(c.Size), "record"),
				printable(k.Name()), k.KeyHash())
			f, err := format.New(format.JSONL,
				format.Options{EscapeUnprintable: isTerminal(os.Stdout)})
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(f.Append(nil, &audit.Record{Line: proof.Record}))
			return err
		},
	}
	witnesses.add(c)
	c.Flags().StringVar(&key,
		"key", "", "public `key` that verifies the log's checkpoints, or the file with it")
	return c
}

// maxProof limits the size of a proof. A record is at most a few messages long.
const maxProof = 512 << 20

func readProof(stdin io.Reader, args []string) ([]byte, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.ReadAll(io.LimitReader(stdin, maxProof))
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return nil, fmt.Errorf("read the proof: %w", err)
	}
	return b, nil
}

func (p *program) auditKey() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "key [FILE]",
		Short: "Print the public key of the audit log",
		Long: `Key prints the public key that verifies the checkpoints of the log. Keep a copy that
users who can write to the log cannot change. Give copies to those who verify the log or a proof.
The private key is beside the log, in FILE.key, or in the file that [audit] key names.`,
		Example: `  gatekit audit key > gatekit.pub`,
		Args:    atMostOne("key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := (&logSource{config: config, args: args}).one()
			if err != nil {
				return reportMistakes(cmd, err, false)
			}
			file := log.file
			b, err := os.ReadFile(audit.PublicKeyFile(file))
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w\nhint: Gatekit creates it with the log: start Gatekit once",
					err)
			}
			if err != nil {
				return err
			}
			text := string(b)
			if isTerminal(os.Stdout) {
				text = printable(text)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	configFlag(c, &config)
	return c
}

func (p *program) auditHash() *cobra.Command {
	var config, key string
	c := &cobra.Command{
		Use:   "hash [--key KEY] TEXT [FILE]",
		Short: "Print the hash that the audit log has for an argument",
		Long: `Hash prints the hash that records have for TEXT. With this hash, you can find the
requests that contained TEXT: the field "values" in the record of a request has the hashes of the
texts in the arguments. At most 16 texts are hashed, and no text that is longer than 4 KiB.

The hashes use the key of the log, in FILE.key. Nobody can read a text from its hash. Only somebody
who has the key can check a guess. If TEXT is "-", hash reads a line from stdin, which keeps the
text out of the history of your shell.`,
		Example: `  grep $(gatekit audit hash /srv/data/report.txt) audit/*.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return errors.New("hash takes a text, and at most one file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := (&logSource{config: config, args: args[1:]}).check(); err != nil {
				return err
			}
			var file string
			if len(args) == 2 {
				file = args[1]
			} else {
				c, err := loadConfig(config)
				if err != nil {
					return reportMistakes(cmd, err, false)
				}
				file, key = c.Audit.File, cmp.Or(key, c.Audit.Key)
			}
			values, err := audit.OpenValueHasher(file, key)
			if err != nil {
				return err
			}
			text := args[0]
			if text == "-" {
				line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
				if err != nil && err != io.EOF {
					return err
				}
				text = strings.TrimRight(line, "\r\n")
			}
			fmt.Fprintln(cmd.OutOrStdout(), values.Hash(text))
			return nil
		},
	}
	configFlag(c, &config)
	c.Flags().StringVar(&key,
		"key", "", "`file` with the private key of the log (default: FILE.key, or [audit] key)")
	return c
}

// atMostOne checks that a command gets at most one file.
func atMostOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s takes at most one file", name)
		}
		return nil
	}
}
