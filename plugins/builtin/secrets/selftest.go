package secrets

import (
	"slices"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// samples are secrets that belong to nobody. They are written in parts, so that scanners of source
// code do not report them.
var samples = []struct{ rule, description, secret string }{
	{"aws-access-token", "an AWS access key", "AKIA" + "Q7Z2XN4VLHPK3M6T"},
	{"github-pat", "a GitHub token", "ghp" + "_x7Kq2Lw9Rt4Zp8Vb3Nm6Yc1Hd5Jf0SgAuE2i"},
	{"private-key", "a private key", "-----BEGIN " + "PRIVATE KEY-----\\n" +
		"MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\\n-----END " + "PRIVATE KEY-----"},
}

// selfTest returns a message with a secret in a tool's arguments, or in its result where requests
// are not searched. It returns nil when the configuration is invalid or disables the rules of all
// samples.
func selfTest(b []byte) *sdk.SelfTest {
	c, err := parseConfig(b)
	if err != nil {
		return nil
	}
	for _, sample := range samples {
		if !c.isEnabled(sample.rule, true) {
			continue
		}
		m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"canary","arguments":{"note":"`+
			sample.secret+`"}}`))
		m.Direction = mcp.ToServer
		description := sample.description + " in a tool's arguments"
		if !slices.Contains(c.Directions, mcp.ToServer.String()) {
			request := m
			m = mcp.NewResponse("1", []byte(`{"content":[{"type":"text","text":"`+sample.secret+
				`"}]}`))
			m.Direction, m.Method, m.Request = mcp.ToClient, "tools/call", request
			description = sample.description + " in a tool's result"
		}
		m.Server, m.Name = "canary", "canary"
		action := map[string]pipeline.Action{"redact": pipeline.Modify, "block": pipeline.Deny,
			"audit": pipeline.Allow}[c.Action]
		return &sdk.SelfTest{Description: description, Message: m, Action: action}
	}
	return nil
}
