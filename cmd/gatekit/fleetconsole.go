package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"gatekit/policies"
	"gatekit/transport"
	"gatekit/transport/console"
)

// fleetConsole serves a console of the logs in the folders of a fleet.
type fleetConsole struct {
	dir   string
	addr  string
	print bool // print the URL instead of opening a browser
	json  bool
	// policies loads the policies that explain records
	policies func(context.Context) (*policies.Stage, error)
}

// fleetPages returns the pages of the console, in the order of its navigation.
func fleetPages(f *consoleFleet) []console.Page {
	return []console.Page{
		console.FleetTrafficPage(&consoleFleetTraffic{f}),
		console.FleetRecordPage(f),
		console.FleetAuditPage(&consoleFleetAudit{fleet: f}),
		console.StatsPage(&consoleStats{source: f.stats}),
	}
}

// run serves the console until the context of the command ends.
func (o *fleetConsole) run(p *program, cmd *cobra.Command) error {
	f := newConsoleFleet(o.dir, o.policies)
	if _, err := f.list(); err != nil { // a folder that is wrong is better reported here
		return err
	}
	pages, err := console.New(console.Options{Pages: fleetPages(f), Log: p.log,
		Command: "gatekit console --fleet DIR"})
	if err != nil {
		return err
	}
	server, err := transport.ListenAdmin(transport.AdminServerOptions{Addr: o.addr,
		Console: pages, Log: p.log, Setting: "--addr"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	defer context.AfterFunc(ctx, pages.Close)()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	address := fmt.Sprintf("http://%s%s", server.Addr(), console.Prefix)
	url := consoleURL{address: address, url: address + "#" + pages.NewCode(console.ScopeRead),
		scope: string(console.ScopeRead), end: "; Ctrl-C ends it"}
	if err := url.show(cmd, o.print, o.json); err != nil {
		cancel()
		<-ended
		return err
	}
	return <-ended
}
