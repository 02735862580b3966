use super::*;
use proptest::prelude::*;
use std::path::Path;

/// Returns the problem with a name and the text it refers to.
fn problem(name: &str) -> (String, String) {
    let error = Registry::default().open(name).err().unwrap_or_else(|| panic!("{name:?} is fine"));
    (error.problem().to_string(), name[error.place()].to_owned())
}

fn complains(name: &str, place: &str, about: &str) {
    let (problem, at) = problem(name);
    assert_eq!(at, place, "{name:?}: {problem}");
    assert!(problem.contains(about), "{name:?}: {problem}");
}

fn info(name: &str) -> crate::device::DeviceInfo {
    Registry::default().open(name).unwrap_or_else(|e| panic!("{e}")).info().clone()
}

#[test]
fn every_option_reaches_the_device() {
    let name = "null:size=64M,zone_size=1m,zone_capacity=768K,zone_nr_conv=2,zone_max_open=4,zone_max_active=6,\
        zone_append_max_sectors=64,blocksize=4096,max_sectors=512,write_zeroes_max_sectors=128,complete=poll,\
        completion_nsec=10,hw_queue_depth=8,submit_queues=3,fua=0,rotational=1,preserves_write_order,personality=zbc,\
        lock=device,zone_full=1,mbps=7,zone_readonly=3-4:6,zone_offline=5,badblocks=8-15:64,badblocks_once,\
        badblocks_partial_io=1";
    let info = info(name);
    assert_eq!(info.name, name);
    assert_eq!((info.geometry.zones(), info.geometry.conventional_zones()), (64, 2));
    assert_eq!((info.geometry.zone_size().0, info.geometry.zone_capacity().0), (2048, 1536));
    assert_eq!((info.open_max, info.active_max), (4, 6));
    assert_eq!((info.append_sectors_max, info.write_zeroes_sectors_max), (64, 128));
    assert_eq!((info.block_sectors, info.command_sectors_max), (8, 512));
    assert_eq!((info.queues, info.fua, info.rotational, info.keeps_order), (3, false, true, true));
    assert_eq!(info.personality, zonal_core::Personality::Zbc);
    let device = Registry::default().open(name).unwrap();
    assert_eq!(device.badblocks(None), Ok(vec![(8, 15), (64, 64)]));
    let zones = crate::volume::report(&*device, zonal_core::Sector(3 * 2048), 5).unwrap();
    use zonal_core::ZoneCondition::{Full, Offline, ReadOnly};
    assert_eq!(
        zones.iter().map(|z| z.condition).collect::<Vec<_>>(),
        [ReadOnly, ReadOnly, Offline, ReadOnly, Full]
    );
}

#[test]
fn kind_without_options_takes_the_defaults() {
    for name in ["null", "null:", "ram"] {
        assert_eq!(info(name).geometry.zone_size().0, 256 << 11, "{name}");
    }
    assert_eq!(info("ram").geometry.sectors().0, 8 << 21);
}

#[test]
fn unknown_words_get_the_nearest_known_one() {
    complains("nul:size=1G", "nul", "did you mean \"null\"");
    complains("null:zone_sise=1G", "zone_sise", "did you mean \"zone_size\"");
    complains("null:zone_max_opne=3", "zone_max_opne", "did you mean \"zone_max_open\"");
    complains(
        "xyzzy:size=1G",
        "xyzzy",
        "known kinds: concat, image, null, ram, crypt, fault, linear, trace; or give a path",
    );
    assert!(!problem("null:frobnicate=1").0.contains("did you mean"));
}

