#!/usr/bin/env bash
# Installs missing requirements for building and testing, and lists those it cannot install in one line. `setup.sh run`
# omits those only needed for tests.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
with_tests=true
[ "${1:-}" = run ] && with_tests=false

# Runs apt-get once no other apt is running, such as the automatic update of a new machine. Only dpkg's lock has a
# time-out, so for those of lists and archives this retries for ten minutes.
apt() {
    local said end=$((SECONDS + 600))
    until said=$(LC_ALL=C apt-get -q -o DPkg::Lock::Timeout=600 "$@" 2>&1 >/dev/null); do
        if [ $SECONDS -gt $end ] || ! grep -q 'Could not get lock' <<<"$said"; then
            echo "$said" >&2
            return 1
        fi
        sleep 2
    done
}

is_debian_root() {
    [ "$(id -u)" -eq 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null
}

# Debian packages, detected by a file or program of each.
packages=()
command -v cc >/dev/null || packages+=(gcc libc6-dev)
command -v fio >/dev/null || packages+=(fio)
have_examples() {
    compgen -G '/usr/share/doc/fio/examples/zbd-*.fio' >/dev/null ||
        compgen -G 'out/fio-examples/usr/share/doc/fio/examples/zbd-*.fio' >/dev/null
}
have_examples || packages+=(fio-examples)
if ! command -v cargo >/dev/null && ! command -v rustup >/dev/null && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    # Newer Debian releases have it; otherwise see below.
    if is_debian_root && apt-cache show rustup >/dev/null 2>&1; then packages+=(rustup); fi
fi
if $with_tests; then
    # Counts instructions. Optional.
    if is_debian_root && ! command -v valgrind >/dev/null; then packages+=(valgrind); fi
    # Programs run by tests on a mount.
    for program in git rsync sqlite3; do
        if is_debian_root && ! command -v "$program" >/dev/null; then packages+=("$program"); fi
    done
    # Mounts for users other than root.
    if is_debian_root && ! command -v fusermount3 >/dev/null; then packages+=(fuse3); fi
    # Opens the report pages in tests.
    if is_debian_root && ! command -v chromium >/dev/null; then packages+=(chromium); fi
    # Requirements of scripts/guest.sh to build and emulate its machine, as programs with their packages.
    if [ "$(uname -m)" = x86_64 ]; then
        for pair in qemu-system-x86_64=qemu-system-x86 mke2fs=e2fsprogs cpio=cpio depmod=kmod xz=xz-utils zstd=zstd \
            setpriv=util-linux flock=util-linux; do
            PATH=$PATH:/usr/sbin:/sbin command -v "${pair%=*}" >/dev/null || packages+=("${pair#*=}")
        done
    fi
fi
if [ "${#packages[@]}" -gt 0 ]; then
    if is_debian_root; then
        echo "setup: installing ${packages[*]}"
        export DEBIAN_FRONTEND=noninteractive
        install() { apt install -y --no-install-recommends "${packages[@]}"; }
        # A new machine may have no package lists, or outdated ones.
        if ! install 2>/dev/null && ! { apt update && install; }; then exit 1; fi
    else
        missing+=("the Debian packages ${packages[*]}, or their equivalents")
    fi
fi
# A system without documentation now has the package, but not its files.
if ! have_examples && is_debian_root; then
    mkdir -p out/fio-examples
    (cd out/fio-examples && apt download fio-examples && dpkg-deb -x fio-examples_*.deb . &&
        rm fio-examples_*.deb) || missing+=("fio-examples")
fi

# All distributions use this mode; small containers restrict it to root.
if $with_tests && is_debian_root && [ -e /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then chmod 666 /dev/fuse; fi

PATH="$PATH:$HOME/.cargo/bin"
# rustup reads rust-toolchain.toml and installs that toolchain. Without rustup, the installed toolchain must be new
# enough.
if command -v rustup >/dev/null; then
    rustup show active-toolchain >/dev/null 2>&1 || rustup toolchain install >/dev/null
elif ! command -v cargo >/dev/null; then
    missing+=("Rust with rustup, see https://rustup.rs")
fi
if command -v cargo >/dev/null; then
    cargo fmt --version >/dev/null 2>&1 || missing+=("rustfmt")
    cargo clippy --version >/dev/null 2>&1 || missing+=("clippy")
    # Third-party file system tests, run as programs.
    for tool in $($with_tests && echo fsx=0.3.2 pjdfstest=0.2.2); do
        [ -x "out/tools/bin/${tool%=*}" ] ||
            { echo "setup: building $tool" && cargo install --quiet --locked --root out/tools "${tool%=*}@${tool#*=}" >/dev/null 2>&1; } ||
            missing+=("cargo install --root out/tools ${tool%=*}")
    done
fi

if [ "${#missing[@]}" -gt 0 ]; then
    printf -v list '%s; ' "${missing[@]}"
    echo "setup: please install: ${list%; }" >&2
    exit 1
fi
