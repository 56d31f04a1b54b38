#!/usr/bin/env bash
# `./x bench --peers`: durable publishing and delivery by Everwhen, Redis Streams and NATS JetStream, by one client, on
# this machine, side by side. Every server runs on a port and in a directory of its own, on loopback, and is stopped
# however this ends. A peer that is not installed is left out, with a word on how to get it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

EVERWHEN=${EVERWHEN:-${CARGO_TARGET_DIR:-target}/release/everwhen}
REDIS=${REDIS_SERVER:-redis-server}
NATS=${NATS_SERVER:-nats-server}

usage() {
  cat <<'END'
./x bench --peers [--install] [--data DIR] [--seconds S] [--rounds N] [--bytes N] [--publishers N,N…] [--json]

  --install     first `apt-get install redis-server nats-server`; without it nothing is installed
  --data DIR    where the servers write; the disk that is measured [default: the target directory]
  REDIS_SERVER, NATS_SERVER name other binaries than those on the PATH
END
}

main() {
  local data=${CARGO_TARGET_DIR:-target} install="" flags=""
  while [ $# -gt 0 ]; do
    case $1 in
      --peers) ;;
      --install) install=yes ;;
      --data) data=${2:?"--data needs a directory"}; shift ;;
      --seconds | --rounds | --bytes | --publishers) flags="$flags $1 ${2:?"$1 needs a number"}"; shift ;;
      --json) flags="$flags $1" ;;
      -h | --help) usage; exit 0 ;;
      *) echo "error: --peers knows no \"$1\"" >&2; usage >&2; exit 2 ;;
    esac
    shift
  done
  if [ -n "$install" ]; then apt-get install -y redis-server nats-server >&2; fi
  [ -x "$EVERWHEN" ] || { echo "error: there is no \"$EVERWHEN\"; ./x bench --peers builds it" >&2; exit 6; }
  EVERWHEN=$(cd "$(dirname "$EVERWHEN")" && pwd)/$(basename "$EVERWHEN")
  build
  mkdir -p "$data"
  place=$(cd "$data" && mktemp -d "$PWD/peers.XXXXXX")
  trap stop EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start_everwhen
  start_redis
  start_nats
  "$CLIENT" $servers $flags
}

pids="" servers="" place=""

stop() {
  local pid
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do wait "$pid" 2>/dev/null || true; done
  if [ -n "$place" ]; then rm -rf "$place"; fi
}

# Its own workspace and lock file, so that the default build never sees it.
build() {
  local target=${CARGO_TARGET_DIR:-target}
  mkdir -p "$target"
  target=$(cd "$target" && pwd)/peers
  cargo build -q --release --locked --manifest-path bench/peers/Cargo.toml --target-dir "$target"
  CLIENT=$target/release/peers
}

start_everwhen() {
  mkdir "$place/everwhen"
  # In its own directory: an everwhen.toml where the caller stands is not for this one.
  (cd "$place/everwhen" && exec "$EVERWHEN" serve --data data --listen 127.0.0.1:0 --json >ready 2>log) &
  pids="$pids $!"
  wait_until everwhen grep -qs '"ready":true' "$place/everwhen/ready"
  # Every request shows a token, as outside of a benchmark.
  EVERWHEN_TOKEN=$(sed 's|.*"owner_token":"\([^"]*\)".*|\1|' "$place/everwhen/ready")
  export EVERWHEN_TOKEN
  servers="$servers --everwhen $(sed 's|.*"url":"http://\([^"]*\)".*|\1|' "$place/everwhen/ready")"
}

# Rewriting the append-only file is off, in its favour: a run is too short to pay for it.
start_redis() {
  command -v "$REDIS" >/dev/null 2>&1 || { absent redis-server "apt-get install redis-server"; return 0; }
  local port
  port=$("$CLIENT" --free-port)
  mkdir "$place/redis"
  "$REDIS" --bind 127.0.0.1 --port "$port" --dir "$place/redis" --appendonly yes --appendfsync always --save '' \
    --auto-aof-rewrite-percentage 0 --daemonize no >"$place/redis/log" 2>&1 &
  pids="$pids $!"
  wait_until redis listens "$port"
  servers="$servers --redis 127.0.0.1:$port"
}

start_nats() {
  command -v "$NATS" >/dev/null 2>&1 || { absent nats-server "apt-get install nats-server (2.10 or later)"; return 0; }
  local port
  port=$("$CLIENT" --free-port)
  mkdir "$place/nats"
  printf 'listen: "127.0.0.1:%s"\njetstream { store_dir: "%s", sync_interval: always }\n' \
    "$port" "$place/nats/store" >"$place/nats/conf"
  if ! "$NATS" -t -c "$place/nats/conf" >"$place/nats/log" 2>&1; then
    echo "left out: $("$NATS" --version) cannot sync every message; it takes 2.10 or later" >&2
    return 0
  fi
  "$NATS" -c "$place/nats/conf" >"$place/nats/log" 2>&1 &
  pids="$pids $!"
  wait_until nats listens "$port"
  servers="$servers --nats 127.0.0.1:$port"
}

absent() { echo "left out: $1 is not installed; $2, or give --install" >&2; }

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

wait_until() { # SERVER COMMAND…
  local server=$1 tries=0
  shift
  until "$@"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then
      echo "error: $server did not start:" >&2
      tail -n 5 "$place/$server/log" >&2
      exit 6
    fi
    sleep 0.1
  done
}

main "$@"
