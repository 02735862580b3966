//! Prints jobs in canonical form, as a job file.

use super::file::JobFile;
use super::lexer::GLOBAL;
use super::options::{Form, supported};
use super::spec::JobSpec;

impl JobFile {
    /// Prints the jobs as a job file, without globals, comments, defaults and ignored options.
    ///
    /// The output parses to equal jobs, here and in fio. If the input is near the limits of the
    /// language, the output may exceed them.
    pub fn to_canonical(&self) -> String {
        let mut text = String::new();
        for job in self.specs() {
            if !text.is_empty() {
                text.push('\n');
            }
            print_job(&mut text, job);
        }
        text
    }
}

impl JobSpec {
    /// Returns the options that differ from their defaults, with their values as printed by
    /// [`JobFile::to_canonical`]. The value of a flag is `1`.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let given = supported().iter().filter_map(|option| {
            let value = (option.show)(self)?;
            Some((option.name, if option.form == Form::Flag { "1".to_owned() } else { value }))
        });
        given.collect()
    }
}

fn print_job(text: &mut String, job: &JobSpec) {
    let mut line = |parts: &[&str]| {
        text.extend(parts.iter().copied());
        text.push('\n');
    };
    if job.name == GLOBAL {
        line(&["[job]"]);
        line(&["name=", GLOBAL]);
    } else {
        line(&["[", &job.name, "]"]);
    }
    for option in supported() {
        match ((option.show)(job), option.form) {
            (None, _) => {}
            (Some(_), Form::Flag) => line(&[option.name]),
            (Some(value), Form::Value) => line(&[option.name, "=", &value]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form_has_globals_applied_and_defaults_left_out() {
        let text = "[global]\nrw=randrw\nrwmixread=70\nbs=4k,64k\nioengine=psync\nnumjobs=1\ntime_based\nruntime=90m\n\
                    [one] ; first\nfilename=null:size=1T\n[two]\nname=global\nzonemode=zbd\nsize=10z\ntime_based=0\n";
        let file = JobFile::parse(text, "t").unwrap();
        let expected = "[one]\nfilename=null:size=1T\nrw=randrw\nrwmixread=70\nbs=4k,64k\nruntime=5400s\ntime_based\n\
                        \n[job]\nname=global\nrw=randrw\nrwmixread=70\nbs=4k,64k\nsize=10z\nruntime=5400s\nzonemode=zbd\n";
        assert_eq!(file.to_canonical(), expected);
        assert!(JobFile::parse(expected, "t").unwrap().specs().eq(file.specs()));
    }
}
