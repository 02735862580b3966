//! Files without a name.

use crate::common::{
    bytes, cases_of, device, make, make_with, number, read_all, reopen, superblock, volume, waiter,
};
use crate::rebuild::rig::{Rig, Where};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use zonal_fs::format::FileKind;
use zonal_fs::store::backend::Memory;
use zonal_fs::{Changes, FileSystem, FsError, MountOptions, NewFile, OpenFile, Payload, ROOT};

#[test]
fn unnamed_file_is_freed_on_close_or_power_cut_unless_linked() {
    let volume = volume(device("ram:size=8M,zone_size=512K,blocksize=4096"));
    let (superblock, memory, options) = (superblock(&volume, 0, 8), Memory::new(), MountOptions::default());
    let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), options);
    let new = NewFile::new(FileKind::File, 0o640);
    let data = bytes(1, 100_000);
    let made = || {
        let file = fs.create_unnamed(&waiter(), &new).unwrap();
        fs.write(&waiter(), file.ino(), 0, Payload::Bytes(&data)).unwrap();
        fs.fsync(&waiter(), file.ino()).unwrap();
        file
    };
    let files = [made(), made(), made(), made(), made()];
    let [closed, dropped, cut, linked, replacing] = files.each_ref().map(OpenFile::ino);
    let [closing, dropping, cutting, linking, kept] = files;
    closing.close(&waiter()).unwrap();
    drop(dropping);
    assert!(matches!(fs.attributes(closed), Err(FsError::NotFound)));
    assert!(matches!(fs.attributes(dropped), Err(FsError::NotFound)));
    assert!(matches!(fs.link(&waiter(), closed, ROOT, b"closed"), Err(FsError::NotFound)));
    fs.link(&waiter(), linked, ROOT, b"linked").unwrap();
    linking.close(&waiter()).unwrap();
    fs.link_over(&waiter(), replacing, ROOT, b"linked").unwrap();
    assert!(matches!(fs.attributes(linked), Err(FsError::NotFound)));
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.attributes(cut).unwrap().links, 0);
    fs.forbid_changes("the power is cut");
    drop((cutting, kept));
    drop(fs);
    let fs = reopen(volume, superblock, memory, options).unwrap();
    assert!(matches!(fs.attributes(cut), Err(FsError::NotFound)));
    assert_eq!(fs.resolve(b"linked").unwrap(), replacing);
    let attributes = fs.attributes(replacing).unwrap();
    assert_eq!((attributes.links, attributes.mode, attributes.size), (1, 0o640, 100_000));
    assert!(read_all(&fs, replacing).unwrap() == data);
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.usage().used, 25);
    fs.check();
    assert!(matches!(
        fs.create_unnamed(&waiter(), &NewFile::new(FileKind::Directory, 0o755)),
        Err(FsError::Invalid(_))
    ));
}

