# Starts redis-server, three replicas of Gatekit and a balancer: haproxy, or nginx with
# "sh replicas.sh nginx". Ctrl-C ends all of them and removes their files, which are in run/.
set -eu
cd "$(dirname "$0")"
balancer=${1:-haproxy}
PATH=$PATH:/usr/sbin # where Debian has haproxy and nginx

missing=
need() { # PROGRAM HOW TO GET IT
	command -v "$1" >/dev/null || { echo "$1 is not installed: $2" >&2 && missing=yes; }
}
case $balancer in
haproxy) need haproxy 'apt-get install haproxy' ;;
nginx) need nginx 'apt-get install nginx-light' ;;
*) echo "usage: sh replicas.sh [haproxy|nginx]" >&2 && exit 2 ;;
esac
need redis-server 'apt-get install redis-server'
need openssl 'apt-get install openssl'
need curl 'apt-get install curl'
need setsid 'apt-get install util-linux'
need gatekit 'run "go install ./cmd/gatekit" at the top of the checkout; PATH must have $(go env GOPATH)/bin'
[ -z "$missing" ] || exit 1

umask 077
mkdir run || {
	echo 'The example runs already. If it was killed, end what is left and remove run/:
  kill $(cat run/*.keeper); sleep 5; rm -r run' >&2
	exit 1
}
mkdir -p run/redis run/nginx run/audit/gatekit-0 run/audit/gatekit-1 run/audit/gatekit-2
keepers= redis_keeper=
# Ends redis-server last, because the replicas need it until they have ended.
end() {
	trap '' INT TERM HUP
	echo 'ending ...'
	for keeper in $keepers; do kill "$keeper" || :; done # one may have ended
	for keeper in $keepers; do wait "$keeper" || :; done
	[ -z "$redis_keeper" ] || { kill "$redis_keeper" && wait "$redis_keeper" || :; }
	rm -r run
}
trap end EXIT
trap 'exit 130' INT TERM HUP

for address in 127.0.0.1:7777 127.0.0.1:7379 127.0.0.1:7781 127.0.0.1:7782 127.0.0.1:7783 \
	127.0.0.1:7791 127.0.0.1:7792 127.0.0.1:7793; do
	status=0
	curl -s -m 2 -o /dev/null "http://$address" || status=$?
	[ "$status" = 7 ] || { # 7: the connection was refused
		echo "Another program listens on $address: end it first." >&2
		exit 1
	}
done

# keep NAME COMMAND...: runs a command, and runs it again when it has ended, as systemd does with
# Restart=always. The command has a session of its own, so Ctrl-C reaches only this script.
keep() {
	name=$1
	shift
	trap 'kill $!; wait $!; exit' TERM
	while :; do
		setsid "$@" >>"run/$name.log" 2>&1 &
		echo $! >"run/$name.pid"
		wait $! || { sleep 1 & wait $!; }
	done
}
start() { # NAME COMMAND...
	keep "$@" 2>/dev/null & # the shell itself reports ended processes there
	keepers="$! $keepers"
	echo $! >"run/$1.keeper"
}
await() { # NAME COMMAND...: waits until the command succeeds
	name=$1
	shift
	for _ in $(seq 300); do
		if "$@" >/dev/null 2>&1; then
			return
		fi
		sleep 0.1
	done
	echo "$name does not work. The end of its log:" >&2
	tail -n 5 "run/$name.log" >&2
	exit 1
}

# Secrets, and certificates of an authority that signs only the replicas. All replicas are at one
# address here, so they share a certificate. Elsewhere, each has its own.
openssl rand -hex 32 >run/state.key
openssl rand -hex 32 >run/redis.password
certificate() { # NAME OPTION...: needs version 3.0 of openssl
	name=$1
	shift
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 1 \
		-keyout "run/$name.key" -out "run/$name.pem" "$@" 2>run/openssl.log || {
		cat run/openssl.log >&2
		exit 1
	}
}
certificate ca -subj '/CN=replicas of the example'
certificate replica -subj /CN=replica -CA run/ca.pem -CAkey run/ca.key \
	-addext subjectAltName=IP:127.0.0.1 -addext extendedKeyUsage=serverAuth,clientAuth \
	-addext basicConstraints=critical,CA:FALSE
rm run/ca.key

redis=127.0.0.1:7379
digest=$(tr -d '\n' <run/redis.password | openssl dgst -sha256 -r | cut -d ' ' -f 1)
# Nobody can log in as the default user. But redis-server loads its append-only file as this user,
# and skips what the user may not do, without an error that ends it: so allow everything.
cat >run/users.acl <<ACL
user default off resetpass ~* &* +@all
user gatekit on #$digest ~gatekit:* +@all -@dangerous +info
ACL
start redis redis-server redis.conf --port "${redis#*:}"
redis_keeper=$keepers keepers=
await redis sh -c "REDISCLI_AUTH=\$(cat run/redis.password) redis-cli -p ${redis#*:} --user gatekit \
	ping | grep PONG"
for i in 0 1 2; do
	start "gatekit-$i" sh replica.sh "$i" run
done
case $balancer in
haproxy) start haproxy haproxy -db -f haproxy.cfg ;;
nginx)
	cp nginx.conf run/nginx.conf
	start nginx nginx -p . -e stderr -c run/nginx.conf -g "daemon off; user $(id -un);"
	;;
esac
await gatekit-0 curl -sf -m 5 http://127.0.0.1:7781/readyz
await gatekit-1 curl -sf -m 5 http://127.0.0.1:7782/readyz
await gatekit-2 curl -sf -m 5 http://127.0.0.1:7783/readyz
await "$balancer" curl -sf -m 5 http://127.0.0.1:7777/readyz
echo "Three replicas of Gatekit are behind $balancer at http://127.0.0.1:7777/mcp.
Ctrl-C ends everything."
wait
