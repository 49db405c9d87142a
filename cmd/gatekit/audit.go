package main

import (
	"github.com/spf13/cobra"
)

func (p *program) audit() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Read the audit log, verify it, and prove what is in it",
		Long: `Every decision is a record of the audit log before its message moves. Commands that take FILE read that log; without it they read the one that
gatekit.toml names in [audit].`,
	}
	c.AddCommand(p.auditShow(), p.auditStats(), p.auditExport(), p.auditVerify(), p.auditProve(),
		p.auditVerifyProof(), p.auditKey(), p.auditHash())
	return c
}
