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
names.`,
	}
	c.AddCommand(p.auditShow(), p.auditStats(), p.auditExport(), p.auditVerify(), p.auditProve(),
		p.auditVerifyProof(), p.auditKey(), p.auditHash())
	return c
}
