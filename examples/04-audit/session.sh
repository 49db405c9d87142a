# Two clients, of revisions 2025-11-25 and 2026-07-28, use both servers at one endpoint. Gatekit
# writes audit.jsonl.
set -eu
url=http://127.0.0.1:7777/mcp
accept='accept: application/json, text/event-stream' json='content-type: application/json'

gatekit run 2>gatekit.log &
gatekit=$!
trap 'kill $gatekit 2>/dev/null' EXIT
until curl -s -m 5 -o /dev/null $url; do kill -0 $gatekit; sleep 0.1; done

# The client of 2025-11-25 has a session.
session=$(curl -s -o /dev/null -D - $url -H "$accept" -H "$json" -d '{"jsonrpc":"2.0","id":1,"method":"initialize",
	"params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"old-client","version":"1"}}}' | tr -d '\r' | sed -n 's/^[Mm]cp-[Ss]ession-[Ii]d: //p')
old() { curl -s -m 30 $url -H "$accept" -H "$json" -H "mcp-session-id: $session" -H 'mcp-protocol-version: 2025-11-25' -d "$1"; echo; }

# The client of 2026-07-28 describes itself in every request.
new() { # TOOL ARGUMENTS [MORE]
	curl -s -m 30 $url -H "$accept" -H "$json" -H 'mcp-protocol-version: 2026-07-28' -H 'mcp-method: tools/call' -H "mcp-name: $1" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{
	"name":"'"$1"'","arguments":'"$2${3-}"',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
	"io.modelcontextprotocol/clientInfo":{"name":"new-client","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}}}'; echo; }

old '{"jsonrpc":"2.0","method":"notifications/initialized"}'
old '{"jsonrpc":"2.0","id":2,"method":"tools/list"}'

echo '--- a file with a key: the plugin secrets redacts it'
old '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"files__read_file","arguments":{"path":"deploy.env"}}}'
echo '--- a tool that the plugin tools hides'
old '{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"files__delete_file","arguments":{"path":"welcome.txt"}}}'
echo '--- a path that leaves the folder: the rule roots/traversal denies it'
new files__read_file '{"path":"..%2f..%2fetc/passwd"}'

echo '--- notes asks the model of the client: the call is parked until another request has the answer'
asked=$(new notes__summarize '{}')
echo "$asked"
state=$(echo "$asked" | sed -n 's/.*"requestState":"\([^"]*\)".*/\1/p') key=$(echo "$asked" | sed -n 's/.*"inputRequests":{"\([^"]*\)".*/\1/p')
new notes__summarize '{}' ',"requestState":"'"$state"'","inputResponses":{"'"$key"'":{"role":"assistant","content":{"type":"text","text":"Nothing."},"model":"m"}}'

echo '--- a call that the client cancels while the server waits for the model'
old '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"notes__summarize","arguments":{}}}' >/dev/null &
# The parked call has left two records of sampling/createMessage: the request and the answer.
until [ "$(grep -c '"method":"sampling/createMessage"' audit.jsonl)" -gt 2 ]; do sleep 0.1; done
old '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"the user has left"}}'

echo '--- the process of the plugins is killed: the next call waits until the process runs again'
kill -9 $(pgrep -P $gatekit -f ' plugin ')
new files__read_file '{"path":"welcome.txt"}'

echo '--- a policy changes while Gatekit runs'
sed -i.bak 's/^# deny/deny/' house.rego
until grep -q 'configuration reloaded' gatekit.log; do sleep 0.1; done
new files__read_file '{"path":"welcome.txt"}'

trap - EXIT
kill $gatekit
wait $gatekit
