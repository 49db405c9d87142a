package pii

import (
	"slices"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/sdk"
)

// samples are texts with personal data of each kind. If the kind is enabled, its sample is found
// whatever the other options are. The sample of a national id is the specimen of an enabled id.
var samples = [numKinds]struct{ description, text string }{
	kindEmail:      {"an e-mail address", "canary@gatekit-canary.com"},
	kindCard:       {"a card number", "4111 1111 1111 1111"},
	kindIBAN:       {"an IBAN", "GB82 WEST 1234 5698 7654 32"},
	kindPhone:      {"a phone number", "+44 20 7946 0958"},
	kindIP:         {"an IP address", "host 81.2.69.142"},
	kindNationalID: {"a national id", ""},
}

// selfTest returns a message with personal data that the configuration's stage must find, or nil
// when the configuration is invalid or allows all samples.
func selfTest(config []byte) *sdk.SelfTest {
	s, err := parseConfig(config)
	if err != nil {
		return nil
	}
	for k, sample := range samples {
		if kind(k) == kindNationalID {
			for _, id := range idFormats {
				if s.finder.enabledIDs[id.code] {
					sample.text = id.specimen
				}
			}
		}
		if !s.treatments[k].enabled || sample.text == "" ||
			s.finder.allow[canonical(sample.text)] {
			continue
		}
		text := string(mcp.Quote(sample.text))
		c := &sdk.SelfTest{Description: sample.description + " in a tool's arguments",
			Action: map[string]pipeline.Action{"block": pipeline.Deny, "redact": pipeline.Modify,
				"audit": pipeline.Allow}[s.treatments[k].action]}
		c.Message = mcp.NewRequest("1", "tools/call",
			[]byte(`{"name":"canary","arguments":{"text":`+text+`}}`))
		c.Message.Direction = mcp.ToServer
		if len(s.directions) > 0 && !slices.Contains(s.directions, mcp.ToServer) {
			c.Description = sample.description + " in a tool's result"
			c.Message = mcp.NewResponse("1",
				[]byte(`{"content":[{"type":"text","text":`+text+`}]}`))
			c.Message.Method, c.Message.Direction = "tools/call", mcp.ToClient
		}
		c.Message.Server, c.Message.Name = "canary", "canary"
		return c
	}
	return nil
}
