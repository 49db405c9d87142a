package plugins

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// memoryInterval is how often the memory of a process is measured. Between two measurements, the
// process can exceed its limit.
const memoryInterval = 250 * time.Millisecond

// watchMemory kills the process when it uses more than limit bytes of memory. It returns when the
// process has ended. The system's own limit (RLIMIT_AS) counts address space. Some runtimes reserve
// hundreds of times the memory that they use, so RLIMIT_AS is not suitable.
func (p *pluginProcess) watchMemory(limit int64) {
	if limit <= 0 {
		return
	}
	file := fmt.Sprintf("/proc/%d/statm", p.runner.pid())
	pageSize := int64(os.Getpagesize())
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.done():
			return
		case <-tick.C:
		}
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the process is ending
		}
		fields := bytes.Fields(b)
		if len(fields) < 2 {
			continue
		}
		pages, err := strconv.ParseInt(string(fields[1]), 10, 64) // resident pages
		if err == nil && pages*pageSize > limit {
			p.runner.command.Log.Error("plugin killed: memory limit exceeded",
				"bytes", pages*pageSize, "limit", limit)
			p.kill()
		}
	}
}
