//! Examples of each command, for its help and its manual page.

/// Two command lines of `command`, the plain case first.
///
/// # Panics
/// If the command has none.
pub(crate) fn of(command: &str) -> &'static [&'static str; 2] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == command);
    &found.unwrap_or_else(|| panic!("{command}: a command needs two examples")).1
}

const EXAMPLES: [(&str, [&str; 2]); 38] = [
    (
        "create",
        [
            "zonal create disk.zonal --profile smr-hdd-30t",
            "zonal create copy.zonal --like report.txt --blocksize 4k",
        ],
    ),
    ("info", ["zonal info disk.zonal", "zonal info sim:zns-1t --json"]),
    ("list", ["zonal list", "zonal list --json"]),
    ("doctor", ["zonal doctor", "zonal doctor /dev/sda"]),
    ("report", ["zonal report disk.zonal", "zonal report disk.zonal --state full,closed --zone 0-99"]),
    ("reset", ["zonal reset disk.zonal --zone 5", "zonal reset disk.zonal --all"]),
    ("open", ["zonal open disk.zonal --zone 5", "zonal open disk.zonal --zone 5-8"]),
    ("close", ["zonal close disk.zonal --zone 5", "zonal close disk.zonal --all"]),
    ("finish", ["zonal finish disk.zonal --zone 5", "zonal finish disk.zonal --all"]),
    (
        "bench",
        [
            "zonal bench jobs.fio --device disk.zonal --report report.html",
            "zonal bench --device sim:smr-hdd-30t --write-mode per-zone,qd1 --name=seq --rw=write --zonemode=zbd --bs=1M --iodepth=128 --time_based --runtime=60",
        ],
    ),
    (
        "compare",
        [
            "zonal compare before.json after.json",
            "zonal compare fio.json zonal.json --report comparison.html",
        ],
    ),
    (
        "calibrate",
        [
            "zonal calibrate disk.zonal --output disk.toml",
            "zonal calibrate nvme-tcp://127.0.0.1:4420/nqn.2014-08.org.example:disk --output disk.toml --yes",
        ],
    ),
    (
        "replay",
        [
            "zonal replay trace.csv --device sim:smr-hdd-30t",
            "zonal replay trace.csv --device sim:smr-hdd-30t --json result.json",
        ],
    ),
    ("mkfs", ["zonal mkfs disk.zonal --label archive", "zonal mkfs disk.zonal --metadata disk.meta"]),
    ("put", ["zonal put disk.zonal notes.txt papers/notes.txt", "zonal put -r disk.zonal photos /photos"]),
    (
        "get",
        ["zonal get disk.zonal papers/notes.txt notes.txt", "zonal get -r disk.zonal /photos copy-of-photos"],
    ),
    ("cat", ["zonal cat disk.zonal notes.txt", "zonal cat disk.zonal part1 part2 > whole"]),
    ("ls", ["zonal ls -l disk.zonal", "zonal ls -lhR disk.zonal /photos"]),
    ("mkdir", ["zonal mkdir disk.zonal papers", "zonal mkdir -p disk.zonal papers/2026/draft"]),
    ("mv", ["zonal mv disk.zonal draft.txt final.txt", "zonal mv disk.zonal final.txt papers/"]),
    (
        "tar",
        [
            "zonal tar --create disk.zonal /photos > photos.tar",
            "zonal tar --extract disk.zonal /photos < photos.tar",
        ],
    ),
    ("rm", ["zonal rm disk.zonal notes.txt", "zonal rm -rf disk.zonal /photos"]),
    ("df", ["zonal df disk.zonal", "zonal df /mnt/archive --json"]),
    ("fsck", ["zonal fsck disk.zonal --data", "zonal fsck disk.zonal --repair"]),
    ("dump", ["zonal dump disk.zonal", "zonal dump disk.zonal --json"]),
    (
        "mount",
        ["zonal mount disk.zonal /mnt/archive", "zonal mount disk.zonal /mnt/archive -o ro,allow_other"],
    ),
    ("unmount", ["zonal unmount /mnt/archive", "zonal unmount disk.zonal"]),
    ("sync", ["zonal sync /mnt/archive", "zonal sync disk.zonal"]),
    ("scrub", ["zonal scrub /mnt/archive", "zonal scrub /mnt/archive --share 50 --restart"]),
    ("serve", ["zonal serve disk.zonal", "zonal serve disk.zonal --listen localhost:4421 --read-only"]),
    ("mode", ["zonal mode disk.zonal", "zonal mode disk.zonal --set qd1 --keep"]),
    (
        "zone",
        ["zonal zone disk.zonal --zone 7 --set read-only", "zonal zone disk.zonal --zone 7-9 --set restored"],
    ),
    ("plugs", ["zonal plugs disk.zonal", "zonal plugs disk.zonal --watch=2"]),
    ("stat", ["zonal stat disk.zonal", "zonal stat disk.zonal --metrics"]),
    (
        "why",
        [
            "zonal why records/zone-12-1.json",
            "zonal bench jobs.fio --record records && zonal why records/zone-12-1.json",
        ],
    ),
    (
        "completions",
        [
            "zonal completions bash > /etc/bash_completion.d/zonal",
            "zonal completions zsh > /usr/local/share/zsh/site-functions/_zonal",
        ],
    ),
    ("man", ["zonal man bench | man -l -", "zonal man --dir /usr/local/share/man/man1"]),
    ("help", ["zonal help bench", "zonal help devices"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn every_command_has_two_examples_that_parse() {
        for command in cli::command().get_subcommands().map(|command| command.get_name().to_owned()) {
            for example in of(&command) {
                // The shell takes the rest.
                let own = example.split(['>', '<', '|', '&']).next().unwrap();
                let words = own.split_whitespace().map(Into::into).collect();
                let parsed = cli::parse(cli::separate_job_options(words));
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }
}
