package sandbox

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// The profile of macOS is written in the language of Seatbelt, of which Apple documents little. It
// was compared with the profiles of Chromium, Codex, Gemini CLI and sandbox-runtime, and was never
// run. Where several rules apply to an operation, the last one holds.

// seatbeltBase allows what every program needs. The names of services are few on purpose: through
// launch services, a program could be started outside of the sandbox, and through the security
// server, keychains could be read.
const seatbeltBase = `(version 1)
(deny default)

(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow mach-host*)
(allow ipc-posix-sem)
(allow iokit-open (iokit-registry-entry-class "RootDomainUserClient"))
(allow mach-lookup
  (global-name "com.apple.PowerManagement.control")
  (global-name "com.apple.bsd.dirhelper")
  (global-name "com.apple.logd")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership"))
(allow sysctl-read
  (sysctl-name-prefix "hw.")
  (sysctl-name-prefix "kern.os")
  (sysctl-name-prefix "kern.proc.pgrp.")
  (sysctl-name-prefix "kern.proc.pid.")
  (sysctl-name-prefix "machdep.cpu.")
  (sysctl-name "kern.argmax")
  (sysctl-name "kern.bootargs")
  (sysctl-name "kern.hostname")
  (sysctl-name "kern.maxfiles")
  (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.maxproc")
  (sysctl-name "kern.ngroups")
  (sysctl-name "kern.secure_kernel")
  (sysctl-name "kern.tcsm_available")
  (sysctl-name "kern.tcsm_enable")
  (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version")
  (sysctl-name "machdep.ptrauth_enabled")
  (sysctl-name "sysctl.proc_cputype")
  (sysctl-name "vm.loadavg"))
(allow sysctl-write (sysctl-name "kern.grade_cputype") (sysctl-name "kern.tcsm_enable"))
(allow file-read-metadata)
(allow file-read* (literal "/"))
`

// seatbeltTerminals allows programs to make terminals, for Guard.
const seatbeltTerminals = `(allow ipc-posix-shm)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+"))
`

// seatbeltNetwork allows connections, names of hosts and the check of certificates.
const seatbeltNetwork = `(allow network*)
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.networkd")
  (global-name "com.apple.ocspd")
  (global-name "com.apple.trustd.agent"))
(allow sysctl-read (sysctl-name-prefix "net.routetable."))
`

// seatbeltProfile returns the profile for sandbox-exec that holds the grants.
func seatbeltProfile(g grants) string {
	var b strings.Builder
	b.WriteString(seatbeltBase)
	if !g.strict {
		b.WriteString(seatbeltTerminals)
	}
	var written []string
	for _, t := range g.trees {
		if t.access&write != 0 {
			written = append(written, t.path)
		}
	}
	switch {
	case !g.noNetwork:
		b.WriteString(seatbeltNetwork)
	case g.listen:
		b.WriteString("(allow system-socket (socket-domain AF_UNIX))\n")
		for _, operation := range []string{"network-bind", "network-inbound"} {
			rule(&b, "allow", operation, written, "local unix-socket")
		}
	}
	inSecret := func(t grant) bool {
		return t.named && slices.ContainsFunc(g.secrets, func(secret string) bool {
			return isWithin(t.path, secret)
		})
	}
	grantTrees(&b, g.trees, func(t grant) bool { return !inSecret(t) })
	rule(&b, "deny", "file-read-data file-write* process-exec file-map-executable", g.secrets, "")
	grantTrees(&b, g.trees, inSecret)
	rule(&b, "deny", "file-read-data file-write* process-exec file-map-executable", g.hidden, "")
	rule(&b, "allow", "file-read* process-exec file-map-executable", g.readable, "")
	rule(&b, "deny", "file-write*", g.fixed, "")
	// A folder that is renamed would take its files out of these rules.
	if parents := parentsWithin(slices.Concat(g.secrets, g.hidden, g.fixed),
		written); len(parents) > 0 {
		b.WriteString("(deny file-write-unlink")
		for _, p := range parents {
			b.WriteString("\n  (literal " + seatbeltQuote(p) + ")")
		}
		b.WriteString(")\n")
	}
	return b.String()
}

// grantTrees writes the rules for the trees that a function chooses. What can be written can be
// executed only if a tree grants both.
func grantTrees(b *strings.Builder, trees []grant, isChosen func(grant) bool) {
	chosen := func(wanted func(access) bool) (paths []string) {
		for _, t := range trees {
			if isChosen(t) && wanted(t.access) {
				paths = append(paths, t.path)
			}
		}
		return paths
	}
	rule(b, "allow", "file-read*", chosen(func(a access) bool { return a&read != 0 }), "")
	rule(b, "allow", "process-exec file-map-executable",
		chosen(func(a access) bool { return a&execute != 0 }), "")
	rule(b, "allow", "file-write* file-ioctl",
		chosen(func(a access) bool { return a&write != 0 }), "")
	rule(b, "deny", "process-exec file-map-executable",
		chosen(func(a access) bool { return a&write != 0 && a&execute == 0 }), "")
	rule(b, "allow", "process-exec file-map-executable",
		chosen(func(a access) bool { return a&write != 0 && a&execute != 0 }), "")
}

// rule writes a rule for files and for everything in folders. The parameter within surrounds each
// path, as in (local unix-socket (subpath "/x")); it may be empty.
func rule(b *strings.Builder, verdict, operations string, paths []string, within string) {
	if len(paths) == 0 {
		return
	}
	b.WriteString("(" + verdict + " " + operations)
	for _, p := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		filter := "(subpath " + seatbeltQuote(p) + ")"
		if within != "" {
			filter = "(" + within + " " + filter + ")"
		}
		b.WriteString("\n  " + filter)
	}
	b.WriteString(")\n")
}

// parentsWithin returns the folders of the paths, up to the folders that may be written.
func parentsWithin(paths, written []string) (parents []string) {
	for _, p := range paths {
		for folder := p; folder != filepath.Dir(folder); {
			folder = filepath.Dir(folder)
			if slices.ContainsFunc(written, func(w string) bool { return isWithin(folder, w) }) {
				parents = append(parents, folder)
			}
		}
	}
	slices.SortFunc(parents, cmp.Compare[string])
	return slices.Compact(parents)
}

// seatbeltQuote returns a string of the profile.
func seatbeltQuote(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
