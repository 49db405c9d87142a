package attacks

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	legacyRevision = "2025-11-25"
	modernRevision = "2026-07-28"

	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
)

// message is a message of the protocol.
type message struct {
	ID     jsontext.Value `json:"id,omitzero"`
	Method string         `json:"method,omitzero"`
	Params jsontext.Value `json:"params,omitzero"`
	Result jsontext.Value `json:"result,omitzero"`
	Error  jsontext.Value `json:"error,omitzero"`
}

func (m message) isRequest() bool  { return m.Method != "" && m.ID != nil }
func (m message) isResponse() bool { return m.Method == "" && m.ID != nil }

// object is a JSON object whose values are not parsed.
type object = map[string]jsontext.Value

func objectOf(v jsontext.Value) object {
	var o object
	if len(v) == 0 || json.Unmarshal(v, &o) != nil {
		return object{}
	}
	return o
}

func textOf(v jsontext.Value) string {
	var s string
	if len(v) == 0 || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// with returns an object with one more member.
func with(v, name, member string) string {
	inside := strings.TrimSpace(v)
	inside = strings.TrimSpace(inside[1:])
	separator := ","
	if inside == "}" {
		separator = ""
	}
	return "{" + quote(name) + ":" + member + separator + inside
}

func request(id int, method, params string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%s,"params":%s}`, id,
		quote(method), compact(params))
}

func result(id jsontext.Value, result string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, compact(result))
}

func fault(id jsontext.Value, code int, text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code,
		quote(text))
}

// compact returns JSON on one line.
func compact(v string) string {
	out := jsontext.Value(v)
	if out.Compact() != nil {
		return v
	}
	return string(out)
}

// textsIn returns the strings in a message, without the escapes of JSON.
func textsIn(b []byte) (texts []string) {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return texts
		}
		if t.Kind() == '"' {
			texts = append(texts, t.String())
		}
	}
}
