// Package tools is the built-in plugin that says which tools, prompts and resources of a server
// clients may know and use, and under which names.
//
//	[[plugin]]
//	name = "github-tools"
//	use = "tools"
//	servers = ["github"]
//	config.tools.allow = ["get_*", "list_*", "create_issue"]
//	config.tools.hide = ["get_secret*"]
//	config.tools.change = [{ name = "create_issue", rename = "open_issue", title = "Open an issue" }]
//
// # Options
//
// Each of tools, prompts and resources is an object with at least one of these. What is left out
// stays as the server has it; a plugin with nothing to do is refused.
//
//	allow    patterns  only what matches one may be known and used; [] is nothing; left out: all
//	hide     patterns  what matches one may not be known or used, whatever allow says
//	change   objects   what clients are told of single items:
//	  name             the server's own name; for resources uri: the URI or URI template
//	  rename           the name that clients know it by; for resources the name that is shown
//	  title            in place of the server's; also where it stands among the annotations of a tool
//	  description      in place of the server's
//
// In a pattern * stands for any characters or none, slashes and dots too; all else stands for
// itself, capitals matter, and the whole name must match. Patterns and names are the server's own,
// without the prefix that Gatekit puts before them, and as they were before a rename. Which servers
// it is for, [[plugin]] servers says.
//
// # What it promises
//
//   - List and use agree: what is hidden is missing in lists, and refused when it is called, got,
//     completed, read, subscribed to or unsubscribed from; of a hidden resource no update is told.
//     An item without a name, and a request that names nothing, are not let through where anything
//     of their kind is hidden.
//   - What is renamed is used by its new name only. No item shadows another: see
//     [gatekit/core/pipeline.Renames].
//   - Of a list that passes, only what change names is another; all other bytes are kept.
//   - A configuration in which two items could not be told apart, or that contradicts itself, is
//     refused.
//
// # Threats
//
// Tools that nobody asked for (a server that gains delete_everything with its next release is not
// in allow), descriptions that are written to move a model (tool poisoning: describe the tool
// yourself), names that can be taken for those of other servers (shadowing), and more privileges
// than a task needs.
//
// # What it does not see
//
//   - What hide does not foresee: a server that calls its tool Delete_file, or delete_file in
//     Cyrillic letters, is not hidden by delete_*. allow foresees it.
//   - Titles, schemas and annotations of items that change does not name. That a description stays
//     as it was approved is for pinning.
//   - What tools do. A tool that is allowed may do what a hidden one does, or hold what a hidden
//     resource holds; links to hidden resources in results stay, but cannot be read.
//   - What the arguments of a completion for a visible template suggest.
//   - How a server reads a URI. A URI counts as hidden when it, or its normal form
//     (percent-encoding decoded once, dot segments resolved, scheme and host in lower case, …), is;
//     and as allowed when both are: file:///logs/../etc/passwd is not allowed by file:///logs/*.
//     Symbolic links, host names for one machine and servers that decode twice are beyond that.
//
// # Figures
//
// On a machine of 2 cores (AMD EPYC), by go test -bench Inspect: a call 0.1 µs whatever its size; a
// list of tools 540 to 600 MB/s from 64 KiB on, 360 MB/s at 1 KiB.
//
// # Why an allow list is no consequence of change
//
// The original's tool_manager hid each tool that it was not told of. Here renaming one tool hides
// nothing: who wants an allow list writes one, and may use patterns.
//
// # Why patterns for templates have stars
//
// A template is only a hint. What a client makes of it is read by its URI, so a pattern that named
// the template would hide the hint and not the resources: braces are refused in patterns, and
// file:///logs/* is both the template file:///logs/{day} and what is made of it.
package tools
