#!/bin/sh
# The demo's handler: it reads a line for each entry and answers with a line. The field `does` says what an entry does to it.
# Files in $DEMO stand for the world outside: `starts` is written, `fixed` and `killed` are read.
# A real handler parses JSON; the demo needs nothing but a shell, and knows that its values are plain words.
set -u

member() { # The value of a member of the line that was read.
    printf '%s\n' "$line" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}

done_with() {
    printf '{"id":"%s","ok":true,"outputs":[{"entry":"%s"}]}\n' "$id" "$entry"
}

error() { # type, text, and whether trying again can help
    printf '{"id":"%s","error":{"type":"%s","message":"%s","retryable":%s}}\n' "$id" "$1" "$2" "$3"
}

while IFS= read -r line; do
    id=$(member id) entry=$(member entry) does=$(member does)
    echo "$entry $PPID" >>"$DEMO/starts"
    if [ -e "$DEMO/fixed" ]; then
        does=works
    fi
    case $does in
        works) done_with ;;
        takes-long)
            # Busy until its worker has been killed; whoever runs it next is quick.
            if [ ! -e "$DEMO/killed" ]; then
                while [ -d "$DEMO" ] && [ ! -e "$DEMO/killed" ]; do sleep 0.1; done
                exit
            fi
            done_with
            ;;
        heals) if [ "$(member attempt)" -lt 3 ]; then error Timeout "the model did not answer" true; else done_with; fi ;;
        fails) error ModelMissing "there is no model for this language" true ;;
        is-malformed) error MalformedDocument "this is no document" false ;;
        kills) kill -9 $$ ;;
        *) error UnknownWish "this demo does not know how to do that: $does" false ;;
    esac
done
