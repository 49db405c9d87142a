package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"gatekit/audit"
)

func (p *program) auditVerifyReceipt() *cobra.Command {
	var key, arguments, server, tool, log string
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify-receipt --key KEY [--arguments FILE] [RESULT]",
		Short: "Verify the receipt in the result of a tool",
		Long: `Verify-receipt reads the result of a tools/call as the client got it, from RESULT
or stdin. RESULT holds the result, or the whole JSON-RPC response. If [audit] receipts is on,
the result has a receipt in its _meta: it says which tool of which server was called, which
decision Gatekit took, and which record of the audit log has the decision.

The receipt must be signed with KEY, for these arguments and for this result. FILE holds the
arguments as the client sent them; without --arguments, the call had none. Use --server and
--tool to require the names in the receipt: other tools may have got equal arguments. Use --log
if several logs share KEY.

Verify-receipt needs no log, no configuration and no network. To prove that the record is in the
log, use gatekit audit prove on the host of the log. If the receipt is not valid, verify-receipt
exits with 1.`,
		Example: `  gatekit audit verify-receipt --key kept.pub --arguments call.json result.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				return errors.New("verify-receipt needs --key, the public key of the log")
			}
			return atMostOne("verify-receipt")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			receipt, err := verifyReceipt(cmd.InOrStdin(), args, key, arguments)
			if err == nil {
				err = requireMembers([]requiredMember{{"server", receipt.Server, server},
					{"tool", receipt.Tool, tool}, {"log", receipt.Log, log}})
			}
			if asJSON {
				return errors.Join(printReceiptJSON(cmd.OutOrStdout(), receipt, err), err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "valid receipt of %s\n"+
				"  tool:      %s of server %s\n  decision:  %s, record %d of the log %s\n",
				receipt.Time, printable(receipt.Tool), printable(receipt.Server),
				printable(receipt.Decision), receipt.Record, printable(receipt.Log))
			return err
		},
	}
	c.Flags().StringVar(&key,
		"key", "", "public `key` that signed the receipt, or the file with it")
	c.Flags().StringVar(&arguments, "arguments", "",
		"`file` with the arguments of the call (default: no arguments)")
	c.Flags().StringVar(&server, "server", "", "`name` of the server that the receipt must have")
	c.Flags().StringVar(&tool, "tool", "",
		"the server's `name` of the tool that the receipt must have")
	c.Flags().StringVar(&log, "log", "",
		"`origin` of the log that the receipt must have: the first line of its checkpoints")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// requiredMember is a member of a receipt, with the value that the user wants; "" for any value.
type requiredMember struct{ name, value, want string }

// requireMembers returns an error if a member of the receipt does not have the required value.
func requireMembers(members []requiredMember) error {
	for _, m := range members {
		if m.want != "" && m.value != m.want {
			return fmt.Errorf("the receipt is for %s %q, not %q", m.name, m.value, m.want)
		}
	}
	return nil
}

// maxReceiptFile limits the size of a result and of its arguments.
const maxReceiptFile = 64 << 20

// verifyReceipt reads the files and verifies the receipt.
func verifyReceipt(stdin io.Reader, args []string, key, argumentsFile string) (*audit.Receipt,
	error) {
	k, err := audit.ReadPublicKey(key)
	if err != nil {
		return nil, err
	}
	var arguments []byte
	if argumentsFile != "" {
		if arguments, err = readReceiptFile(stdin, argumentsFile); err != nil {
			return nil, fmt.Errorf("read the arguments: %w", err)
		}
	}
	name := "-"
	if len(args) > 0 {
		name = args[0]
	}
	result, err := readReceiptFile(stdin, name)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	return audit.VerifyReceipt(result, arguments, k)
}

func readReceiptFile(stdin io.Reader, name string) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		stdin = f
	}
	b, err := io.ReadAll(io.LimitReader(stdin, maxReceiptFile+1))
	if err == nil && len(b) > maxReceiptFile {
		err = fmt.Errorf("more than %d bytes", maxReceiptFile)
	}
	return b, err
}

// printReceiptJSON prints whether a receipt is valid. problem is nil if it is.
func printReceiptJSON(out io.Writer, r *audit.Receipt, problem error) error {
	result := struct {
		Valid   bool           `json:"valid"`
		Receipt *audit.Receipt `json:"receipt,omitempty"`
		Error   string         `json:"error,omitempty"`
	}{problem == nil, r, ""}
	if problem != nil {
		result.Receipt, result.Error = nil, problem.Error()
	}
	return json.NewEncoder(out).Encode(result)
}
