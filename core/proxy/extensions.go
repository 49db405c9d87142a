package proxy

import (
	"bytes"
	"strings"

	"gatekit/core/mcp"
)

// officialExtensions is how the names of the extensions of the specification begin.
const officialExtensions = "io.modelcontextprotocol/"

// servedExtensions are the extensions that Gatekit carries as a whole: their methods are in the
// table of core/mcp, or they have none.
var servedExtensions = map[string]bool{
	mcp.SkillsExtension:          true,
	officialExtensions + "tasks": true,
	officialExtensions + "ui":    true, // MCP Apps: no methods between client and server
}

// canServe reports whether clients can use an extension that a server declares. Whether an
// extension that Gatekit does not know has methods cannot be told. It counts as served if the
// configuration forwards vendor methods to the server, or, for an extension of the specification,
// the methods that begin with its name.
func (set *settings) canServe(server, extension string) bool {
	if servedExtensions[extension] {
		return true
	}
	if name, official := strings.CutPrefix(extension, officialExtensions); official {
		return set.allowsVendorMethod(server, name+"/*")
	}
	conf := set.byName[server]
	return conf != nil && len(conf.Methods) > 0
}

// filterExtensions returns a server's result of initialize or server/discover without the
// extensions that clients could not use.
func (set *settings) filterExtensions(m *mcp.Message) (*mcp.Message, error) {
	const pointer = "/capabilities/extensions"
	var edits []mcp.Edit
	m.Members(pointer, func(name string, raw []byte) bool {
		if !set.canServe(m.Server, name) || !bytes.HasPrefix(raw, []byte("{")) {
			edits = append(edits, mcp.Remove(pointer+"/"+mcp.EscapePointer(name)))
		}
		return len(edits) <= maxCapabilities // results with more are refused
	})
	if edits == nil {
		return m, nil
	}
	return m.Edit(edits...)
}

// mergeExtensions merges the extensions that servers declare. An extension for which servers
// declare different settings is left out, except skills: each server has its own.
func mergeExtensions(extensions [][]byte) []byte {
	agreed := groupByName([][]byte{uniteAgreed(extensions)})
	var members []member
	for _, n := range agreed {
		if n.name != mcp.SkillsExtension {
			members = append(members, field(n.name, n.values[0]))
		}
	}
	for _, n := range groupByName(extensions) {
		if n.name == mcp.SkillsExtension {
			members = append(members, field(n.name, mergeSkillSettings(n.values)))
		}
	}
	return object(members...)
}

// mergeSkillSettings merges the settings of the servers that have skills. Directories can be read
// if one server serves them; requests to the others are refused.
func mergeSkillSettings(settings [][]byte) []byte {
	for _, raw := range settings {
		if readsDirectories(raw) {
			return []byte(`{"directoryRead":true}`)
		}
	}
	return []byte("{}")
}

// readsDirectories reports whether a server with these settings of the skills extension serves
// resources/directory/read.
func readsDirectories(settings []byte) bool {
	raw, _ := mcp.NewResponse("", settings).Get("/directoryRead")
	return string(raw) == "true"
}
