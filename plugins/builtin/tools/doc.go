// Package tools is the built-in plugin that decides which tools, prompts and resources of a server
// clients can see and use, and under which names.
//
//	[[plugin]]
//	name = "github-tools"
//	use = "tools"
//	servers = ["github"]
//	config.tools.allow = ["get_*", "list_*", "create_issue"]
//	config.tools.hide = ["get_secret*"]
//	config.tools.change = [
//	  { name = "create_issue", rename = "open_issue", title = "Open an issue" },
//	]
//
// # Options
//
// Each of tools, prompts and resources is an object with at least one of these options. Everything
// else stays as the server has it. A configuration without any of them is rejected.
//
//	allow          patterns: only matching items can be seen and used; [] is none; default: all
//	hide           patterns: matching items cannot be seen or used, even if allow matches
//	change         objects: how single items are shown to clients
//	  name         the server's own name; for resources uri: the URI or URI template
//	  rename       the name that clients see and use; for resources only the displayed name
//	  title        replaces the server's title, also in the annotations of a tool
//	  description  replaces the server's description
//
// In a pattern * stands for any characters or none, including slashes and dots. All other
// characters stand for themselves, upper and lower case differ, and the whole name must match.
// Patterns and names are the server's own names: without Gatekit's prefix, and before a rename. The
// option servers of [[plugin]] selects the servers.
//
// # What it promises
//
//   - Lists and use agree: a hidden item is missing in lists, and a request to call, get, complete,
//     read, subscribe to or unsubscribe from it is denied. Updates of a hidden resource are not
//     forwarded. If anything of a kind can be hidden, items without a name and requests without a
//     name are hidden and denied.
//   - A renamed item can be used by its new name only. No item takes the name of another: see
//     [gatekit/core/pipeline.Renames].
//   - In a list, only items named in change are edited; every other byte is kept.
//   - A configuration is rejected if two items would have the same name, or if its options
//     contradict each other.
//
// # Threats
//
// The plugin protects against unwanted tools: a tool that a server adds in its next release, such
// as delete_everything, is not in allow. It protects against descriptions that manipulate a model
// (tool poisoning), because change can replace them. It also protects against names that imitate
// those of other servers (shadowing), and against more privileges than a task needs.
//
// # What it does not see
//
//   - Names that hide does not foresee: Delete_file, or delete_file in Cyrillic letters, does not
//     match delete_*. Use allow instead.
//   - Titles, schemas and annotations of items that are not in change. Pinning detects a
//     description that changes after its approval.
//   - What tools do. An allowed tool may do what a hidden one does, or return what a hidden
//     resource holds. Links to hidden resources stay in results, but cannot be read.
//   - Completions for the arguments of a visible template.
//   - How a server reads a URI. A URI is hidden if it, or its normal form, matches hide, and
//     allowed only if both match allow: file:///logs/../etc/passwd is not allowed by
//     file:///logs/*. The normal form has percent-encoding decoded once, dot segments resolved, and
//     scheme and host in lower case. It does not cover symbolic links, several host names of one
//     machine, and servers that decode twice.
//
// # Figures
//
// Measured with go test -bench Inspect on two cores of an AMD EPYC: a call takes 0.1 µs whatever
// its size; a list of tools is filtered at 540 to 600 MB/s from 64 KiB on, and at 360 MB/s at 1
// KiB.
//
// # Why change does not hide other items
//
// The Python Gatekit's tool_manager hid each tool that its configuration did not name. Here,
// renaming a tool hides nothing. Use allow for an allow list; it also takes patterns.
//
// # Why patterns for templates have stars
//
// A template is only a hint: clients read the resources made from it by their URI. A pattern that
// named the template would hide the hint, but not the resources. Braces are therefore rejected in
// patterns. The pattern file:///logs/* matches the template file:///logs/{day} and its resources.
//
// # Where to read
//
// config.go parses the configuration, pattern.go has the filters, uri.go normalizes URIs, and
// tools.go has the plugin.
package tools