#[test]
fn wrong_values_are_named_with_their_place() {
    complains("null:size=1X", "1X", "not a size");
    complains("null:size=", "size=", "needs a value");
    complains("null:size", "size", "needs a value");
    complains("null:size=-1", "-1", "not a size");
    complains("null:size=+1", "+1", "not a size");
    complains("null:size=1.5G", "1.5G", "not a size");
    complains("null:size=16384P", "16384P", "too large");
    complains("null:size=99999999999999999999", "99999999999999999999", "too large");
    complains("null:zone_max_open=4294967296", "4294967296", "at most 4294967295");
    complains("null:zone_max_open=1k", "1k", "not a whole number");
    complains("null:fua=yes", "yes", "0 or 1");
    complains("null:complete=later", "later", "one of inline, poll");
    complains("null:personality=scsi", "scsi", "one of zns, zbc");
    complains("null:size=1G,,fua=1", "", "missing between commas");
    complains("null:size=1G,", "", "missing between commas");
    complains("null:size=1G,size=2G", "size", "twice");
    complains("null:cache_size=1M", "cache_size=1M", "no volatile cache");
    complains("null:badblocks=8-7", "8-7", "such as 7 or 7-9:12-15");
    complains("null:zone_offline=a", "a", "such as 7 or 7-9:12-15");
    complains("crypt:+null", "crypt:", "crypt needs key=FILE");
    complains("crypt:key=+null", "key=", "needs a value");
    complains("crypt:key=/nowhere+null", "crypt:key=/nowhere", "/nowhere: cannot read the key: No such file");
    complains("crypt:kye=a+null", "kye", "did you mean \"key\"");
}

#[test]
fn options_that_do_not_fit_together_are_refused_as_a_whole() {
    complains("null:size=0", "null:size=0", "cannot be divided");
    complains("null:zone_size=3M", "null:zone_size=3M", "power of two");
    complains("null:blocksize=8192", "null:blocksize=8192", "blocksize");
    complains("null:size=1000", "null:size=1000", "multiple of the block");
    complains("null:zone_capacity=512M", "null:zone_capacity=512M", "zone capacity");
    complains(
        "null:zone_max_open=5,zone_max_active=3",
        "null:zone_max_open=5,zone_max_active=3",
        "max active",
    );
    complains("null:submit_queues=0", "null:submit_queues=0", "submit_queues");
    complains("null:hw_queue_depth=0", "null:hw_queue_depth=0", "hw_queue_depth");
    complains("null:max_sectors=0", "null:max_sectors=0", "max_sectors");
    complains("ram:size=1P,zone_size=4k", "ram:size=1P,zone_size=4k", "");
    complains("null:size=64T,zone_size=4k", "null:size=64T,zone_size=4k", "zones");
}

#[test]
fn h39_open_limit_above_the_active_one_is_refused() {
    complains(
        "null:zone_max_open=5,zone_max_active=3",
        "null:zone_max_open=5,zone_max_active=3",
        "above max active",
    );
}

#[test]
fn empty_names_and_wrappers_around_nothing_are_refused() {
    complains("", "", "empty");
    for name in ["twice", "twice:", "twice+", "twice:a=1", "twice:+"] {
        let error = registry().parse(name).unwrap_err();
        assert!(matches!(error.problem(), NameProblem::NothingWrapped), "{name}: {error}");
    }
    let deep = "twice+".repeat(1000) + "null";
    assert!(registry().parse(&deep).unwrap_err().to_string().contains("wrappers"));
}

/// Registry of the builtin kinds, `echo`, which fails to open with its text as error, and the
/// wrapper `twice`, which fails to wrap if it has the option `refuse`.
fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add_kind("echo", |part| {
        let text = part.text().to_owned();
        Ok(Box::new(move |_mode| Err(text.into())))
    });
    registry.add_wrapper("twice", |part| {
        let mut options = part.options()?;
        let mut refuse = false;
        options.flag("refuse", &mut refuse)?;
        options.finish()?;
        Ok(Box::new(move |device| if refuse { Err("will not".into()) } else { Ok(device) }))
    });
    registry
}

