package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"gatekit/audit"
	"gatekit/audit/format"
)

// auditLog is the log that a command is about, and the file where its checkpoints were anchored, if
// it has one.
func auditLog(config string, args []string) (file, anchor string, err error) {
	if len(args) > 0 {
		return args[0], "", nil
	}
	c, err := load(config)
	if err != nil {
		return "", "", err
	}
	return c.Audit.File, c.Audit.Anchor, nil
}

func (p *program) auditVerify() *cobra.Command {
	var config, key string
	var since []string
	c := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Say whether the audit log is what was written",
		Long: `Verify reads the log, in all its files, and holds that each record is bound to the one before it, and that all of them together are what the checkpoint beside the log says, which
Gatekit has signed. It names the first record that was changed, is missing, or stands where it did not, by file, line and number. It may run while Gatekit does.

What it finds is worth as much as what it is held against:

  nothing else      the key is beside the log: who can write there can make all of it anew
  --key KEY         the public key ("gatekit audit key"), kept elsewhere: only who has the private key can make a log anew
  --since FILE      checkpoints that were sent elsewhere while the log was written ([audit] anchor, or what a sink has kept): what was before them cannot be
                    changed or cut off even with the key. FILE holds one or more; several --since are allowed

The anchor that gatekit.toml names is held against the log without being asked for; when it is not there, that is an error.`,
		Example: "  gatekit audit verify\n  gatekit audit verify --key gatekit.pub --since " +
			"/mnt/other/anchors audit/gatekit.jsonl",
		Args: atMostOne("verify"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, anchor, err := auditLog(config, args)
			if err != nil {
				return report(cmd, err)
			}
			v := audit.Verification{File: file}
			beside := key == ""
			if beside {
				key = audit.PublicKeyFile(file)
			}
			// there is none where there is no log
			if v.Key, err = audit.ReadPublicKey(key); err != nil && !(beside && errors.Is(err,
				fs.ErrNotExist)) {
				return err
			}
			since, passed, unheld := checkpoints(file, since, anchor, v.Key)
			v.Checkpoints = since
			if isTerminal(os.Stderr) {
				v.Progress = func(records uint64) {
					fmt.Fprintf(os.Stderr, "\r%d records",
						records)
				}
			}
			done, err := v.Run(cmd.Context())
			if v.Progress != nil {
				fmt.Fprint(os.Stderr, "\r\x1b[K")
			}
			if bad, ok := errors.AsType[*audit.RecordError](err); ok {
				bad.Position.File = shown(bad.Position.File)
			}
			if err := errors.Join(err, unheld); err != nil {
				return err
			}
			sayVerified(cmd.OutOrStdout(), file, v.Key, done)
			for _, p := range passed {
				fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", p)
			}
			if beside {
				fmt.Fprintf(cmd.OutOrStdout(),
					"The key was beside the log: keep a copy elsewhere, and name it with --key.\n")
			}
			return nil
		},
	}
	configFlag(c, &config)
	c.Flags().StringVar(&key,
		"key", "", "public `key` that signed the checkpoints, or the file with it (default: the "+
			"one beside the log)")
	c.Flags().StringArrayVar(&since, "since", nil,
		"`file` of checkpoints that the log must hold; may be repeated")
	return c
}

// checkpoints are those that a log must hold, and what was passed over. The error is of files that
// are no use; the log is to be held against the others all the same.
func checkpoints(log string, files []string, anchor string,
	key note.Verifier) (all []*audit.Checkpoint, passed []string, err error) {
	var errs []error
	if anchor != "" {
		// to read a pipe may have no end
		if info, err := os.Stat(anchor); err == nil && !info.Mode().IsRegular() {
			passed = append(passed, fmt.Sprintf("the anchor %s is no regular file, and was not "+
				"read: name what was kept of it with --since", shown(anchor)))
		} else if !errors.Is(err, fs.ErrNotExist) {
			files = append(files, anchor)
		} else if _, err := os.Stat(log + ".tree"); err == nil {
			// else there is no log either, which is said better elsewhere
			errs = append(errs, fmt.Errorf("the anchor %s that the configuration names is not "+
				"there, and the log is: it was taken away, or never written\n"+
				"hint: Gatekit makes it at its start: put it back, or start Gatekit again to "+
				"begin another; to verify without it, name the log: gatekit audit verify %s",
				shown(anchor), shown(log)))
		}
	}
	for _, file := range files {
		some, torn, err := checkpointsIn(file, key)
		if err != nil {
			errs = append(errs, err)
		}
		if all = append(all, some...); torn > 0 {
			passed = append(passed, fmt.Sprintf("%s in %s torn: held against the others there",
				counted(torn, "checkpoint"), shown(file)))
		}
	}
	return all, passed, errors.Join(errs...)
}

func checkpointsIn(file string, key note.Verifier) (all []*audit.Checkpoint, torn int, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, fmt.Errorf("read checkpoints: %w", err)
	}
	if key == nil {
		return nil, 0, fmt.Errorf("there is no key to verify %s with: name it with --key",
			shown(file))
	}
	if all, torn, err = audit.OpenCheckpoints(b, key); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", shown(file), err)
	}
	return all, torn, nil
}

// maxRecovered is how many spans of records without a checkpoint are listed.
const maxRecovered = 20

