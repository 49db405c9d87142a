package mcptest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// Main serves a Toolbox over stdio or HTTP. A test binary runs Main instead of its tests when
// Gatekit starts it as a server. The flags are:
//
//	-name NAME
//	-revisions 2025-11-25,2025-06-18
//	-http ADDRESS  serve HTTP instead of stdio
//	-noise LINES   first write lines to stdout that are not messages
//	-exit CODE     exit at once with this code
//	-mute          write nothing
//	-skills        also serve the skills of AddSkills
func Main() {
	f := flag.NewFlagSet("mcptest", flag.ExitOnError)
	name := f.String("name", "box", "")
	revisions := f.String("revisions", "2025-11-25,2025-06-18,2025-03-26,2024-11-05", "")
	address := f.String("http", "", "")
	noise := f.Int("noise", 0, "")
	exit := f.Int("exit", -1, "")
	mute := f.Bool("mute", false, "")
	skills := f.Bool("skills", false, "")
	f.Parse(os.Args[1:])
	if *exit >= 0 {
		fmt.Fprintln(os.Stderr, "mcptest: exiting because of -exit")
		os.Exit(*exit)
	}
	for i := range *noise {
		fmt.Printf("listening, line %d of a banner\n", i)
	}
	if *mute {
		io.Copy(io.Discard, os.Stdin)
		return
	}
	if strings.Contains(strings.Join(os.Environ(), "\n"), Canary) {
		fmt.Fprintln(os.Stderr, "mcptest: the environment has a credential of a client")
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "mcptest: %s serves\n", *name)
	s := Toolbox(*name, strings.Split(*revisions, ",")...)
	if *skills {
		AddSkills(s)
	}
	if *address != "" {
		l, err := net.Listen("tcp", *address)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintf(os.Stderr, "listening on http://%s\n", l.Addr())
		fmt.Fprintln(os.Stderr, http.Serve(l, s))
		os.Exit(1)
	}
	s.Serve(context.Background(), Lines(os.Stdin, os.Stdout), func() { os.Exit(3) })
}
