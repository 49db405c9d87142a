package main

import (
	"gatekit/core/config"
	"gatekit/transport/console"
)

// consolePages returns the pages of the console, in the order of its navigation.
func consolePages(g *gateway, c *config.Config) []console.Page {
	activity := &activityReader{file: c.Audit.File, committed: g.committed}
	return []console.Page{
		console.TrafficPage(newConsoleTraffic(c.Audit.File, g.committed)),
		console.RecordPage(newConsoleRecords(g, c.Audit.File)),
		console.WaitingPage(&consoleWaiting{g}),
		console.ServersPage(&consoleServers{g, activity}),
		console.ToolsPage(&consoleTools{g, activity}),
		console.PinsPage(&consolePins{gateway: g}),
		console.PoliciesPage(newConsolePolicies(g, activity)),
		console.AuditPage(newConsoleAudit(g, c)),
		console.StatsPage(&consoleStats{source: statsOf(c.Audit.File, g.committed)}),
	}
}

// committed returns the seq of the last record that the console may read.
func (g *gateway) committed() uint64 { return g.recording.audit.Committed() }
