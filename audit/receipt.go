package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/note"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
)

// receiptPrefix begins the text that is signed for a receipt, so that no signature of a receipt is
// the signature of a checkpoint. The text of a checkpoint begins with an origin, NAME/EPOCH, and
// has a number as its second line.
const receiptPrefix = "gatekit receipt v1\n"

// receiptVersion is the version of the members of a receipt.
const receiptVersion = 1

// Receipt is a signed statement about the result of one tools/call. docs/protocol.md describes its
// members. All members are always there.
type Receipt struct {
	Version   int    `json:"version"`   // 1
	Log       string `json:"log"`       // origin of the log
	Key       string `json:"key"`       // name and hash of the key, NAME+HASH
	Time      string `json:"time"`      // when it was signed, RFC 3339 in UTC
	Server    string `json:"server"`    // name in the configuration
	Tool      string `json:"tool"`      // the server's name of the tool
	Arguments string `json:"arguments"` // SHA-256 of the arguments, in hexadecimal
	Result    string `json:"result"`    // SHA-256 of the result without the receipt
	Policy    string `json:"policy"`    // revision of the policies; "" without policies
	Decision  string `json:"decision"`  // action of the record
	Record    uint64 `json:"record"`    // number of the record
	// the last checkpoint of the log when the receipt was signed: number of records and root hash
	CheckpointSize int64  `json:"checkpointSize"`
	CheckpointRoot string `json:"checkpointRoot"`
	Signature      string `json:"signature"` // base64 of an Ed25519 signature
}

// SignReceipt implements pipeline.ReceiptSigner. A log with a Writer has no key and signs nothing.
func (l *Log) SignReceipt(r pipeline.Receipt) ([]byte, error) {
	m := l.maintenance
	if m == nil {
		return nil, errors.New("the audit log has no key")
	}
	m.mu.Lock()
	size, root := m.signedSize, m.signedRoot
	m.mu.Unlock()
	receipt := Receipt{Version: receiptVersion, Log: m.origin, Key: keyID(m.key),
		Time: time.Now().UTC().Format(timeFormat), Server: r.Server, Tool: r.Tool,
		Arguments: hex.EncodeToString(r.Arguments[:]), Result: hex.EncodeToString(r.Result[:]),
		Policy: r.Policy, Decision: r.Decision, Record: r.Record, CheckpointSize: size,
		CheckpointRoot: base64.StdEncoding.EncodeToString(root[:])}
	text, err := receipt.signedText()
	if err != nil {
		return nil, err
	}
	signature, err := m.key.Sign(text)
	if err != nil {
		return nil, err
	}
	receipt.Signature = base64.StdEncoding.EncodeToString(signature)
	return json.Marshal(receipt)
}

// keyID returns the name and the hash of a key, as they are in its public key.
func keyID(key interface {
	Name() string
	KeyHash() uint32
}) string {
	return fmt.Sprintf("%s+%08x", key.Name(), key.KeyHash())
}

// signedText returns the text that is signed: the prefix, and the receipt without its signature in
// the form of RFC 8785.
func (r Receipt) signedText() ([]byte, error) {
	raw, err := json.Marshal(struct {
		Receipt
		Signature string `json:"signature,omitzero"` // takes the place of the other one
	}{Receipt: r})
	if err != nil {
		return nil, err
	}
	canonical, err := mcp.CanonicalJSON(raw)
	return append([]byte(receiptPrefix), canonical...), err
}