#[test]
fn name_is_taken_over_by_a_file_and_never_from_a_directory() {
    let volume = volume(device("ram:size=8M,zone_size=512K,blocksize=4096"));
    let fs = make_with(volume.clone(), superblock(&volume, 0, 8), Memory::new(), MountOptions::default());
    let new = NewFile::new(FileKind::File, 0o640);
    let directory = fs.create(&waiter(), ROOT, b"d", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
    let old = fs.create(&waiter(), directory, b"f", &new).unwrap();
    fs.write(&waiter(), old, 0, Payload::Bytes(&bytes(1, 9000))).unwrap();
    let file = fs.create_unnamed(&waiter(), &new).unwrap();
    let over = |parent, name| fs.link_over(&waiter(), file.ino(), parent, name);
    assert!(matches!(over(ROOT, b"d"), Err(FsError::IsDirectory)));
    assert!(matches!(over(old, b"x"), Err(FsError::NotDirectory)));
    assert!(matches!(over(ROOT, b"a/b"), Err(FsError::Invalid(_))));
    assert!(matches!(fs.link_over(&waiter(), directory, ROOT, b"x"), Err(FsError::IsDirectory)));
    over(directory, b"f").unwrap();
    over(directory, b"f").unwrap();
    assert_eq!(fs.attributes(file.ino()).unwrap().links, 1);
    over(ROOT, b"free").unwrap();
    let ino = file.ino();
    file.close(&waiter()).unwrap();
    assert_eq!((fs.resolve(b"d/f").unwrap(), fs.resolve(b"free").unwrap()), (ino, ino));
    assert!(matches!(fs.attributes(old), Err(FsError::NotFound)));
    fs.sync(&waiter()).unwrap();
    assert_eq!(fs.usage().used, 0);
    fs.check();
}

#[test]
fn data_of_a_file_that_lost_its_name_share_zones_of_a_short_lifetime() {
    let zones_of = |lifetimes| {
        let volume = volume(device("ram:size=8M,zone_size=512K,blocksize=4096"));
        let options = MountOptions::default().with_lifetimes(lifetimes);
        let fs = make_with(volume.clone(), superblock(&volume, 0, 8), Memory::new(), options);
        let new = NewFile::new(FileKind::File, 0o640);
        let put = |file: &OpenFile, blocks: u64| {
            let data = bytes(1, blocks as usize * 4096);
            fs.write(&waiter(), file.ino(), 0, Payload::Bytes(&data)).unwrap();
            fs.fsync(&waiter(), file.ino()).unwrap();
        };
        let named = |name: &[u8]| {
            let ino = fs.create(&waiter(), ROOT, name, &new).unwrap();
            fs.open_file(ino).unwrap()
        };
        let (stays, goes, said) = (named(b"stays"), named(b"goes"), named(b"said"));
        let long = Changes { lifetime: Some(4), ..Changes::default() };
        fs.set_attributes(&waiter(), said.ino(), &long).unwrap();
        fs.unlink(&waiter(), ROOT, b"goes").unwrap();
        fs.unlink(&waiter(), ROOT, b"said").unwrap();
        let to_be_named = fs.create_unnamed(&waiter(), &new).unwrap();
        put(&stays, 1);
        put(&goes, 2);
        put(&said, 4);
        put(&to_be_named, 8);
        let zones = fs.status().open_zones;
        let mut zones: Vec<_> = zones.into_iter().map(|zone| (zone.lifetime, zone.used / 4096)).collect();
        zones.retain(|(_, used)| *used > 0);
        zones.sort();
        zones
    };
    let of = |zones: &[(&str, u64)]| {
        zones.iter().map(|(lifetime, used)| (lifetime.to_string(), *used)).collect::<Vec<_>>()
    };
    assert_eq!(zones_of(true), of(&[("long", 4), ("not set", 9), ("short", 2)]));
    assert!(zones_of(false).iter().all(|(lifetime, _)| lifetime == "not set"));
}

/// A commit follows right after a file has replaced another under its name, and then the power is
/// cut. Some of the file's data was still in memory when it took the name.
#[test]
fn commit_has_a_new_name_with_all_data_of_its_file() {
    for blocks in [1, 3, 20] {
        let rig = Rig::new(Where::Logged, blocks);
        let fs = rig.open();
        let put = |data: &[u8]| {
            let file = fs.create_unnamed(&waiter(), &NewFile::new(FileKind::File, 0o640)).unwrap();
            fs.write(&waiter(), file.ino(), 0, Payload::Bytes(data)).unwrap();
            fs.link_over(&waiter(), file.ino(), ROOT, b"f").unwrap();
            file
        };
        put(&bytes(1, 70_000)).close(&waiter()).unwrap();
        fs.sync(&waiter()).unwrap();
        let data = bytes(2, blocks as usize * 4096 - 9);
        let kept = put(&data);
        let other = fs.create(&waiter(), ROOT, b"other", &NewFile::new(FileKind::File, 0o640)).unwrap();
        fs.fsync(&waiter(), other).unwrap();
        rig.backing.cut();
        drop((kept, fs));
        let fs = rig.restarted(7).open();
        assert!(read_all(&fs, fs.resolve(b"f").unwrap()).unwrap() == data, "{blocks} blocks");
    }
}

/// A file system on a drive that writes one unit and no others.
fn writes_one_unit() -> FileSystem {
    let (volume, plan) = (
        tempfile::NamedTempFile::new().unwrap(),
        "[[rule]]\non = \"append\"\nskip = 1\nfault = \"refuse\"\nerror = \"medium\"\n",
    );
    std::fs::write(volume.path(), plan).unwrap();
    let device =
        device(&format!("fault:plan={}+ram:size=8M,zone_size=512K,blocksize=4096", volume.path().display()));
    make(crate::common::volume(device), 8, MountOptions::default())
}

#[test]
fn link_over_with_a_failed_data_write_keeps_the_old_file() {
    let fs = writes_one_unit();
    let put = |data: &[u8]| {
        let file = fs.create_unnamed(&waiter(), &NewFile::new(FileKind::File, 0o640)).unwrap();
        fs.write(&waiter(), file.ino(), 0, Payload::Bytes(data)).unwrap();
        let linked = fs.link_over(&waiter(), file.ino(), ROOT, b"f");
        file.close(&waiter()).unwrap();
        linked
    };
    put(&bytes(1, 5000)).unwrap();
    let error = put(&bytes(2, 9000)).unwrap_err();
    assert!(matches!(error, FsError::Write { .. }), "{error}");
    assert!(read_all(&fs, fs.resolve(b"f").unwrap()).unwrap() == bytes(1, 5000));
}

#[test]
fn link_fails_after_a_loss_that_was_reported_before() {
    let (fs, new) = (writes_one_unit(), NewFile::new(FileKind::File, 0o640));
    let old = fs.create(&waiter(), ROOT, b"f", &new).unwrap();
    fs.write(&waiter(), old, 0, Payload::Bytes(&bytes(1, 5000))).unwrap();
    fs.sync(&waiter()).unwrap();
    let file = fs.create_unnamed(&waiter(), &new).unwrap();
    let ino = file.ino();
    fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(2, 9000))).unwrap();
    let is_lost = |result| matches!(result, Err(FsError::Write { ino: lost, .. }) if lost == ino);
    assert!(is_lost(fs.fsync(&waiter(), ino)));
    fs.fsync(&waiter(), ino).unwrap();
    assert!(is_lost(fs.link_over(&waiter(), ino, ROOT, b"f")));
    assert!(is_lost(fs.link_over(&waiter(), ino, ROOT, b"f")));
    assert!(is_lost(fs.link(&waiter(), ino, ROOT, b"g")));
    // Not even if no call uses it meanwhile, and a kernel keeps it.
    fs.know(ino).unwrap();
    file.close(&waiter()).unwrap();
    assert!(is_lost(fs.link_over(&waiter(), ino, ROOT, b"f")));
    fs.forget(&waiter(), ino, 1).unwrap();
    assert!(matches!(fs.attributes(ino), Err(FsError::NotFound)));
    assert!(read_all(&fs, fs.resolve(b"f").unwrap()).unwrap() == bytes(1, 5000));
}

