//! Checks that every supported option appears in the printed form, so none is parsed and then lost.

use zonal_bench::job::{JobFile, supported};

/// Options printed in another form: the name as header, the write share as read share, and the only
/// supported distribution not at all.
const NOT_PRINTED: [&str; 3] = ["name", "rwmixwrite", "random_distribution"];

#[test]
fn every_supported_option_is_printed() {
    let text = include_str!("../corpus/job/accept/every-option.fio");
    let printed = |text: &str| JobFile::parse(text, "every-option.fio").unwrap().to_canonical();
    let printed = printed(text) + &printed("[a]\nrate_iops=5\nrate_iops_min=4\n");
    for option in supported().iter().filter(|option| !NOT_PRINTED.contains(&option.name)) {
        let found = printed.lines().any(|line| line.split('=').next() == Some(option.name));
        assert!(found, "{} is not printed:\n{printed}", option.name);
    }
}
