package pins

import (
	"testing"

	"golang.org/x/sys/unix"

	"gatekit/test/harness"
)

// TestConfinedServerOfAnInstalledPackage has a server in a sandbox. With the level strict, npx
// cannot start it, because it needs the network. Once its package is installed, it starts, and can
// read the package but not write to it. The same holds for the level guard.
func TestConfinedServerOfAnInstalledPackage(t *testing.T) {
	if _, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION); err != 0 {
		t.Skipf("this kernel has no Landlock: %v", err)
	}
	for _, level := range []string{"strict", "guard"} {
		t.Run(level, func(t *testing.T) {
			i := newInstallTest(t, "@acme/box@1.0.0", "[server.box.sandbox]\nlevel = \""+level+
				"\"\n")
			if level == "strict" {
				g := harness.StartHTTPIn(t, i.dir, i.config)
				wantNotStarted(t, g, "the package @acme/box is not installed, and npx needs the "+
					"network")
				g.Stop()
			}
			i.gatekit(true, "without running scripts", "pin", "--yes")
			g, c := i.start()
			i.wantWhere(c, `{}`, i.program())
			i.wantWhere(c, `{"write":true}`, "EACCES")
			i.gatekit(true, "unchanged", "pin", "verify")
			g.WantRecords("to_server request tools/call box where pass")
		})
	}
}
