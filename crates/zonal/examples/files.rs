//! Files on a drive in a file: create, write, sync, and read them after reopening.
//! `cargo run -p zonal --example files`.

use zonal::fs::FileKind;
use zonal::fs::{FileSystem, NewFile, Payload, ROOT, Target};
use zonal::image::ImageOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("drive.img");
    ImageOptions::default().with_size(1 << 30).with_zone_size(16 << 20).create(&path)?;
    let name = path.to_string_lossy();
    let text = b"Each zone takes writes only at its write pointer.".repeat(1000);

    let fs = FileSystem::format(zonal::open(&name)?)?;
    let waiter = fs.waiter();
    let notes = fs.create(&*waiter, ROOT, b"notes", &NewFile::new(FileKind::Directory, 0o755))?;
    let file = fs.create(&*waiter, notes, b"zones.txt", &NewFile::new(FileKind::File, 0o644))?;
    // While a file is open, consecutive writes are collected into units.
    let open = fs.open_file(file)?;
    for (n, line) in text.chunks(49).enumerate() {
        fs.write(&*waiter, file, n as u64 * 49, Payload::Bytes(line))?;
    }
    // From here on, the data and the name are durable. An unsynced file may be lost in a power cut.
    fs.fsync(&*waiter, file)?;
    open.close(&*waiter)?;
    drop(fs);

    let fs = FileSystem::mount(zonal::open(&name)?)?;
    let (waiter, file) = (fs.waiter(), fs.resolve(b"notes/zones.txt")?);
    let mut read = vec![0; fs.attributes(file)?.size as usize];
    // Reading verifies the checksum of each block.
    fs.read(&*waiter, file, 0, Target::Bytes(&mut read))?;
    assert!(read == text);
    println!("{} bytes read after reopening", read.len());
    Ok(())
}

#[test]
fn files_persist_across_reopening() {
    main().unwrap();
}
