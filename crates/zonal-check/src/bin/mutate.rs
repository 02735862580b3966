//! `mutate MUTATION COPY`: makes the mutation of a file in a copy of the repository, for `scripts/mutations.sh`.

use std::error::Error;
use std::fs;
use std::path::Path;
use zonal_check::house::mutation::{Mutation, Sources};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mutation, copy] = &words[..] else { return Err("usage: mutate MUTATION COPY".into()) };
    let copy = Path::new(copy);
    let mutation = Mutation::parse(&fs::read_to_string(mutation)?)?;
    for (path, text) in mutation.made(&mut Sources::of(copy))? {
        fs::write(copy.join(path), text)?;
    }
    Ok(())
}
