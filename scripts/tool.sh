# Tools that only some scripts need, built into out/tools when they are first asked for. Sourced from the root of the repository.

PATH="$PATH:$HOME/.cargo/bin"
PATH="$PWD/out/tools/bin:$PATH"

# Puts a program of a crate of the same name on the path: tool NAME[=VERSION].
tool() {
    local name=${1%=*} version=
    [ "$name" = "$1" ] || version=@${1#*=}
    command -v "$name" >/dev/null && return
    echo "building $name, once" >&2
    cargo install --quiet --locked --root out/tools "$name$version"
}
