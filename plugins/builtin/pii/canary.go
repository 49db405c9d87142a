package pii

import (
	"slices"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// planted are texts of each kind that are found whatever else the options say, as long as the kind
// is on.
var planted = [kinds]struct{ what, text string }{
	email:      {"an e-mail address", "canary@gatekit-canary.com"},
	card:       {"a card number", "4111 1111 1111 1111"},
	iban:       {"an IBAN", "GB82 WEST 1234 5698 7654 32"},
	phone:      {"a phone number", "+44 20 7946 0958"},
	ip:         {"an IP address", "host 81.2.69.142"},
	nationalID: {"a national id", ""}, // which one, the options say
}

// canary is a message that a stage of this configuration does something about.
func canary(config []byte) *sdk.SelfTest {
	s, err := parse(config)
	if err != nil {
		return nil
	}
	for k, p := range planted {
		if kind(k) == nationalID {
			for _, id := range nationals {
				if s.find.nationals[id.code] {
					p.text = id.specimen
				}
			}
		}
		if !s.do[k].on || p.text == "" || s.find.allow[compact(p.text)] {
			continue
		}
		c := &sdk.SelfTest{Description: p.what + " in a tool's arguments",
			Action: map[string]pipeline.Action{"block": pipeline.Deny, "redact": pipeline.Modify,
				"audit": pipeline.Allow}[s.do[k].action]}
		c.Message = mcp.NewRequest("1",
			"tools/call", append(append([]byte(`{"name":"canary","arguments":{"text":`),
				mcp.Quote(p.text)...), "}}"...))
		c.Message.To = mcp.ToServer
		if len(s.to) > 0 && !slices.Contains(s.to, mcp.ToServer) {
			c.Description = p.what + " in a tool's result"
			c.Message = mcp.NewResponse("1",
				append(append([]byte(`{"content":[{"type":"text","text":`), mcp.Quote(p.text)...),
					"}]}"...))
			c.Message.Method, c.Message.To = "tools/call", mcp.ToClient
		}
		c.Message.Server, c.Message.Name = "canary", "canary"
		return c
	}
	return nil
}
