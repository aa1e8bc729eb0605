#!/usr/bin/env python3
"""An Exec handler: a program that reads a line and writes a line (Python 3, standard library only).

With --echo it answers with the entry's fields as an output. It does what the entry's fields tell it, so that every class of
answer can be seen:

    sleep = milliseconds   first of all waits that long
    heal = N               an error before the N-th attempt
    fail = a type          an error of that type: tried again
    reject = a type        an error of the entry itself: dead-lettered at once
    busy = seconds         not now: tried again after that time, no attempt spent
    die                    the process ends without an answer
    none of these          done
"""

import json
import os
import sys
import time
import traceback


class Failure(Exception):
    """An error with a type of its own, and a word on what to do about it."""

    def __init__(self, error_type, message, **more):
        super().__init__(message)
        self.error_type = error_type
        self.more = more


def handle(entry):
    """The work. Returns the outputs; any exception is an error that is tried again."""
    fields = entry["fields"]
    if "sleep" in fields:
        time.sleep(int(fields["sleep"]) / 1000)
    if "die" in fields:
        os._exit(1)
    if entry["attempt"] < int(fields.get("heal", 0)):
        raise Failure("NotYet", "it will heal")
    if "fail" in fields:
        raise Failure(fields["fail"], "told to fail")
    if "reject" in fields:
        raise Failure(fields["reject"], "told to reject", retryable=False)
    if "busy" in fields:
        raise Failure("Busy", "told to be busy", retryAfter=float(fields["busy"]))
    return [fields] if "--echo" in sys.argv[1:] else []


def answer(entry):
    """The answer to one entry, as the wire has it."""
    try:
        outputs = handle(entry)
    except Failure as failure:
        error = {"type": failure.error_type, "message": str(failure), **failure.more}
        return {"id": entry["id"], "error": error}
    except Exception as exception:
        error = {
            "type": type(exception).__name__,
            "message": str(exception),
            "traceback": traceback.format_exc(),
        }
        return {"id": entry["id"], "error": error}
    return {"id": entry["id"], "ok": True, **({"outputs": outputs} if outputs else {})}


def main():
    # Only answers may go to standard output: a library that prints would break the protocol, so it prints to the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The input ends when the engine wants no more, or has died.
    for line in sys.stdin.buffer:
        answers.write(json.dumps(answer(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main()
