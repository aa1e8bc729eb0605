#!/usr/bin/env bash
# Prints the path of a redis-server for the tests and the demo, and makes sure that there is one, with redis-cli beside it:
#   1. the one on PATH;
#   2. one that an earlier run left in the cache;
#   3. as root: Debian's package, its service not started;
#   4. otherwise: Debian's packages unpacked into the cache, nothing installed.
# Everything but the path goes to stderr.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/streamstage/redis
server=$cache/bin/redis-server

say() {
    echo "redis.sh: $*" >&2
}

give_up() {
    say "$*"
    say "install a redis-server of version 6.2 or newer, and have it on PATH"
    exit 1
}

# Debian starts a service when its package is installed, unless this file says no.
install_package() {
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update >&2 || say "the package lists cannot be refreshed; trying those that are here"
    apt-get -q install -y --no-install-recommends redis-server >&2 ||
        give_up "apt-get could not install redis-server (see above)"
    command -v redis-server || give_up "Debian's package is installed, yet there is no redis-server on PATH"
}

# Packages that redis-server needs and this machine lacks, itself included. Names of virtual packages are left out.
missing_packages() {
    apt-cache "$@" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances redis-server | sed -n 's/^\([a-z0-9].*\)$/\1/p' | sort -u |
        while read -r package; do
            if ! dpkg-query --show --showformat '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
                echo "$package"
            fi
        done
}

unpack_packages() {
    local work=$cache.new lists=() packages=()
    rm -rf "$work"
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs" "$work/root" "$work/bin"
    # Lists of our own, for a user who may not refresh the machine's.
    lists=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/archives")
    if ! apt-get -q "${lists[@]}" update >&2; then
        say "the package lists cannot be refreshed; trying those that are here"
        lists=()
    fi
    mapfile -t packages < <(missing_packages "${lists[@]}")
    [ "${#packages[@]}" -gt 0 ] || give_up "apt knows no package redis-server"
    (cd "$work/debs" && apt-get -q "${lists[@]}" download "${packages[@]}" >&2) ||
        give_up "apt-get could not download: ${packages[*]}"
    for deb in "$work"/debs/*.deb; do
        dpkg-deb -x "$deb" "$work/root"
    done
    cat >"$work/bin/redis-server" <<'WRAPPER'
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")/root
for folder in "$root"/usr/lib/*-linux-gnu* "$root"/lib/*-linux-gnu*; do
    LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
exec "$root/usr/bin/$(basename "$0")" "$@"
WRAPPER
    chmod 755 "$work/bin/redis-server"
    cp "$work/bin/redis-server" "$work/bin/redis-cli"
    "$work/bin/redis-server" --version >&2 || give_up "the unpacked redis-server does not start (see above)"
    rm -rf "$work/lists" "$work/archives" "$work/debs" "$cache"
    mv "$work" "$cache"
    echo "$server"
}

if command -v redis-server; then
    exit 0
fi
if [ -x "$server" ] && [ -x "$cache/bin/redis-cli" ]; then
    echo "$server"
    exit 0
fi
command -v apt-get >/dev/null || give_up "there is no redis-server here, and no apt-get to get one"
if [ "$(id -u)" -eq 0 ]; then
    install_package
else
    unpack_packages
fi
