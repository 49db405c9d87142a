# Calls a tool as a client of revision 2026-07-28, and prints the text of the answer:
# sh call.sh ADDRESS TOOL ARGUMENTS
set -eu
[ $# = 3 ] || { echo 'usage: sh call.sh ADDRESS TOOL ARGUMENTS' >&2 && exit 2; }
answer=$(curl -sS -m 30 "http://$1/mcp" -H 'accept: application/json, text/event-stream' \
	-H 'content-type: application/json' -H 'mcp-protocol-version: 2026-07-28' \
	-H 'mcp-method: tools/call' -H "mcp-name: $2" -d '{"jsonrpc": "2.0", "id": 1,
	"method": "tools/call", "params": {"name": "'"$2"'", "arguments": '"$3"', "_meta": {
	"io.modelcontextprotocol/protocolVersion": "2026-07-28",
	"io.modelcontextprotocol/clientInfo": {"name": "call.sh", "version": "1"},
	"io.modelcontextprotocol/clientCapabilities": {}}}}')
text=$(printf '%s\n' "$answer" | sed -nE 's/.*"(text|message)": ?"(([^"\\]|\\.)*)".*/\2/p')
printf '%s\n' "${text:-$answer}"
