# Tools needed by only some scripts, built into out/tools on first use. Sourced from the root of the repository.

PATH="$PATH:$HOME/.cargo/bin"
PATH="$PWD/out/tools/bin:$PATH"

# Adds a program from the crate of the same name to the PATH: tool NAME[=VERSION].
tool() {
    local name=${1%=*} version=
    [ "$name" = "$1" ] || version=@${1#*=}
    command -v "$name" >/dev/null && return
    echo "building $name, once" >&2
    cargo install --quiet --locked --root out/tools "$name$version"
}
