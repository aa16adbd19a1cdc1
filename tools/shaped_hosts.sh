#!/usr/bin/env bash
# Runs a command on several hosts that are faked on this one: network namespaces, joined by a bridge, whose links have
# a limited rate, such as 1gbit, or `none`. Needs root, ip and tc.
#   tools/shaped_hosts.sh HOSTS RATE COMMAND...
# Every host runs the command with RANK, WORLD_SIZE, HOST_ADDRESS and NARROWCAST_HOSTID set, and with HOSTS_FOLDER, an
# empty folder that they share.
# The exit status is that of the first host that failed.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
hosts=$1 rate=$2
shift 2
# Names of interfaces have at most 15 characters.
mark=nc$(($$ % 100000))
network=10.77.0
folder=$(mktemp -d)

# shellcheck disable=SC2317  # called by the trap
clean_up() {
  for ((host = 0; host < hosts; ++host)); do
    ip netns pids "$mark-$host" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "$mark-$host" 2>/dev/null || true
  done
  ip link del "$mark" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

shape() {
  [ "$rate" = none ] || "$@" root tbf rate "$rate" burst 1mb latency 20ms
}
ip link add "$mark" type bridge
ip link set "$mark" up
for ((host = 0; host < hosts; ++host)); do
  name=$mark-$host
  ip netns add "$name"
  ip link add "$name" type veth peer name eth0 netns "$name"
  ip link set "$name" master "$mark" up
  ip -n "$name" addr add "$network.$((host + 1))/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
  shape tc qdisc add dev "$name"
  shape ip netns exec "$name" tc qdisc add dev eth0
done

processes=()
for ((host = 0; host < hosts; ++host)); do
  RANK=$host WORLD_SIZE=$hosts HOST_ADDRESS=$network.$((host + 1)) NARROWCAST_HOSTID=host$host HOSTS_FOLDER=$folder \
    ip netns exec "$mark-$host" "$@" &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do wait "$process" || status=${status/#0/$?}; done
exit "$status"
