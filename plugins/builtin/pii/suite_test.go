package pii_test

import (
	"testing"

	"gatekit/core/mcp"
	"gatekit/plugins/builtin/pii"
	"gatekit/plugins/sdk/sdktest"
)

func TestPluginContract(t *testing.T) {
	call := mcp.NewRequest("7", "tools/call", []byte(`{"name":"echo","arguments":{`+
		`"message":"bob@corp.io","card":4111111111111111,`+
		`"tel:+44 20 7946 0958":[{"iban":"GB82 WEST 1234 5698 7654 32"}]}}`))
	call.Direction, call.Session, call.Exchange = mcp.ToServer, "s", "7"
	call.Server, call.Name = "everything", "echo"
	for name, config := range map[string]string{
		"default": `{}`,
		"block":   `{"action":"block","decode":false}`,
		"mask": allLocales[:len(allLocales)-1] +
			`,"replace":"mask","key":"0123456789abcdef","email":{"action":"audit"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			sdktest.Run(t, pii.Plugin(), config, call,
				textResult("SSN 536-90-4399, login from 81.2.69.142, "+
					"eW91ciBjYXJkIGlzIDQxMTEgMTExMSAxMTExIDExMTE="))
		})
	}
}
