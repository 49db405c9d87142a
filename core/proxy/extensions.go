package proxy

import (
	"bytes"
	"strings"

	"gatekit/core/mcp"
)

// officialExtensions is the prefix of the names of MCP's own extensions.
const officialExtensions = "io.modelcontextprotocol/"

// servedExtensions are the extensions that Gatekit supports completely. All methods of these
// extensions are in the table of core/mcp.
var servedExtensions = map[string]bool{
	mcp.SkillsExtension:          true,
	officialExtensions + "tasks": true,
	officialExtensions + "ui":    true, // MCP Apps: no methods between client and server
}

// canServe reports whether clients can use an extension that a server declares. Gatekit does not
// know the methods of extensions that are not in servedExtensions. The configuration must allow
// these methods for the server. For the extension officialExtensions + "x", the configuration must
// allow the methods "x/*". For an extension of a vendor, any allowed method is enough.
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
		return len(edits) <= maxCapabilities // results with more members are refused
	})
	if edits == nil {
		return m, nil
	}
	return m.Edit(edits...)
}

// mergeExtensions merges the extensions that servers declare. It leaves out an extension for which
// servers declare different settings. The settings of the skills extension are merged instead,
// because each server has its own skills.
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

// mergeSkillSettings merges the settings of the servers that have skills. directoryRead is true if
// at least one server serves directories. Requests to servers without directories are refused.
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
