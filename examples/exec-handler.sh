#!/bin/sh
# An Exec handler in POSIX shell: runs a program once for every entry.
#
#     exec-handler.sh PROGRAM [ARGUMENT...]
#
# The program reads the entry's line on its standard input. What it prints goes to the log; its exit status is the answer:
#
#     0        done
#     65       the entry itself is wrong: dead-lettered at once (EX_DATAERR)
#     75       not now: tried again in 5 seconds, no attempt spent (EX_TEMPFAIL)
#     others   an error: tried again
#
# Without a program every entry is done.
#
# Limits: it has no outputs, and it takes the id from where the engine writes it, at the beginning of the line. It parses no
# JSON, so no value of an entry can lead it astray.
set -u

if [ "$#" -eq 0 ]; then
    set -- cat
fi

error() {
    printf '{"id":"%s","error":{"type":"%s","message":"exit status %d"%s}}\n' "$id" "$1" "$status" "$2"
}

# The input ends when the engine wants no more, or has died.
while IFS= read -r line; do
    id=${line#'{"id":"'}
    id=${id%%'"'*}
    # Standard output is for answers only.
    printf '%s\n' "$line" | "$@" >&2
    status=$?
    case $status in
        0) printf '{"id":"%s","ok":true}\n' "$id" ;;
        65) error DataError ',"retryable":false' ;;
        75) error TemporaryFailure ',"retryAfter":5' ;;
        *) error ExitStatus '' ;;
    esac
done