// VerifyReceipt verifies the receipt in a result. result is the result of a tools/call, or the
// whole JSON-RPC response. arguments are the arguments of the call; empty for none. The receipt is
// valid if the key has signed it, for these arguments and for this result. VerifyReceipt needs no
// log. It does not check that the record is in the log: Proof does. The caller compares Server and
// Tool with the call, since other tools may have got equal arguments.
func VerifyReceipt(result, arguments []byte, key note.Verifier) (*Receipt, error) {
	m, err := parseResult(result)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	raw, ok := m.Get("/_meta/" + mcp.EscapePointer(mcp.ReceiptKey))
	if !ok {
		if reason, ok := m.Text("/_meta/" + mcp.EscapePointer(mcp.NoReceiptKey)); ok {
			return nil, fmt.Errorf("the result has no receipt: %s", reason)
		}
		return nil, fmt.Errorf("the result has no receipt: its _meta has no %q", mcp.ReceiptKey)
	}
	r, err := openReceipt(raw, key)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = []byte("{}")
	}
	body, err := mcp.BodyWithoutReceipt(m)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	for _, digested := range []struct {
		name, want string
		raw        []byte
	}{{"arguments", r.Arguments, arguments}, {"result", r.Result, body}} {
		canonical, err := mcp.CanonicalJSON(digested.raw)
		if err != nil {
			return nil, fmt.Errorf("read the %s: %w", digested.name, err)
		}
		if sum := sha256.Sum256(canonical); hex.EncodeToString(sum[:]) != digested.want {
			return nil, fmt.Errorf("the receipt does not match the %s", digested.name)
		}
	}
	return r, nil
}

// openReceipt parses a receipt and verifies its signature.
func openReceipt(raw []byte, key note.Verifier) (*Receipt, error) {
	canonical, err := mcp.CanonicalJSON(raw) // the client may have written numbers in another form
	if err != nil {
		return nil, fmt.Errorf("read the receipt: %w", err)
	}
	var r Receipt
	if err := json.Unmarshal(canonical, &r, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("read the receipt: %w", err)
	}
	if err := r.isExactly(canonical); err != nil {
		return nil, fmt.Errorf("read the receipt: %w", err)
	}
	if r.Version != receiptVersion {
		return nil, fmt.Errorf("read the receipt: unknown version %d", r.Version)
	}
	if r.Key != keyID(key) {
		return nil, fmt.Errorf("the receipt is signed with key %s, not with %s", r.Key, keyID(key))
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(r.Signature)
	if err != nil {
		return nil, fmt.Errorf("read the receipt: its signature is not base64: %w", err)
	}
	text, err := r.signedText()
	if err != nil {
		return nil, fmt.Errorf("read the receipt: %w", err)
	}
	if !key.Verify(text, signature) {
		return nil, fmt.Errorf("the receipt was changed: its signature with key %s is invalid",
			r.Key)
	}
	return &r, nil
}

// isExactly returns an error unless canonical, in the form of RFC 8785, has all members of r.
func (r Receipt) isExactly(canonical []byte) error {
	written, err := json.Marshal(r)
	if err != nil {
		return err
	}
	want, err := mcp.CanonicalJSON(written)
	if err != nil {
		return err
	}
	if !bytes.Equal(canonical, want) {
		return errors.New("a member is missing or null")
	}
	return nil
}

// maxDepth limits the nesting of a result. It is the limit of jsontext, so no receipt exceeds it.
const maxDepth = 10_000

// parseResult parses a result, or a JSON-RPC response with a result.
func parseResult(raw []byte) (*mcp.Message, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	_, isResponse := members["jsonrpc"]
	if !isResponse {
		raw = append(append([]byte(`{"jsonrpc":"2.0","id":1,"result":`), raw...), '}')
	}
	// The caller has bounded the result, and the configuration may allow more than the defaults.
	m, err := mcp.Limits{Bytes: len(raw), Tokens: len(raw), Depth: maxDepth}.Parse(raw)
	if err != nil {
		return nil, err
	}
	if m.Kind != mcp.Response {
		return nil, fmt.Errorf("it is a JSON-RPC %s, not a response", m.Kind)
	}
	if isResponse && len(members) != 3 {
		// More members could look like a result that the receipt does not cover.
		return nil, errors.New("a response has the members jsonrpc, id and result only")
	}
	return m, nil
}

var _ pipeline.ReceiptSigner = (*Log)(nil)
