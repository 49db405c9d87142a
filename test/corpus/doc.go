// Command corpus collects texts of published MCP servers, and measures what Gatekit's built-in
// plugins and the default rules of gatekit wrap do with them. These texts are honest, so every
// hidden, changed or denied one is a candidate for a false alarm.
//
// The texts themselves are not in the repository, because they have other licences and are large.
// The recipe servers.tsv names the packages, and collect makes the texts from it:
//
//	go run ./test/corpus collect -to DIR    # install, start and list the servers
//	go run ./test/corpus judge -from DIR    # send the texts through the gatekit binary
//
// A package belongs to one half, tuning or heldout. The half comes from a hash of the package's
// maker, so that it does not depend on the text, and no maker is in both halves. Read the half
// tuning as much as you like while you improve a plugin. Do not read the half heldout: run it for
// the final figures only.
//
// The recipe unseen.tsv names further packages, of makers that are in neither half. Their half is
// heldout. Collect them into a folder of their own, and give judge the same recipe:
//
//	go run ./test/corpus collect --to DIR --recipe test/corpus/unseen.tsv
//	go run ./test/corpus judge --from DIR --recipe test/corpus/unseen.tsv --half heldout
//
// Three more commands measure pins and the sandbox with the servers of the recipe themselves:
//
//	go run ./test/corpus pins -to DIR       # reported changes of servers that have not changed
//	go run ./test/corpus releases -to DIR   # changes between releases, by class
//	go run ./test/corpus sandbox -to DIR    # answers within the sandbox and outside
//
// The servers run with placeholder credentials, in an empty home folder, without the variables of
// your environment, and without a network: in namespaces of their own if the system allows this,
// and with host name lookups that fail (test/servers/offline.cjs). All processes of a server end
// with it. npm runs no scripts of the packages.
package main