func sayVerified(w io.Writer, file string, key note.Verifier, done *audit.VerificationResult) {
	if done.Last == 0 {
		fmt.Fprintf(w, "%s holds no records yet\n", shown(file))
		return
	}
	fmt.Fprintf(w, "%s: records %d to %d are as they were written\n", shown(file), done.First,
		done.Last)
	fmt.Fprintf(w, "  checkpoint of %s, signed with %s+%08x\n", counted(int(done.Checkpoint.Size),
		"record"), printable(key.Name()), key.KeyHash())
	if after := int(done.Last) - int(done.Checkpoint.Size); after > 0 {
		fmt.Fprintf(w, "  %s after it, bound by the chain alone\n", counted(after, "record"))
	}
	if done.First > 1 {
		fmt.Fprintf(w, "  records 1 to %d were removed when their time was over; their hashes "+
			"are there\n", done.First-1)
	}
	for i, span := range done.Recovered {
		if i == maxRecovered {
			fmt.Fprintf(w, "  and %d more times; look for action \"recovered\"\n",
				len(done.Recovered)-i)
			break
		}
		fmt.Fprintf(w, "  records %d to %d had no checkpoint when Gatekit was started after "+
			"them: what was done to them before is not known\n", span.From, span.Through)
	}
	if done.CheckpointsMatched > 0 {
		fmt.Fprintf(w, "  %s from elsewhere: they hold\n", counted(done.CheckpointsMatched,
			"checkpoint"))
	}
}

func (p *program) auditProve() *cobra.Command {
	var config, key string
	c := &cobra.Command{
		Use:   "prove SEQ [FILE]",
		Short: "Prove to others that a record is in the audit log",
		Long: `Prove prints a proof that record SEQ is in the log: the record itself, and the hashes that lead from it to a signed checkpoint. Who has it needs neither the log nor us, but the public
key ("gatekit audit key"), and sees no other record: gatekit audit verify-proof, or any tool that knows C2SP's tlog-proof.`,
		Example: "  gatekit audit prove 41 > record-41.tlog-proof",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return errors.New("prove takes the number of a record, and at most one file")
			}
			if _, err := strconv.ParseUint(args[0], 10, 63); err != nil {
				return fmt.Errorf("prove takes the number of a record, seq in the log, and not %q",
					args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file, _, err := auditLog(config, args[1:])
			if err != nil {
				return report(cmd, err)
			}
			if key == "" {
				key = audit.PublicKeyFile(file)
			}
			k, err := audit.ReadPublicKey(key)
			if err != nil {
				return err
			}
			seq, _ := strconv.ParseUint(args[0], 10, 63) // Args took no other
			proof, err := audit.Prove(file, seq, k)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(proof.Text())
			return err
		},
	}
	configFlag(c, &config)
	c.Flags().StringVar(&key,
		"key", "", "public `key` that signed the checkpoints, or the file with it (default: the "+
			"one beside the log)")
	return c
}

func (p *program) auditVerifyProof() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use:   "verify-proof --key KEY [FILE]",
		Short: "Say whether a proof of a record holds",
		Long: `Verify-proof reads what gatekit audit prove has printed, from FILE or stdin. If the record is in the log whose checkpoints KEY signs, it prints the record, byte for byte; on a terminal, what is not
printable is an escape. It needs nothing else: no log, no configuration, no network.`,
		Example: "  gatekit audit verify-proof --key gatekit.pub record-41.tlog-proof",
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
			text, err := readProof(cmd.InOrStdin(), args)
			if err != nil {
				return err
			}
			proof, err := audit.ParseProof(text)
			if err != nil {
				return err
			}
			c, err := proof.Verify(k)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"record %d of the log %s, in the checkpoint of %s that %s+%08x signed\n",
				proof.Index+1, printable(c.Origin), counted(int(c.Size), "record"),
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
	c.Flags().StringVar(&key,
		"key", "", "public `key` that signs the log's checkpoints, or the file with it")
	return c
}

// maxProof bounds a proof: a record is at most a few messages long.
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
		Long: `Key prints the public key that goes with the signatures of the log's checkpoints. Keep it where who can write the log cannot write, and give it to who is to verify the log or a proof of a
record. The private key is beside the log, in FILE.key, or where key in [audit] says.`,
		Example: "  gatekit audit key > gatekit.pub",
		Args:    atMostOne("key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, _, err := auditLog(config, args)
			if err != nil {
				return report(cmd, err)
			}
			b, err := os.ReadFile(audit.PublicKeyFile(file))
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w\nhint: it is made when the log begins: start Gatekit once",
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
		Short: "Print what an argument's text is in the audit log",
		Long: `Records of requests have values: a hash of each text in the arguments (the first 16 of up to 4 KiB), made with a key that is the log's own, beside it in FILE.key. So it can be found
who has used a certain text, and not be read, or tried, what the texts were. TEXT "-" is a line of stdin, which leaves no trace in the history of a shell.`,
		Example: "  grep $(gatekit audit hash /srv/data/report.txt) audit/*.jsonl",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return errors.New("hash takes a text, and at most one file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var file string
			if len(args) == 2 {
				file = args[1]
			} else {
				c, err := load(config)
				if err != nil {
					return report(cmd, err)
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
		"key", "", "`file` of the log's private key (default: the one beside FILE, or key in "+
			"[audit])")
	return c
}

// atMostOne is the Args of a command that takes a file, or none.
func atMostOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s takes one file", name)
		}
		return nil
	}
}