#[test]
fn wrappers_nest_and_their_errors_have_their_places() {
    assert!(registry().open("twice+twice:refuse=0+null:size=1G").is_ok());
    for (name, place, text) in [
        ("twice+twice:refuse+null", "twice:refuse", "will not"),
        ("twice:refuse+echo:lost", "echo:lost", "lost"),
        ("twice:refuze+null", "refuze", "did you mean \"refuse\""),
        ("twice+null:siz=3", "siz", "did you mean \"size\""),
        ("twice+nul:size=3", "nul", "did you mean \"null\""),
    ] {
        let error = registry().open(name).err().unwrap();
        assert_eq!(&name[error.place()], place);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn text_of_a_kind_is_its_own_affair() {
    let text = "//127.0.0.1:4420/nqn.2014-08.org:a+b,c";
    let error = registry().open(&format!("echo:{text}")).err().unwrap();
    assert_eq!(error.problem().to_string(), text);
}

#[test]
fn paths_stand_for_images() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["missing.img", "a+b:c=d,e"] {
        let path = dir.path().join(file);
        let path = path.to_str().unwrap();
        for name in [path.to_owned(), format!("image:[{path}]")] {
            let error = Registry::default().open(&name).err().unwrap();
            assert_eq!(error.place(), 0..name.len());
            assert!(matches!(error.problem(), NameProblem::Refused(_)), "{error}");
        }
    }
    assert!(Registry::default().parse("disk.img").is_ok());
    assert!(Registry::default().parse("./null:size=1").is_ok());
}

/// Creates a directory with an image of this name.
fn image(file: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(file);
    let options =
        crate::image::ImageOptions { size: Some(64 << 20), zone_size: Some(1 << 20), ..Default::default() };
    options.create(&path).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn every_option_of_an_image_reaches_it() {
    let (_dir, path) = image("d");
    let plain = info(&format!("image:{path}"));
    assert_eq!(
        (plain.queues, plain.command_sectors_max, plain.keeps_order, plain.read_only),
        (1, 2048, false, false)
    );
    let all = "threads=0,submit_queues=3,hw_queue_depth=2,max_sectors=64,preserves_write_order=1,readonly=1";
    for name in [format!("image:{path},{all}"), format!("image:[{path}],{all}")] {
        let info = info(&name);
        assert_eq!(
            (info.queues, info.command_sectors_max, info.keeps_order, info.read_only),
            (3, 64, true, true)
        );
        assert_eq!(info.name, format!("image:{path}"), "of the image, however it is opened");
    }
    // Two readers share the image. A flag without a value is set; 0 leaves the mode to the opener.
    let reader = Registry::default().open(&format!("image:{path},readonly")).unwrap();
    assert!(reader.info().read_only && info(&format!("image:{path},readonly=1")).read_only);
    drop(reader);
    assert!(!info(&format!("image:{path},readonly=0")).read_only);
    assert!(Registry::default().open_to_read(&format!("image:{path},readonly=0")).unwrap().info().read_only);
    // Without helper threads, a flush completes inline.
    for (threads, is_inline) in [(0, true), (2, false)] {
        use crate::device::{Command, Context, Submitted};
        use zonal_core::{Nanos, Op, Sector};
        let device = Registry::default().open(&format!("image:{path},threads={threads}")).unwrap();
        let flush = Command::new(Op::Flush, Sector(0), 0);
        let submitted = device.submit(Nanos(0), 0, &flush, &mut Some(Context::token(1)));
        assert_eq!(matches!(submitted, Submitted::Done(Ok(_))), is_inline, "{threads}");
    }
}

#[test]
fn wrong_options_of_an_image_are_named_with_their_place() {
    complains("image:d,thread=1", "thread", "did you mean \"threads\"");
    complains(
        "image:d,size=1G",
        "size",
        "no such option; a path with a comma needs brackets: `image:[PATH]`",
    );
    complains("image:a,b.img", "b.img", "a path with a comma needs brackets: `image:[PATH]`");
    complains("image:d,", "", "missing between commas");
    complains("image:d,,threads=1", "", "missing between commas");
    complains("image:d,threads=1,threads=2", "threads", "twice");
    complains("image:d,threads=257", "257", "at most 256");
    complains("image:d,submit_queues=0", "submit_queues=0", "at least 1");
    complains("image:d,hw_queue_depth=0", "hw_queue_depth=0", "at least 1");
    complains("image:d,max_sectors=0", "max_sectors=0", "at least 1");
    complains("image:d,mbps=1000001", "1000001", "at most 1000000");
    complains("image:d,badblocks=1-2", "badblocks=1-2", "zonal create");
    complains("image:d,cache_size=1", "cache_size=1", "volatile cache, of any size");
    complains("image:d,submit_queues=65537", "65537", "at most 65536");
    complains("image:d,readonly=yes", "yes", "0 or 1");
    complains("image:[d", "[d", "matching brackets");
    complains("image:[d]x", "x", "expected a comma and options");
    complains("image:,threads=1", "image:,threads=1", "image needs a path");
    complains("image:[]", "image:[]", "image needs a path");
}

#[test]
fn image_path_with_commas_and_brackets_is_opened_and_named() {
    for file in ["a,b.img", "threads=4,x", "[a],b", "a[,]", "a+b:c=d,e"] {
        let (_dir, path) = image(file);
        let name = format!("image:[{path}]");
        for spelled in [path.clone(), name.clone(), format!("image:[{path}],threads=0,readonly=1")] {
            assert_eq!(info(&spelled).name, name, "{spelled}");
        }
        assert_eq!(info(&format!("concat:[image:[{path}],readonly=1]")).geometry.zones(), 64, "{file}");
    }
    // Within the directory, where a path need not begin with a slash.
    assert!(Registry::default().parse("image:[a,b],threads=2").is_ok());
    assert!(Registry::default().parse("a,b").is_ok(), "just a path");
    assert!(Registry::default().parse("./d,threads=2").is_ok(), "just a path");
}

#[test]
#[should_panic(expected = "registered twice")]
fn kind_registered_twice_is_a_bug() {
    Registry::default().add_wrapper("null", |_| unreachable!());
}

#[test]
fn sizes_have_the_units_of_gnu_programs() {
    for (text, size) in [
        ("0", 0),
        ("512", 512),
        ("512b", 512),
        ("1k", 1 << 10),
        ("3M", 3 << 20),
        ("3Mi", 3 << 20),
        ("3mib", 3 << 20),
        ("3MB", 3_000_000),
        ("1kb", 1000),
        ("1p", 1 << 50),
    ] {
        assert_eq!(parse_size(text).unwrap(), size);
    }
    for text in ["", "k", "1kbb", "1bk", "1ib", "1 k", "0x10", "１", "1e3", "k1"] {
        assert!(parse_size(text).is_err(), "{text:?}");
    }
}

/// Names that once failed, and crafted ones: none may panic, and every error refers to a part of
/// the name.
#[test]
fn corpus_of_names_is_answered() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/name");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        answer(&String::from_utf8_lossy(&bytes));
        files += 1;
    }
    assert!(files >= 20, "{files} names");
}

/// Entry point of the fuzzer.
fn answer(name: &str) {
    if let Err(error) = registry().parse(name) {
        assert!(name.get(error.place()).is_some());
        assert!(!error.to_string().is_empty());
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(name in ".{0,60}") {
        answer(&name);
    }

    #[test]
    fn text_that_looks_like_a_name_is_answered(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "null", "ram", "image", "twice", "size", "zone_size", "fua", ":", "+", ",", "=", "1", "0", "4k", "P",
                "18446744073709551615", "é", "/", ".", " ", "refuse", "concat:", "[", "]", "[null]", "linear", "fault", "torn",
            ]),
            0..16,
        ),
    ) {
        answer(&words.concat());
    }
}
