#!/bin/sh
# A stage at work: retries, dead letters, poison, a killed worker, a replay. Nothing is installed, nothing is left behind.
# $STREAMSTAGE names the built program; without it the program is built.
set -eu
cd "$(dirname "$0")/../.."

manifest=deploy/demo/stage.yaml
source=documents outputs=summaries
own="{$source}:summarize" # what the stage's own keys begin with
patience=60               # seconds that a condition may take to come true

# An entry's name, what it does to the handler, its content, what to expect of it (starts, end), and that in words. Each may be
# started once more than expected, by the worker that is killed. A start of the poison may die with that worker before the
# handler has noted it: two are seen then, of three.
entries='
page-1     works         a  1  done               works
page-2     works         b  1  done               works
page-3     works         c  1  done               works
long       takes-long    d  2  done               takes long; its worker is killed meanwhile
heals      heals         e  3  done               fails twice, then works
malformed  is-malformed  f  1  Rejected           is refused as malformed
hopeless   fails         g  4  AttemptsExhausted  fails every time
poison     kills         h  2  Poison             kills the handler process every time'
copy='copy works a 0 skipped has the content of page-1, sent again'

DEMO=$(mktemp -d "${TMPDIR:-/tmp}/streamstage-demo.XXXXXX")
export DEMO
workers='' redis='' keep=no

stop() { # Processes of ours, by their ids.
    for pid in "$@"; do kill "$pid" 2>/dev/null || true; done
    for pid in "$@"; do wait "$pid" 2>/dev/null || true; done
}

clean_up() {
    # shellcheck disable=SC2086 # lists of ids
    stop $workers && stop $redis
    if [ "$keep" = yes ]; then echo "demo: the logs are in $DEMO" >&2; else rm -rf "$DEMO"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    printf '\ndemo: %s\n' "$*" >&2
    keep=yes
    exit 1
}

steps=0
step() { steps=$((steps + 1)) && printf '\n%s. %s\n' "$steps" "$*"; }

wait_for() { # What is waited for, and a command that succeeds once it is so.
    what=$1 until=$(($(date +%s) + patience))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$until" ] || fail "waited $patience s in vain: $what"
        sleep 0.1
    done
}

prepare() {
    if [ -z "${STREAMSTAGE:-}" ]; then
        export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/streamstage/target}"
        cargo build --locked --quiet
        STREAMSTAGE=$CARGO_TARGET_DIR/$(sed -n 's/^target = "\(.*\)"/\1/p' .cargo/config.toml)/debug/streamstage
    fi
    redis_server=$(tests/tools/redis.sh) || fail "there is no redis-server"
    PATH=$(dirname "$redis_server"):$PATH
    command -v redis-cli >/dev/null || fail "there is no redis-cli on PATH: install Debian's package redis-tools"
}

is_ready() { ! kill -0 "$redis" 2>/dev/null || grep -qs 'Ready to accept' "$DEMO/redis.log"; }

start_redis() { # On a free port of the loopback interface: where one is taken, the server ends, and the next is tried.
    port=$((20000 + $$ % 20000))
    for _ in 1 2 3 4 5 6 7 8 9; do
        redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$DEMO" >"$DEMO/redis.log" 2>&1 &
        redis=$!
        wait_for "redis-server is ready" is_ready
        if kill -0 "$redis" 2>/dev/null; then return; fi
        port=$((port + 1))
    done
    fail "redis-server does not start"
}

cli() { redis-cli -p "$port" --raw "$@"; }
dlq() { verb=$1 && shift && "$STREAMSTAGE" dlq "$verb" -f "$manifest" --redis "redis://127.0.0.1:$port" "$@"; }

started=0
start_worker() {
    started=$((started + 1))
    "$STREAMSTAGE" dev -f "$manifest" --redis "redis://127.0.0.1:$port" -o json \
        >"$DEMO/worker-$started.out" 2>"$DEMO/worker-$started.log" &
    workers="$workers $!"
    echo "   worker $started runs as process $!"
}

add() { # As any producer would. $1 name, $2 what it does, $3 content; the rest is for the table.
    cli XADD "$source" '*' entry "$1" does "$2" doc_id "$3" content_hash "$3" >/dev/null
}

