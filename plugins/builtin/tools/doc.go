// Package tools is the built-in plugin that decides which tools, prompts and resources of a server
// are visible to clients, and under which names.
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
// The options tools, prompts and resources are objects with at least one of the options below. A
// kind of item without an object stays as the server has it. At least one of the three must be set.
//
//	allow          patterns: only matching items can be seen and used; [] allows none; default all
//	hide           patterns: matching items cannot be seen or used, even if allow matches
//	change         objects: how single items are shown to clients
//	  name         the server's own name of a tool or prompt
//	  uri          instead of name, for resources: the URI or URI template
//	  rename       the name that clients see and use; for resources only the displayed name
//	  title        replaces the server's title, also in the annotations of a tool
//	  description  replaces the server's description
//
// In a pattern, * stands for any characters or none, including slashes and dots. All other
// characters stand for themselves. Upper and lower case differ. The whole name must match. Patterns
// and names are the server's own names: without Gatekit's prefix, and before a rename. The option
// servers of [[plugin]] selects the servers.
//
// # What it promises
//
//   - Lists and use agree: a hidden item is missing in lists, and a request to call, get, complete,
//     read, subscribe to or unsubscribe from it is denied. Updates of a hidden resource are not
//     forwarded. If items of a kind can be hidden, an item of that kind without a name is hidden,
//     and a request without a name is denied.
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
//   - How a server reads a URI. The plugin compares a URI with the patterns as it is written, in
//     the canonical spelling that policies use, and with its percent escapes decoded once. It hides
//     a URI if one of these spellings matches hide. It allows a URI only if all of them match
//     allow. So file:///logs/* does not allow file:///logs/../etc/passwd. The canonical spelling
//     has no default port, final dot or user of a host. The spellings do not cover symbolic links,
//     several host names of one machine, and servers that decode twice.
//
// # Figures
//
// Measured with go test -bench Inspect on two cores of an AMD EPYC: a call takes 0.1 µs whatever
// its size. Lists of tools are filtered at 540 to 600 MB/s (64 KiB or more), and at 360 MB/s (1
// KiB).
//
// # Why change does not hide other items
//
// The tool_manager of the first Gatekit, which was written in Python, hid each tool that its
// configuration did not name. In this plugin, renaming a tool hides nothing. Use allow for an allow
// list; it also takes patterns.
//
// # Why patterns must not contain URI templates
//
// A template is only a hint: clients read the resources made from it by their URI. A pattern that
// named the template would hide the hint, but not the resources. Braces are therefore rejected in
// patterns. The pattern file:///logs/* matches the template file:///logs/{day} and its resources.
//
// # Where to read
//
// config.go parses the configuration, pattern.go has the filters, and tools.go has the plugin.
package tools
