# A client of revision 2025-11-25 that calls a tool again and again:
# sh client.sh SECONDS
set -eu
[ $# = 1 ] || { echo 'usage: sh client.sh SECONDS' >&2 && exit 2; }
cd "$(dirname "$0")"
url=http://127.0.0.1:7777/mcp
session= sessions=0 answered=0 lost=0
answer=$(mktemp)
trap 'rm -f "$answer" "$answer.head"' EXIT

# Sends a message, and sets status to that of the answer. Without an answer, status is 000.
post() { # BODY CURL-OPTION...
	body=$1
	shift
	status=$(curl -s -m 30 -D "$answer.head" -o "$answer" -w '%{http_code}' "$url" "$@" \
		-H 'accept: application/json, text/event-stream' -H 'content-type: application/json' \
		-d "$body") || :
}
in_session() { # BODY
	post "$1" -H "mcp-session-id: $session" -H 'mcp-protocol-version: 2025-11-25'
}

initialize() {
	name=client-$$-$sessions
	post '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion":
		"2025-11-25", "capabilities": {}, "clientInfo": {"name": "'$name'", "version": "1"}}}'
	[ "$status" = 200 ] || return 0
	session=$(tr -d '\r' <"$answer.head" | sed -n 's/^[Mm]cp-[Ss]ession-[Ii]d: //p')
	in_session '{"jsonrpc": "2.0", "method": "notifications/initialized"}'
	sessions=$((sessions + 1))
	log=$(grep -l "\"$name 1," run/audit/*/audit.jsonl) # the session is in the replica of this log
	replica=$(basename "$(dirname "$log")")
	ln -sf "$replica.pid" run/session.pid
	echo "initialized in $replica"
}

until=$(($(date +%s) + $1))
while [ "$(date +%s)" -lt "$until" ]; do
	if [ -z "$session" ]; then
		initialize
		sleep 0.05
		continue
	fi
	in_session '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params":
		{"name": "files__read_file", "arguments": {"path": "welcome.txt"}}}'
	case $status in
	200) grep -q '"result"' "$answer" && answered=$((answered + 1)) || lost=$((lost + 1)) ;;
	404) session= ;;    # the session has ended, and the call was not run: it is made again
	503) sleep 0.2 ;;   # the call was not run: it is made again
	*) lost=$((lost + 1)) ;; # nobody knows whether the call was run
	esac
	sleep 0.05
done
[ "$sessions" != 0 ] || { echo "no session at $url: is replicas.sh running?" >&2 && exit 1; }
echo "$answered calls answered, $lost lost"
