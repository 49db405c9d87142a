# Runs a command of gatekit as one of the replicas, or restarts the replica as an upgrade does.
set -eu
cd "$(dirname "$0")"
case "$#${1-}" in
[2-9]0) LISTEN=127.0.0.1:7781 CLUSTER=127.0.0.1:7791 ;;
[2-9]1) LISTEN=127.0.0.1:7782 CLUSTER=127.0.0.1:7792 ;;
[2-9]2) LISTEN=127.0.0.1:7783 CLUSTER=127.0.0.1:7793 ;;
*)
	echo 'usage: sh replica.sh 0|1|2 restart
       sh replica.sh 0|1|2 COMMAND OF GATEKIT, such as: sh replica.sh 0 stop --reason "lunch"' >&2
	exit 2
	;;
esac
export NAME="gatekit-$1" LISTEN CLUSTER
export XDG_STATE_HOME="$PWD/run/state/$NAME" # each replica has its own machine elsewhere
shift
[ "$1" = restart ] || exec gatekit "$@"

# nginx_config REPLACEMENT: changes the line of this replica in the configuration of nginx.
nginx_config() {
	[ -e run/nginx.pid ] || return 0
	sed "s/server $LISTEN/&$1/" nginx.conf >run/nginx.new
	mv run/nginx.new run/nginx.conf
	kill -HUP "$(cat run/nginx.pid)"
}

nginx_config ' down'
old=$(cat "run/$NAME.pid")
kill "$old" # replicas.sh starts it again when it has ended
until [ "$(cat "run/$NAME.pid")" != "$old" ] && curl -sf -m 5 -o /dev/null "http://$LISTEN/readyz"; do
	sleep 0.1
done
nginx_config ''
echo "$NAME has restarted"
