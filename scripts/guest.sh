#!/usr/bin/env bash
# A recent Linux as a host of zoned drives: an emulated QEMU machine (no KVM), built from Debian packages only.
#
#   guest.sh build                   fetch the packages, and build kernel, initrd and root file system; quick if they exist
#   guest.sh run SCRIPT [OPTION...] [-- ARGUMENT...]
#                                    boot, run SCRIPT as root, print its output, and exit with its status
#   guest.sh info                    print the versions of the software in the guest
#
# Options of run:
#   --share DIR       make DIR of this machine available as /share in the guest
#   --env NAME=VALUE  set a variable for the script; may be repeated
#   --time-out SEC    time limit of the script, default 600; the limit of a boot is ZONAL_GUEST_BOOT seconds, default 120
#   --memory MIB      default 1024
#   --cpus N          default 2
#   --cmdline WORDS   additional kernel parameters
#   --zns SPEC        add a drive emulated by QEMU, /dev/nvme0n1 for the first: SIZE[,OPTIONS of its nvme-ns device], such as
#                     512M,zoned.zone_size=16M,zoned.max_open=8; may be repeated
#   --qemu WORDS      additional arguments of QEMU; may be repeated
#   --newest-qemu     use the QEMU of the guest's distribution, fetched on first use, instead of this machine's
#   --icount          one processor with a clock that counts instructions, 1 ns each: times do not depend on this machine's load
#   --log FILE        write the kernel's messages to FILE
#
# ZONAL_GUEST_LINUX=SUITE uses the kernel of another Debian suite, such as trixie, in a separate image. It also applies
# to the tests.
#
# `run` exits with 124 after a time-out, and with 125 if the guest ended without a status or something is missing. A
# listener on 127.0.0.1 of this machine is reachable at 10.0.2.2 in the guest. More in docs/GUEST.md.
set -euo pipefail
# Directories of mke2fs and depmod, which are not in every account's PATH.
PATH=$PATH:/usr/sbin:/sbin

here=$(cd "$(dirname "$0")" && pwd)
parts=$here/guest
cache=${ZONAL_GUEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zonal-guest}
suite=sid
# Suite of the kernel. Other suites have older kernels.
kernel_suite=${ZONAL_GUEST_LINUX:-$suite}
kernel=linux-image-amd64
boots_max=3
# Maximum time for the machine to turn off after its script, in seconds.
off_max=20

say() { echo "${0##*/}: $*" >&2; }

fail() {
    say "$@"
    exit 125
}

# Lines of a list, without comments.
list() { sed '/^#/d; /^$/d' "$parts/$1"; }

