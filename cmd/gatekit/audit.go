package main

import (
	"github.com/spf13/cobra"
)

func (p *program) audit() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Read, verify and export the audit log",
		Long: `Gatekit writes a record to the audit log before it forwards or denies a message. The
commands take FILE, an audit log; without it, they read the log that [audit] in the configuration
names. --config and FILE cannot be used together. Without a configuration, they read the logs of
gatekit wrap, in gatekit/audit in your state folder. FILE may be a folder or a pattern such as
'audit/*.jsonl', and show, stats, export and verify take several files. Show and export merge the
logs by time. With [cluster], each replica has its own log: --fleet DIR reads the logs of all of
them, one in each folder below DIR.`,
	}
	c.AddCommand(p.auditShow(), p.auditStats(), p.auditExport(), p.auditVerify(), p.auditProve(),
		p.auditVerifyProof(), p.auditVerifyReceipt(), p.auditKey(), p.auditHash())
	return group(c)
}
