//! Origin of the data on a report page: the command line, and the profiles of the device.

use zonal_bench::About;

/// Command line of this process, and the profiles in the name of its device.
pub(super) fn about(device: &str) -> About {
    let words = std::env::args_os().map(|word| quoted(&word.to_string_lossy()));
    let profiles: Vec<String> = device.split('+').filter_map(profile).collect();
    let profile = (!profiles.is_empty()).then(|| profiles.join("\n"));
    About { command: words.collect::<Vec<_>>().join(" "), profile }
}

/// Text of the profile in a part of a device's name, followed by the values that the name changes.
fn profile(part: &str) -> Option<String> {
    let profile = part.strip_prefix("sim:").or_else(|| part.strip_prefix("timing:"))?;
    let mut words = profile.split(',');
    let text = zonal_sim::Profile::text(words.next().unwrap_or_default()).ok()?;
    let changes: Vec<String> = words.map(|change| format!("# given: {change}\n")).collect();
    Some(format!("{}\n{}", text.trim_end(), changes.concat()))
}

/// Reliability of each profile in a device's name, one line per profile.
pub(crate) fn standings(device: &str) -> Vec<String> {
    device.split(['+', '[', ']']).filter_map(standing).collect()
}

fn standing(part: &str) -> Option<String> {
    let timing = part.strip_prefix("timing:");
    let words: Vec<&str> = part.strip_prefix("sim:").or(timing)?.split(',').collect();
    let changes = words.iter().skip(1).filter_map(|word| word.split_once('='));
    let changes: Vec<_> = changes.filter(|(key, _)| *key != "checked").collect();
    let profile = zonal_sim::Profile::open(words[0], &changes).ok()?;
    Some(match (timing, profile.standing()) {
        // The zones are those of the device below, not of the drive that the profile was fitted to.
        (Some(_), zonal_sim::Standing::Calibrated { .. }) => format!(
            "profile {}: calibrated on a different drive: each figure is one of a range",
            profile.name
        ),
        (_, standing) => format!("profile {}: {standing}", profile.name),
    })
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn profile_of_a_simulated_device_is_told_with_what_its_name_changes() {
        let about = about("trace:+timing:smr-hdd-30t,policy=fifo+null:size=1G");
        let profile = about.profile.unwrap();
        assert!(profile.starts_with("name = \"smr-hdd-30t\"\n"), "{profile}");
        assert!(profile.ends_with("# given: policy=fifo\n"), "{profile}");
        assert!(super::about("null:size=1G").profile.is_none());
    }

    #[test]
    fn profile_on_another_drive_is_called_a_range() {
        let of = |device: &str| standings(device).join("; ");
        assert!(
            of("sim:smr-hdd-30t,checked=zone")
                .starts_with("profile smr-hdd-30t: calibrated for writes of 1 MiB, ")
        );
        assert!(of("sim:smr-hdd-30t,size=1T").contains("another size: each figure is one of a range"));
        assert!(
            of("concat:[null:][sim:ufs-zoned]").ends_with("not calibrated: each figure is one of a range")
        );
        assert!(of("trace:+timing:smr-hdd-30t+null:size=1G").contains("each figure is one of a range"));
        assert_eq!(of("null:size=1G"), "");
    }

    #[test]
    fn quoted_words_come_back_from_a_shell() {
        let words =
            ["plain", "--name=a b", "", "it's", "</script>", "a\nb", "$HOME `x` \\ \"", "*", "ä", "~"];
        for word in words {
            let output =
                Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
        assert_eq!(quoted("--device=null:size=64G"), "--device=null:size=64G");
    }
}