# Identifies the contents of the image: any change of a script or a list gives another key.
key() { (cat "$here/guest.sh" "$parts"/* && echo "$kernel_suite") | sha256sum | cut -c1-16; }

image=$cache/image-$(key)

# ---- build

need() {
    command -v "$1" >/dev/null || fail "$1 is missing: run make setup, or install $2"
}

# Mirror of this machine's packages.
mirror() {
    # shellcheck disable=SC2016 # apt's words, not the shell's
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1
}

# Sets up a separate apt for the suite $1, with its own lists and packages, and with nothing installed.
private_apt() {
    local from keyring=/usr/share/keyrings/debian-archive-keyring.gpg apt=$cache/apt suite=$1
    [ "$suite" = sid ] || apt=$apt-$suite
    archives=$apt/archives
    from=$(mirror)
    if [ -z "$from" ] && [ "$(id -u)" -eq 0 ]; then
        apt-get update -q >/dev/null 2>&1 || true
        from=$(mirror)
    fi
    [ -n "$from" ] || fail "apt knows no Debian mirror: run apt-get update"
    [ -e "$keyring" ] || fail "$keyring is missing: install debian-archive-keyring"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/none/partial" "$apt/other"
    : >"$apt/status"
    printf '%s [arch=amd64 signed-by=%s] %s %s main\n' deb "$keyring" "$from" "$suite" \
        deb-src "$keyring" "$from" "$suite" >"$apt/sources.list"
    cat >"$apt/apt.conf" <<END
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "60";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
END
    export APT_CONFIG=$apt/apt.conf
}

# Packages of the newest kernel and its modules, with version-dependent names.
kernel_packages() {
    apt-cache depends --recurse --important "$kernel" |
        grep -oE 'linux-(image|binary|modules|base)-[0-9][^ :<>]*-amd64$' | sort -u
}

# Fetches the packages $2... with all their dependencies, or without them with --alone, and links them into the
# directory $1.
fetch() {
    local directory=$1 uris file
    shift
    mkdir -p "$directory"
    if [ "$1" = --alone ]; then
        shift
        uris=$(apt-get download -qq --print-uris "$@")
        (cd "$archives" && apt-get download -q "$@")
    else
        # With an empty cache, apt lists every file: address, name, size and checksum.
        uris=$(apt-get install -qq --print-uris -o "Dir::Cache::archives=${archives%/*}/none" "$@")
        apt-get install -qq --download-only "$@"
    fi || return 1
    while read -r _ file _; do
        ln -f "$archives/$file" "$directory/" || return 1
    done <<<"$uris"
}

# Unpacks the packages in the directory $1 into the directory $2. The guest does not need their scripts, so they are not
# run.
unpack() {
    local package
    for package in "$1"/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar --extract --directory "$2" --keep-directory-symlink --no-same-owner \
            --exclude='./usr/share/'{doc,info,locale,man,lintian,bash-completion,zoneinfo,i18n,icons,bug,perl5,ieee-data} \
            --exclude='./usr/lib/'{systemd,udev,x86_64-linux-gnu/{systemd,gconv,perl-base}}
    done
}

# Unpacks the kernel image $1 to the file $2. QEMU boots it directly, which saves the guest the time to unpack it.
unpack_kernel() {
    local magic program offset
    for magic in '\xfd7zXZ\x00=xz' '\x28\xb5\x2f\xfd=zstd' '\x1f\x8b\x08=gzip'; do
        program=${magic##*=}
        while read -r offset; do
            # These programs report trailing data as an error, so only their output matters.
            tail -c "+$((offset + 1))" "$1" | "$program" -dcq >"$2" 2>/dev/null || true
            if [ "$(head -c 4 "$2" | tail -c 3)" = ELF ]; then return; fi
        done < <(LC_ALL=C grep -obUaP "${magic%=*}" "$1" | cut -d : -f 1)
    done
    return 1
}

# Copies the modules of the list, with their dependencies, from the tree $1 to the tree $2, for the kernel $3. Writes
# the modules of the initrd in load order to the file $4.
copy_modules() {
    local from=$1 to=$2 version=$3 order=$4 line name file files=()
    depmod -b "$from" "$version"
    : >"$order"
    while read -r line; do
        name=${line#initrd }
        mapfile -t files < <(modprobe -S "$version" -d "$from" --show-depends "$name" | sed -n 's/^insmod \([^ ]*\).*/\1/p')
        if ! modprobe -S "$version" -d "$from" --show-depends "$name" >/dev/null; then
            [ "$kernel_suite" != "$suite" ] || fail "the kernel has no module $name"
            say "the kernel of $kernel_suite has no module $name"
        fi
        for file in "${files[@]}"; do
            install -D -m 644 "$file" "$to/${file#"$from"/}"
            if [ "$line" != "$name" ]; then echo "${file#"$from"/}" >>"$order"; fi
        done
    done < <(list modules)
    find "$to/lib/modules" -name '*.ko.xz' -exec xz -d {} +
    find "$to/lib/modules" -name '*.ko.zst' -exec zstd -dq --rm {} +
    sed -i 's/\.ko\.[a-z]*$/.ko/' "$order"
    cp "$from/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$to/lib/modules/$version/"
    depmod -b "$to" "$version"
}

# Builds the initrd $3 from busybox and the modules listed in the file $2, from the tree $1.
make_initrd() {
    local root=$1 order=$2 initrd=$3 tree=$2.tree file
    mkdir -p "$tree"/{bin,dev,modules,proc,system,sys}
    cp "$root/usr/bin/busybox" "$tree/bin/"
    for file in sh mount insmod switch_root; do ln -s busybox "$tree/bin/$file"; done
    install -m 755 "$parts/initrd-init" "$tree/init"
    awk '!seen[$0]++' "$order" | while read -r file; do
        cp "$root/$file" "$tree/modules/"
        echo "${file##*/}" >>"$tree/modules/order"
    done
    (cd "$tree" && find . | cpio --create --format newc --quiet) >"$initrd"
}

# Builds a root file system in the directory $1 from the packages in $2 and t/zbd of the source package $3.
make_root() {
    local root=$1 directory
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{control,dev,mnt,opt/fio,proc,root,run,share,sys,tmp,etc,var/tmp}
    for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$root/$directory"; done
    unpack "$2" "$root"
    for directory in proc sys dev run tmp mnt root var/tmp; do mkdir -p "$root/$directory"; done
    # Replaces the packages' scripts.
    ln -sf gawk "$root/usr/bin/awk"
    [ -e "$root/usr/bin/sh" ] || ln -s dash "$root/usr/bin/sh"
    rm -rf "$root/var/run" "$root/etc/mtab" "$root/etc/resolv.conf"
    ln -s /run "$root/var/run"
    ln -s /proc/self/mounts "$root/etc/mtab"
    echo 'root:x:0:0:root:/root:/bin/bash' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
    install -m 755 "$parts/init" "$root/usr/sbin/guest-init"
    # fio's tests expect fio in its source directory.
    tar --extract --file "$3" --directory "$root/opt/fio" --strip-components=1 --no-same-owner --wildcards '*/t/zbd/*'
    ln -s /usr/bin/fio "$root/opt/fio/fio"
    [ -x "$root/opt/fio/t/zbd/test-zbd-support" ] || fail "the source of fio has no t/zbd/test-zbd-support"
}

# Version of the package $2 among those in the directory $1.
version() {
    local file
    for file in "$1/$2"_*.deb; do
        file=${file##*/}
        file=${file#*_}
        file=${file%_*}
        echo "${file//%3a/:}"
    done
}

make_image() {
    local work=$1 names tree source bytes
    private_apt "$suite"
    apt-get update -q
    mapfile -t names < <(list packages)
    fetch "$work/packages" "${names[@]}"
    # The zoned test suite is only in fio's source.
    (cd "$archives" && apt-get source -q --download-only --tar-only fio)
    source=$(apt-get source -qq --print-uris --tar-only fio | cut -d ' ' -f 2)
    source=$archives/$source
    private_apt "$kernel_suite"
    apt-get update -q
    mapfile -t names < <(kernel_packages)
    [ "${#names[@]}" -gt 0 ] || fail "$kernel_suite has no package of a kernel"
    fetch "$work/kernel" --alone "${names[@]}"
    bytes=$(cat "$work"/packages/*.deb "$work"/kernel/*.deb "$source" | wc -c)

    make_root "$work/root" "$work/packages" "$source"
    tree=$work/modules
    mkdir -p "$tree/usr/lib" "$work/image"
    ln -s usr/lib "$tree/lib"
    unpack "$work/kernel" "$tree"
    names=("$tree"/lib/modules/*)
    local release=${names[0]##*/} compressed
    compressed=$(find "$tree" -name 'vmlinuz*')
    [ -n "$compressed" ] || fail "the packages of Linux $release have no kernel"
    unpack_kernel "$compressed" "$work/image/vmlinux" || fail "the kernel in $compressed is packed in an unknown way"
    copy_modules "$tree" "$work/root" "$release" "$work/order"
    make_initrd "$work/root" "$work/order" "$work/image/initrd"
    # Read-only, so it needs no journal and little free space.
    mke2fs -q -t ext4 -O '^has_journal,^metadata_csum' -m 0 -E root_owner=0:0 -d "$work/root" "$work/image/root.ext4" \
        "$(($(du -sk "$work/root" | cut -f 1) * 5 / 4 + 16384))k" 2>/dev/null
    {
        echo "suite $suite"
        names=("$work"/kernel/*.deb)
        names=("${names[@]##*/}")
        echo "linux $release $(version "$work/kernel" "${names[0]%%_*}")"
        for name in fio nvme-cli util-linux zonefs-tools btrfs-progs f2fs-tools xfsprogs e2fsprogs; do
            echo "$name $(version "$work/packages" "$name")"
        done
        echo "packages $((bytes / 1000000)) MB"
    } >"$work/image/info"
}

build() {
    need qemu-system-x86_64 qemu-system-x86
    need mke2fs e2fsprogs
    need cpio cpio
    need depmod kmod
    need xz xz-utils
    need zstd zstd
    need flock util-linux
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    if [ -e "$image/info" ]; then return; fi
    local begin=$SECONDS log=$cache/build.log work=$cache/work
    say "building the guest in $cache"
    rm -rf "$work"
    mkdir -p "$work"
    # In a separate shell, because set -e has no effect where the status is tested.
    if ! "$0" make-image "$work" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        fail "the guest cannot be built: see $log"
    fi
    mv "$work/image" "$image"
    rm -rf "$work"
    # Keeps the newest three, for other checkouts of the repository.
    find "$cache" -maxdepth 1 -name 'image-*' -printf '%T@ %p\n' | sort -rn | tail -n +4 | cut -d ' ' -f 2- | xargs -r rm -rf
    say "built in $((SECONDS - begin)) s"
}

# ---- run

control=
qemu=
emulator=(qemu-system-x86_64)

# Selects the QEMU of the suite, with its own libraries. Fetches it on first use.
newest_qemu() {
    local tree=$cache/qemu libraries
    (
        exec 9>"$cache/lock"
        flock 9
        [ ! -e "$tree/usr/bin/qemu-system-x86_64" ] || exit 0
        say "fetching QEMU of $suite"
        rm -rf "$cache/making"
        mkdir -p "$cache/making/tree"
        private_apt "$suite"
        apt-get update -q >/dev/null
        # Most of its packages, including the C library, are not the guest's.
        fetch "$cache/making/packages" --no-install-recommends qemu-system-x86 >/dev/null
        unpack "$cache/making/packages" "$cache/making/tree"
        rm -rf "$tree"
        mv "$cache/making/tree" "$tree"
    ) || fail "QEMU of $suite cannot be fetched"
    libraries=$tree/usr/lib/x86_64-linux-gnu
    emulator=("$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$tree/lib/x86_64-linux-gnu"
        "$tree/usr/bin/qemu-system-x86_64" -L "$tree/usr/share/qemu" -L "$tree/usr/share/seabios")
}

clean_up() {
    if [ -n "$qemu" ]; then kill -KILL "$qemu" 2>/dev/null || true; fi
    if [ -n "$control" ]; then rm -rf "$control"; fi
}

# Boots once, and waits for the guest to end or to time out: boot ARGUMENTS... Sets `outcome`.
boot() {
    local deadline=$((SECONDS + ${ZONAL_GUEST_BOOT:-120})) stage=boot status=0
    # The output port closes at the end of standard input, so that is a pipe that stays open. QEMU is killed with this
    # script.
    setpriv --pdeathsig KILL "${emulator[@]}" "$@" 0<>"$control/stdin" &
    qemu=$!
    while kill -0 "$qemu" 2>/dev/null; do
        if [ "$stage" = boot ] && [ -e "$control/began" ]; then
            stage=script
            deadline=$((SECONDS + time_out))
        elif [ "$stage" = script ] && [ -e "$control/status" ]; then
            stage=off
            deadline=$((SECONDS + off_max))
        elif [ "$SECONDS" -ge "$deadline" ]; then
            stage="late $stage"
            kill -KILL "$qemu" 2>/dev/null || true
            break
        fi
        sleep 0.1
    done
    # The shell reports killed processes on standard error.
    { wait "$qemu" || status=$?; } 2>/dev/null
    qemu=
    case $stage in
    late*) outcome="time is over" ;;
    *) outcome="QEMU ended with $status" ;;
    esac
    [ "$status" != 1 ] || fail "QEMU does not start"
}

run() {
    [ $# -gt 0 ] || fail "run SCRIPT [OPTION...] [-- ARGUMENT...]"
    local script=$1 share='' memory=1024 cpus=2 cmdline='' log='' words spec
    local arguments=() environment=() drives=() more=() outcome='' threads=multi
    time_out=600
    shift
    while [ $# -gt 0 ]; do
        if [ "$1" = -- ]; then
            shift
            arguments=("$@")
            break
        fi
        if [ "$1" = --newest-qemu ]; then
            newest_qemu
            shift
            continue
        fi
        if [ "$1" = --icount ]; then
            cpus=1
            threads=single
            more+=(-icount shift=0,sleep=off)
            shift
            continue
        fi
        [ $# -gt 1 ] || fail "$1 needs a value"
        case $1 in
        --share) share=$2 ;;
        --env) environment+=("$2") ;;
        --time-out) time_out=$2 ;;
        --memory) memory=$2 ;;
        --cpus) cpus=$2 ;;
        --cmdline) cmdline=$2 ;;
        --zns) drives+=("$2") ;;
        --log) log=$2 ;;
        --qemu)
            read -ra words <<<"$2"
            more+=("${words[@]}")
            ;;
        *) fail "unknown option $1" ;;
        esac
        shift 2
    done
    need qemu-system-x86_64 qemu-system-x86
    [ -e "$image/info" ] || fail "the guest is not built: run scripts/guest.sh build"
    [ -r "$script" ] || fail "$script cannot be read"

    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    control=$(mktemp -d "${TMPDIR:-/tmp}/zonal-guest.XXXXXX")
    log=${log:-$control/console}
    mkfifo "$control/stdin"
    cp "$script" "$control/script"
    : >"$control/environment"
    for words in "${environment[@]}"; do printf '%s=%q\n' "${words%%=*}" "${words#*=}"; done >"$control/environment"
    : >"$control/arguments"
    if [ "${#arguments[@]}" -gt 0 ]; then printf '%s\0' "${arguments[@]}" >"$control/arguments"; fi

    local parameters=(
        console=ttyS0 loglevel=4 panic=-1
        # Reduces the work of an emulated processor, and disables checks of its clock that fail on a busy machine.
        mitigations=off nokaslr audit=0 cryptomgr.notests no_timer_check tsc=reliable random.trust_cpu=on net.ifnames=0
        "$cmdline"
    )
    # shellcheck disable=SC2054 # QEMU's commas
    local machine=(
        -machine q35,usb=off,vmport=off,hpet=off -accel "tcg,thread=$threads" -cpu max -smp "$cpus" -m "$memory"
        -nodefaults -no-user-config -display none -no-reboot
        -kernel "$image/vmlinux" -initrd "$image/initrd" -append "${parameters[*]}"
        -serial "file:$log"
        -drive "if=none,id=root,format=raw,readonly=on,file=$image/root.ext4" -device virtio-blk-pci,drive=root
        -virtfs "local,mount_tag=control,security_model=none,path=$control"
        -device virtio-serial-pci -chardev stdio,id=out,signal=off -device virtserialport,chardev=out,name=zonal.out
        -netdev user,id=net,ipv6=off,net=10.0.2.0/24 -device virtio-net-pci,netdev=net,romfile=
        -device virtio-rng-pci
    )
    if [ -n "$share" ]; then
        [ -d "$share" ] || fail "$share is no directory"
        : >"$control/share"
        machine+=(-virtfs "local,mount_tag=share,security_model=none,multidevs=remap,path=$(realpath "$share")")
    fi
    local n=0
    for spec in "${drives[@]}"; do
        truncate -s "${spec%%,*}" "$control/drive$n" || fail "--zns $spec: no such size"
        case $spec in *,*) words=,${spec#*,} ;; *) words= ;; esac
        machine+=(-drive "if=none,id=drive$n,format=raw,cache=unsafe,file=$control/drive$n"
            -device "nvme,id=nvme$n,serial=zonal$n" -device "nvme-ns,drive=drive$n,bus=nvme$n,nsid=1,zoned=true$words")
        n=$((n + 1))
    done

    # With an emulated processor, some boots die in a race with the kernel's self-patching code. Only a boot without a
    # started script is retried, since a script may have changed something.
    for ((n = 1; n <= boots_max; n++)); do
        boot "${machine[@]}" "${more[@]}"
        if [ -e "$control/began" ]; then break; fi
        if [ "$n" -lt "$boots_max" ]; then say "the guest ended before the script began ($outcome): booting again"; fi
    done
    if [ -s "$control/status" ]; then exit "$(cat "$control/status")"; fi
    say "the last messages of the kernel:"
    tail -n 40 "$log" >&2 || true
    if [ ! -e "$control/began" ]; then fail "the guest did not boot, $boots_max times ($outcome)"; fi
    if [ "$outcome" = "time is over" ]; then
        say "the script did not end in $time_out s"
        exit 124
    fi
    fail "the guest ended without a status ($outcome)"
}

info() {
    need qemu-system-x86_64 qemu-system-x86
    [ -e "$image/info" ] || fail "the guest is not built: run scripts/guest.sh build"
    cat "$image/info"
    qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \(.*\)/qemu \1/p'
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
build | run | info) "$command" "$@" ;;
# Internal to build: runs with set -e and with its output in a file.
make-image) make_image "$@" ;;
*)
    sed -n '2,/^set -euo/ { /^set/d; s/^# \{0,1\}//; p }' "$0" >&2
    exit 2
    ;;
esac
