package plugins

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// watchEvery is how often the memory of a process is looked at: between two looks it can take what
// can be had in that time.
const watchEvery = 250 * time.Millisecond

// watch kills the process when it holds more than most bytes of memory. A limit of the system's
// (RLIMIT_AS) would be of address space, of which some runtimes take hundreds of times what they
// use.
func (g *generation) watch(most int64) {
	if most <= 0 {
		return
	}
	file, page := fmt.Sprintf("/proc/%d/statm", g.runner.pid()), int64(os.Getpagesize())
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-g.gone:
			return
		case <-tick.C:
		}
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it is ending
		}
		if f := bytes.Fields(b); len(f) > 1 {
			if pages, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil &&
				pages*page > most {
				g.runner.command.Log.Error("killed: it holds too much memory", "bytes", pages*page,
					"limit", most)
				g.kill()
			}
		}
	}
}
