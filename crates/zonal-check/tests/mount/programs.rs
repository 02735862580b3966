//! Ordinary programs on a mount, and the resulting files.

use std::path::Path;
use std::process::Command;
use zonal_check::program::mounted::MountPlace;

/// Runs a shell script that must succeed.
fn shell(dir: &Path, script: &str) -> String {
    let output =
        Command::new("bash").args(["-euo", "pipefail", "-c", script]).current_dir(dir).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{script}\n{out}{err}");
    out
}

/// A tree of some thousand files of all kinds, which every build machine has.
const TREE: &str = "/usr/include";

/// Slow: it copies a tree of all file types with three programs.
#[test]
fn tree_is_the_same_after_tar_rsync_and_cp() {
    let place = MountPlace::new("1536M");
    let mounted = place.mount("");
    let script = format!(
        "mkdir tar rsync
         tar -C {TREE} --format=posix -cf - . | tar -C tar -xf -
         rsync -a {TREE}/ rsync/
         cp -a {TREE} cp
         sync
         for copy in tar rsync cp; do diff -r --no-dereference {TREE} $copy; done
         diff <(cd {TREE} && find . -printf '%p %m %l %T@ %y\\n' | sort) <(cd tar && find . -printf '%p %m %l %T@ %y\\n' | sort)
         tar -C tar --format=posix --sparse -cf sparse.tar .
         rm -rf cp"
    );
    shell(&mounted.at(""), &script);
    mounted.end();
    let mounted = place.mount("ro");
    let script = format!(
        "diff -r --no-dereference {TREE} rsync; mkdir /tmp/$$; tar -C /tmp/$$ -xf sparse.tar
        diff -r --no-dereference {TREE} /tmp/$$; rm -rf /tmp/$$"
    );
    shell(&mounted.at(""), &script);
    mounted.end();
}

#[test]
fn copies_of_files_that_were_just_written_have_all_bytes() {
    let place = MountPlace::new("256M");
    let mounted = place.mount("");
    shell(
        &mounted.at(""),
        "for n in $(seq 40); do
             head -c $((n * 3777)) /dev/urandom >a
             cp --sparse=always a b; cmp a b
             cp --reflink=auto --sparse=auto a c; cmp a c
             truncate -s 1M a; cp a d; cmp a d
             rm a b c d
         done",
    );
    mounted.end();
}

#[test]
fn repository_is_cloned_packed_and_sound() {
    let place = MountPlace::new("256M");
    let mounted = place.mount("");
    shell(
        &mounted.at(""),
        "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
         git init -q r; cd r
         for n in $(seq 30); do
             head -c 20000 /dev/urandom >f$((n % 7)); mkdir -p d$n; echo $n >d$n/g
             git add -A; git -c user.name=z -c user.email=z@localhost commit -q -m $n
         done
         git gc -q; cd ..
         git clone -q r clone; git -C clone fsck --full --strict
         diff -r --exclude=.git r clone",
    );
    mounted.end();
}
