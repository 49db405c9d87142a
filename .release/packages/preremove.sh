#!/bin/sh
# Stops the service when the package is removed. An upgrade does not restart Gatekit, because a
# restart ends the sessions of its clients: run "systemctl restart gatekit" when it suits.
set -e
case "$1" in
  remove | 0) # dpkg says remove, rpm says 0
    if [ -d /run/systemd/system ]; then
      systemctl --no-reload disable --now gatekit.service || true
    fi
    ;;
esac
