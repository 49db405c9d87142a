package pii

import (
	"slices"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// samples are texts of each kind that are found whatever else the options say, as long as the kind
// is on.
var samples = [numKinds]struct{ what, text string }{
	kindEmail:      {"an e-mail address", "canary@gatekit-canary.com"},
	kindCard:       {"a card number", "4111 1111 1111 1111"},
	kindIBAN:       {"an IBAN", "GB82 WEST 1234 5698 7654 32"},
	kindPhone:      {"a phone number", "+44 20 7946 0958"},
	kindIP:         {"an IP address", "host 81.2.69.142"},
	kindNationalID: {"a national id", ""}, // which one, the options say
}

// canary is a message that a stage of this configuration does something about.
func canary(config []byte) *sdk.SelfTest {
	s, err := parseConfig(config)
	if err != nil {
		return nil
	}
	for k, p := range samples {
		if kind(k) == kindNationalID {
			for _, id := range idFormats {
				if s.finder.enabledIDs[id.code] {
					p.text = id.specimen
				}
			}
		}
		if !s.treatments[k].enabled || p.text == "" || s.finder.allow[canonical(p.text)] {
			continue
		}
		c := &sdk.SelfTest{Description: p.what + " in a tool's arguments",
			Action: map[string]pipeline.Action{"block": pipeline.Deny, "redact": pipeline.Modify,
				"audit": pipeline.Allow}[s.treatments[k].action]}
		c.Message = mcp.NewRequest("1",
			"tools/call", append(append([]byte(`{"name":"canary","arguments":{"text":`),
				mcp.Quote(p.text)...), "}}"...))
		c.Message.Direction = mcp.ToServer
		if len(s.directions) > 0 && !slices.Contains(s.directions, mcp.ToServer) {
			c.Description = p.what + " in a tool's result"
			c.Message = mcp.NewResponse("1",
				append(append([]byte(`{"content":[{"type":"text","text":`), mcp.Quote(p.text)...),
					"}]}"...))
			c.Message.Method, c.Message.Direction = "tools/call", mcp.ToClient
		}
		c.Message.Server, c.Message.Name = "canary", "canary"
		return c
	}
	return nil
}
