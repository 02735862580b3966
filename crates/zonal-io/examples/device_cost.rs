//! What a command costs on the emulated devices, one thread: nanoseconds on `null`, share of a bare copy on `ram`.

use std::hint::black_box;
use std::time::Instant;
use zonal_core::{Nanos, Op, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::data::{Data, Segment};
use zonal_io::device::{Command, Context, Device, Output, Submitted};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null, Ram};

const MIB: usize = 1 << 20;

fn submit(device: &dyn Device, op: Op, sector: u64, sectors: u32, data: Data) {
    submit_with(device, &mut Some(Context::token(0)), op, sector, sectors, data);
}

#[inline(always)]
fn submit_with(
    device: &dyn Device,
    context: &mut Option<Context>,
    op: Op,
    sector: u64,
    sectors: u32,
    data: Data,
) {
    let command = Command { op, fua: false, sectors, sector: Sector(sector), data };
    match device.submit(Nanos(0), 0, &command, context) {
        Submitted::Done(Ok(Output::Done)) => {}
        Submitted::Pending => drop(device.poll(Nanos(0), 0, 64, &mut |c| assert!(c.result.is_ok()))),
        other => panic!("{other:?}"),
    }
}

fn nanoseconds(times: u64, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e9 / times as f64
}

fn null_writes(name: &str, options: &EmulatedOptions) {
    const COUNT: u64 = 20_000_000;
    let device: Box<dyn Device> = Box::new(Emulated::new(name, options, Null).unwrap());
    let device = black_box(&*device);
    let cost =
        nanoseconds(COUNT, || (0..COUNT).for_each(|i| submit(device, Op::Write, i * 8, 8, Data::NONE)));
    println!("null {name}: {cost:.1} ns a write");
}

/// Both halves of the device at once, and what that gains over one thread.
fn null_writes_of_two_threads(options: &EmulatedOptions) {
    const COUNT: u64 = 20_000_000;
    let device = Emulated::new("null", options, Null).unwrap();
    let half = device.info().geometry.sectors().0 / 2;
    let write = |from: u64| {
        let mut context = Some(Context::token(0));
        (0..COUNT).for_each(|i| {
            submit_with(&device, &mut context, Op::Write, from + i * 8, 8, Data::NONE);
        });
    };
    let alone = nanoseconds(COUNT, || write(half));
    submit(&device, Op::ResetAll, 0, 0, Data::NONE);
    let both = nanoseconds(2 * COUNT, || {
        std::thread::scope(|s| {
            s.spawn(|| write(0));
            s.spawn(|| write(half));
        });
    });
    println!("null, two threads: {both:.1} ns a write, {:.2} times one thread", alone / both);
}

fn bytes(buffer: &mut [u8]) -> Data {
    // SAFETY: commands on this device are over when `submit` returns.
    unsafe { Data::one(Segment::new(buffer.as_mut_ptr(), buffer.len())) }
}

fn ram_writes() {
    const TOTAL: usize = 64 * MIB;
    const STEP: usize = 128 << 10;
    const CHUNK: usize = 64 << 10;
    let options = EmulatedOptions { size: TOTAL as u64, zone_size: 16 << 20, ..EmulatedOptions::default() };
    let device = Emulated::new("ram", &options, Ram::new(&options.geometry().unwrap())).unwrap();
    let mut source = IoBuf::zeroed(STEP as u32);
    // Laid out as the device lays out its own memory: where pages lie matters more than anything measured here.
    let mut bare: Vec<IoBuf> = (0..TOTAL / CHUNK).map(|_| IoBuf::zeroed(CHUNK as u32)).collect();
    let (mut copy, mut write) = (f64::MAX, f64::MAX);
    for _ in 0..20 {
        submit(&device, Op::ResetAll, 0, 0, Data::NONE);
        copy = copy.min(nanoseconds(512, || {
            for to in bare.chunks_exact_mut(STEP / CHUNK) {
                let from = source.chunks_exact(CHUNK);
                to.iter_mut().zip(from).for_each(|(to, from)| black_box(to).copy_from_slice(from));
            }
        }));
        let data = bytes(&mut source);
        write = write.min(nanoseconds(512, || {
            (0..512).for_each(|i| submit(&device, Op::Write, i * 256, 256, data));
        }));
    }
    println!("ram 128 KiB writes: {write:.0} ns, bare copy {copy:.0} ns, {:.2} of it", copy / write);
}

fn ram_reads() {
    const TOTAL: usize = 512 * MIB;
    const COUNT: u64 = 2_000_000;
    let options = EmulatedOptions { size: TOTAL as u64, zone_size: 64 << 20, ..Default::default() };
    let device = Emulated::new("ram", &options, Ram::new(&options.geometry().unwrap())).unwrap();
    let mut block = vec![7; MIB];
    let data = bytes(&mut block);
    (0..512).for_each(|i| submit(&device, Op::Write, i * 2048, 2048, data));
    let bare = vec![1u8; TOTAL];
    let mut target = vec![0; 4096];
    let random = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & (TOTAL as u64 / 4096 - 1);
    let (mut copy, mut read) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        copy = copy.min(nanoseconds(COUNT, || {
            for i in 0..COUNT {
                black_box(&mut target).copy_from_slice(&bare[random(i) as usize * 4096..][..4096]);
            }
        }));
        let data = bytes(&mut target);
        read = read.min(nanoseconds(COUNT, || {
            (0..COUNT).for_each(|i| submit(&device, Op::Read, random(i) * 8, 8, data));
        }));
    }
    println!("ram 4 KiB random reads: {read:.0} ns, bare copy {copy:.0} ns, {:.2} of it", copy / read);
}

fn main() {
    let options = EmulatedOptions { size: 1 << 40, ..Default::default() };
    null_writes("inline", &options);
    null_writes("with limits", &EmulatedOptions { zone_max_open: 16, ..options.clone() });
    null_writes("polled", &EmulatedOptions { complete: CompleteMode::Poll, ..options.clone() });
    null_writes_of_two_threads(&options);
    ram_writes();
    ram_reads();
}