# Where entries are, by name: one line for each output, each dead letter (with its reason), and each start.
look() {
    cli XRANGE "$outputs" - + | sed -n '/^entry$/{n;p;}' >"$DEMO/outputs"
    { dlq export 2>/dev/null || true; } |
        sed 's/.*"reason":"\([^"]*\)".*\["entry","\([^"]*\)"\].*/\2 \1/' >"$DEMO/letters"
    touch "$DEMO/starts"
}
tally() { grep -c "^$1\( \|\$\)" "$2" || true; }
is_done() { look && [ "$(tally "$1" "$DEMO/outputs")" -gt 0 ]; }
has_started() { grep -q "^$1 " "$DEMO/starts" 2>/dev/null; }
is_idle() { # Nothing undelivered, nothing pending, nothing waiting: seen in one look, since entries move about.
    printf '%s\n' MULTI "XINFO GROUPS $source" "XLEN $own:retry" "ZCARD $own:delayed" EXEC | cli >"$DEMO/look"
    left=$(sed -n -e '/^pending$/{n;p;}' -e '/^lag$/{n;p;n;p;n;p;}' "$DEMO/look" | tr '\n' ' ')
    [ "$left" = '0 0 0 0 ' ]
}

row() { printf '   %-10s %-45s %6s  %-18s %s\n' "$@"; }

table() { # Prints what became of each entry. With the word "fixed": all must be done by now.
    look
    row ENTRY 'WHAT IT DOES' STARTS OUTCOME 'WHERE IT IS NOW'
    wrong=0
    while read -r name _ _ least end words; do
        [ -n "$name" ] || continue
        starts=$(tally "$name" "$DEMO/starts") done=$(tally "$name" "$DEMO/outputs") dead=$(tally "$name" "$DEMO/letters")
        case $done:$dead in
            1:0) outcome='done' where="stream $outputs, once" ;;
            0:1) outcome=$(sed -n "s/^$name //p" "$DEMO/letters") where='dead letters' ;;
            0:0) outcome=skipped where="nowhere: page-1 is done" ;;
            *) outcome="$done outputs" where="$dead dead letters" ;;
        esac
        row "$name" "$words" "$starts" "$outcome" "$where"
        most=$((least + 1))
        case $1:$end in
            *:skipped) most=0 ;;
            fixed:done) ;;
            fixed:*) end='done' most=$((most + 1)) ;;
        esac
        if [ "$outcome" != "$end" ] || [ "$starts" -lt "$least" ] || [ "$starts" -gt "$most" ]; then
            echo "   ^ expected: $end after $least to $most starts"
            wrong=$((wrong + 1))
        fi
    done <<LIST
$entries
$copy
LIST
    [ "$wrong" -eq 0 ] || fail "not as expected: $wrong (see above)"
}

prepare
step "Start a Redis and two workers of the stage in $manifest"
start_redis
echo "   Redis runs as process $redis, on port $port"
start_worker
start_worker

step "Add 8 entries to the stream $source"
echo "$entries" | while read -r entry; do
    # shellcheck disable=SC2086 # words
    [ -z "$entry" ] || add $entry
done

step "Kill a worker in the middle of its work"
wait_for "a worker runs the entry long" has_started long
victim=$(sed -n 's/^long //p' "$DEMO/starts")
kill -9 "$victim"
touch "$DEMO/killed"
echo "   process $victim got SIGKILL while it ran the entry long; another worker takes its place:"
start_worker

step "Add the content of page-1 once more, as a producer does that repeats itself"
wait_for "page-1 is done" is_done page-1
# shellcheck disable=SC2086 # words
add $copy

step "Wait until nothing is undelivered, pending or delayed, and look what became of each entry"
wait_for "the stage is idle" is_idle
table before

step "Look at the dead letters: streamstage dlq ls, streamstage dlq groups"
dlq ls | sed 's/^/   /'
echo
dlq groups | sed 's/^/   /'

step "Fix the handler, and replay them: streamstage dlq replay --all"
touch "$DEMO/fixed"
dlq replay --all | sed 's/^/   /'
wait_for "the stage is idle again" is_idle
table fixed

step "Stop the workers with SIGTERM"
for pid in $workers; do
    [ "$pid" = "$victim" ] || { kill "$pid" && wait "$pid"; } || fail "process $pid did not drain: exit code $?"
done
workers=''
echo "   both drained and ended with exit code 0"
printf '\nEvery entry is done, exactly once.\n'
