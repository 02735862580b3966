#!/usr/bin/env bash
# Builds the fio engine for the installed fio as target/PROFILE/fio-zonal.so, and prints its path.
#
#   PROFILE   release (the default) or dev
#   SANITIZE  address: check the C part with AddressSanitizer; the engine is then fio-zonal-address.so
#
# The headers of fio's source are fetched once through apt and kept in out/fio-source.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:$HOME/.cargo/bin"

fail() {
    echo "fio-engine: $*" >&2
    exit 1
}

# Releases that the engine was tested with.
supported="fio-3.33"

profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
folder=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
command -v fio >/dev/null || fail "fio is not installed; scripts/setup.sh installs it"
version=$(fio --version)
[ "$version" = "$supported" ] ||
    fail "the installed fio is $version, and the engine is for $supported only: fio's structures change between releases"

headers=out/fio-source/$version

# Fetches the source package through apt with separate settings: Debian's sources of this system, as source packages.
fetch() {
    local apt=$1 from file options
    command -v apt-get >/dev/null || fail "the headers of $version come through apt, which is not here; put its source into $headers"
    mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        grep -qi debian "$file" 2>/dev/null || continue
        case $file in
            *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" ;;
            *) sed -n 's/^deb /deb-src /p' "$file" ;;
        esac >"$apt/parts/${file##*/}"
    done
    options=(-q -o Dir::Etc::sourcelist=- -o "Dir::Etc::sourceparts=$apt/parts" -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache=$apt/cache" -o Acquire::Languages=none -o APT::Sandbox::User=)
    [ ! -e "$apt/parts/sources.list" ] || options+=(-o "Dir::Etc::sourcelist=$apt/parts/sources.list")
    from=$(dpkg-query -W -f '${source:Version}' fio)
    { apt-get "${options[@]}" update && cd "$apt" && apt-get "${options[@]}" source --download-only "fio=$from"; } \
        >"$apt/log" 2>&1 || { cat "$apt/log" >&2 && fail "cannot fetch the source of fio $from"; }
    cd "$OLDPWD"
    mkdir "$apt/fio"
    tar -xf "$apt"/fio_*.orig.tar.?z -C "$apt/fio" --strip-components=1
}

# Creates the configuration that the headers need. None of its results changes a structure used by the engine.
configure() {
    (cd "$1" && ./configure >configure.log 2>&1) || fail "fio's configure failed; see $1/configure.log"
}

if [ ! -e "$headers/config-host.h" ]; then
    echo "fio-engine: fetching the source of $version" >&2
    mkdir -p out/fio-source
    work=$(mktemp -d "$PWD/out/fio-source/new.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    fetch "$work"
    configure "$work/fio"
    # Atomically, so that concurrent runs are safe.
    mv -T "$work/fio" "$headers" 2>/dev/null || [ -e "$headers/config-host.h" ] || fail "cannot move the source to $headers"
fi

# With the tests, builds all libraries of the workspace: they share features with the tests and are mostly built
# already. --locked prevents access to the registry, since all dependencies were fetched with the workspace.
selected=(--package zonal-fio)
[ "$profile" = dev ] && selected=(--workspace --lib)
cargo build --quiet --locked "${selected[@]}" --profile "$profile" >&2
engine=$folder/fio-zonal${SANITIZE:+-$SANITIZE}.so
new=$engine.$$
# -z nodelete: fio unloads an engine after its last job, but thread-local variables have destructors here.
"${CC:-cc}" -shared -fPIC -O2 -g -std=gnu11 -Wall -Werror -fvisibility=hidden ${SANITIZE:+-fsanitize=$SANITIZE} \
    -D_GNU_SOURCE -include "$headers/config-host.h" -DZONAL_FIO_VERSION="\"$version\"" \
    -isystem "$headers" -Ifio -o "$new" fio/engine.c "$folder/libzonal_fio.a" \
    -Wl,-z,nodelete -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -lpthread -ldl -lm
mv "$new" "$engine"
echo "$engine"