/// The power is cut at any call to the drive while files are replaced. Each file is one of its
/// versions, and not older than the last sync.
#[test]
fn replaced_file_is_the_old_or_the_new_one_after_a_power_cut() {
    const FILES: usize = 5;
    let (first, cases) = (number("ZONAL_SEED", 0), number("ZONAL_CASES", cases_of(3000, 30)));
    let mut cut_within = 0;
    for seed in first..first + cases {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let place = [Where::Conventional, Where::Logged][seed as usize % 2];
        let rig = Rig::new(place, seed);
        let fs = rig.open();
        let names: Vec<_> = (0..FILES).map(|n| format!("f{n}")).collect();
        // Permissible versions of each file, starting with the last durable one.
        let mut versions: Vec<Vec<Vec<u8>>> = vec![Vec::new(); FILES];
        let replace = |name: &str, data: &[u8], is_sent: bool| -> Result<(), FsError> {
            let file = fs.create_unnamed(&waiter(), &NewFile::new(FileKind::File, 0o640))?;
            fs.write(&waiter(), file.ino(), 0, Payload::Bytes(data))?;
            if is_sent {
                file.send(&waiter())?;
            }
            fs.link_over(&waiter(), file.ino(), ROOT, name.as_bytes())
        };
        for (n, name) in names.iter().enumerate() {
            versions[n] = vec![bytes(seed << 8 | n as u64, random.random_range(1..60_000))];
            replace(name, &versions[n][0], false).unwrap();
        }
        fs.sync(&waiter()).unwrap();
        rig.backing.cut_at(rig.backing.calls() + random.random_range(0..80));
        for step in 0..30 {
            let n = random.random_range(0..FILES);
            let data = bytes(seed << 16 | step, random.random_range(1..60_000));
            versions[n].push(data.clone());
            if replace(&names[n], &data, random.random_bool(0.5)).is_err() {
                break;
            }
            if random.random_bool(0.2) && fs.background_step(&waiter()).is_err() {
                break;
            }
            if random.random_bool(0.2) && fs.sync(&waiter()).is_ok() {
                versions.iter_mut().for_each(|of_file| drop(of_file.drain(..of_file.len() - 1)));
            }
        }
        cut_within += u64::from(!rig.backing.is_on());
        drop(fs);
        let fs = rig.restarted(seed ^ 1).open();
        for (name, versions) in names.iter().zip(&versions) {
            let found = read_all(&fs, fs.resolve(name.as_bytes()).unwrap()).unwrap();
            assert!(versions.contains(&found), "ZONAL_SEED={seed}: {name} is none of its versions");
        }
    }
    assert!(cut_within * 2 > cases, "{cut_within} of {cases} cuts came while files were replaced");
}
