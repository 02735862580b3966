//! The `crypt` wrapper: encrypts the sectors of a device, with the format of Linux's dm-crypt.
//!
//! Each sector is encrypted on its own with AES-256 in XTS mode. The tweak is the number of the
//! sector on the wrapped device, so equal data at two addresses differs, and data that a drive
//! returns from another address decrypts to noise. This is `aes-xts-plain64` of dm-crypt with a key
//! of 512 bits and no offset.
//!
//! Owns the key, and the copies and contexts of reads and writes in flight. Other commands pass
//! unchanged, as do conditions, write pointers and order.
//!
//! # Why there is no zone append
//! The address of an append is known only after it was written, but its data has to be encrypted
//! for that address before. So the device reports no native append, and the volume above issues
//! writes at the write pointer instead, as Linux does above dm-crypt. It reports no write-zeroes
//! command for a similar reason: its zeroes have to be encrypted.
//!
//! # Unwritten sectors
//! A sector that contains only zeroes on the wrapped device is returned as zeroes instead of being
//! decrypted, so unwritten, reset and discarded sectors read as they do without encryption, where
//! dm-crypt returns noise. Only one of 2^4096 plaintexts is encrypted to zeroes. As with discards
//! above dm-crypt, the wrapped device shows which sectors are in use.
//!
//! XTS has no authentication: changed data is decrypted to other data, not detected.

use crate::buffer::IoBuf;
use crate::data::{Data, Segment};
use crate::device::{Command, CommandResult, Completed, Context, Device, DeviceInfo, Submitted, Wrapper};
use crate::sync::{Arc, Mutex};
use crate::volume::keeps_data;
use crate::wrap::Slots;
use aes::Aes256;
use aes::cipher::KeyInit;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use xts_mode::{Xts128, get_tweak_default};
use zonal_core::{DeviceError, Nanos, Op, SECTOR_BYTES, Sector, Sectors};

/// Length of a key in bytes: one AES-256 key for the data and one for the tweaks.
pub const KEY_BYTES: usize = 64;

/// Bytes per sector.
const SECTOR: usize = SECTOR_BYTES as usize;

/// Longest key file in bytes that is read: hexadecimal digits with white space around them.
const KEY_FILE_MAX: usize = 1024;

/// Key of a [`Crypt`].
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Error of reading a [`Key`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read.
    #[error("{}: cannot read the key: {source}", .path.display())]
    Io {
        /// Key file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file has another length.
    #[error("{}: not a key: needs 64 bytes, or 128 hexadecimal digits", .path.display())]
    Length {
        /// Key file.
        path: PathBuf,
    },
    /// Both AES keys are the same, which weakens XTS.
    #[error("{}: unsuitable key: its two halves are the same; use 64 random bytes", .path.display())]
    Halves {
        /// Key file.
        path: PathBuf,
    },
}

impl Key {
    /// Reads a key from the file at `path`: 64 bytes, or 128 hexadecimal digits with or without
    /// white space around them.
    ///
    /// # Errors
    /// [`KeyError`] with the file and the problem.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(KEY_FILE_MAX as u64).read_to_end(&mut bytes))
            .map_err(|source| KeyError::Io { path: path.to_owned(), source })?;
        let key = Key::parse(&bytes).ok_or_else(|| KeyError::Length { path: path.to_owned() })?;
        // The standard (IEEE 1619) requires different keys.
        match key.0[..KEY_BYTES / 2] == key.0[KEY_BYTES / 2..] {
            true => Err(KeyError::Halves { path: path.to_owned() }),
            false => Ok(key),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Key> {
        if let Ok(key) = bytes.try_into() {
            return Some(Key(key));
        }
        let digits = bytes.trim_ascii();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Key(key))
    }
}

/// Device that encrypts the data of another device. See the module.
pub struct Crypt {
    info: DeviceInfo,
    inner: Arc<dyn Device>,
    cipher: Cipher,
    /// False if reads leave their memory as it was, because `inner` keeps no data.
    keeps_data: bool,
    /// Commands of the host that were passed on under a token of this wrapper.
    flights: Mutex<Slots<Flight>>,
}

/// A command at the wrapped device.
struct Flight {
    /// The host's context; absent until the wrapped device has accepted the command.
    context: Option<Context>,
    /// Of a read: the address and the memory to decrypt.
    read: Option<(Sector, Data)>,
    /// Of a write: its encrypted data. Never accessed, only kept alive.
    _encrypted: Option<IoBuf>,
}

/// Encrypts and decrypts sectors in place.
struct Cipher(Xts128<Aes256>);

impl Cipher {
    fn new(Key(key): &Key) -> Cipher {
        let half = |bytes: &[u8]| Aes256::new_from_slice(bytes).expect("half of a key has 32 bytes");
        let (data, tweaks) = key.split_at(KEY_BYTES / 2);
        Cipher(Xts128::new(half(data), half(tweaks)))
    }

    /// Encrypts `bytes`, whole sectors from `first` on.
    fn encrypt(&self, first: Sector, bytes: &mut [u8]) {
        for (number, sector) in (first.0..).zip(bytes.chunks_exact_mut(SECTOR)) {
            self.0.encrypt_sector(sector, get_tweak_default(number.into()));
        }
    }

    /// Decrypts `bytes`, whole sectors from `first` on, except unwritten ones.
    fn decrypt(&self, first: Sector, bytes: &mut [u8]) {
        for (number, sector) in (first.0..).zip(bytes.chunks_exact_mut(SECTOR)) {
            if sector.iter().any(|&byte| byte != 0) {
                self.0.decrypt_sector(sector, get_tweak_default(number.into()));
            }
        }
    }

    /// Decrypts the destination of a read from `first` on.
    fn decrypt_data(&self, first: Sector, data: &Data) {
        if data.segments().iter().all(|segment| segment.len().is_multiple_of(SECTOR)) {
            data.for_each_mut(|at, piece| self.decrypt(first + Sectors((at / SECTOR) as u64), piece));
            return;
        }
        // A guest's memory may divide a sector.
        let mut whole = vec![0; data.len()];
        data.for_each(|at, piece| whole[at..at + piece.len()].copy_from_slice(piece));
        self.decrypt(first, &mut whole);
        data.for_each_mut(|at, piece| piece.copy_from_slice(&whole[at..at + piece.len()]));
    }
}

impl Crypt {
    /// Encrypts the data of `inner` with `key`.
    pub fn new(inner: Arc<dyn Device>, key: &Key) -> Crypt {
        let info = DeviceInfo { append_sectors_max: 0, write_zeroes_sectors_max: 0, ..inner.info().clone() };
        let keeps_data = keeps_data(&*inner);
        Crypt { info, inner, cipher: Cipher::new(key), keeps_data, flights: Mutex::default() }
    }

    /// Sets the device name to `name` instead of the inner device's name.
    pub fn named(mut self, name: &str) -> Crypt {
        name.clone_into(&mut self.info.name);
        self
    }

    /// Returns the payload of the write `command` encrypted for its address.
    fn encrypted(&self, command: &Command) -> IoBuf {
        let mut copy = IoBuf::zeroed(u32::try_from(command.data.len()).expect("a command is below 4 GiB"));
        command.data.for_each(|at, piece| copy[at..at + piece.len()].copy_from_slice(piece));
        self.cipher.encrypt(command.sector, &mut copy);
        copy
    }

    /// Decrypts the data of a completed command.
    fn finish(&self, flight: &Flight, result: &CommandResult) {
        if let (Some((sector, data)), Ok(_)) = (&flight.read, result)
            && self.keeps_data
        {
            self.cipher.decrypt_data(*sector, data);
        }
    }
}

impl Wrapper for Crypt {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let mut command = *command;
        let (mut read, mut encrypted) = (None, None);
        match command.op {
            Op::Append | Op::WriteZeroes => return Submitted::Done(Err(DeviceError::Unsupported)),
            Op::Read => read = Some((command.sector, command.data)),
            Op::Write if !command.data.is_empty() => {
                let copy = self.encrypted(&command);
                // SAFETY: the copy is owned by the flight, which ends when the command completes.
                command.data = unsafe { Data::one(Segment::new(copy.as_ptr(), copy.len())) };
                encrypted = Some(copy);
            }
            _ if context.as_ref().is_some_and(Context::is_token) => {}
            _ => return self.inner.submit(now, queue, &command, context),
        }
        // The command may complete on another thread before the inner device returns, so its
        // context is stored first.
        let flight = Flight { context: context.take(), read, _encrypted: encrypted };
        let token = self.flights.lock().put(flight);
        let submitted = self.inner.submit(now, queue, &command, &mut Some(Context::token(token)));
        if matches!(submitted, Submitted::Accepted) {
            return submitted;
        }
        let mut flight = self.flights.lock().take(token);
        if let Submitted::Done(result) = &submitted {
            self.finish(&flight, result);
        }
        *context = flight.context.take();
        submitted
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        // Decrypted after the poll, during which the inner device may hold its lock.
        let mut ours = Vec::new();
        let due = self.inner.poll(now, queue, budget, &mut |c| match c.context.is_token() {
            true => ours.push((c.context.into_token(), c.result)),
            false => done(c),
        });
        for (token, result) in ours {
            let mut flight = self.flights.lock().take(token);
            self.finish(&flight, &result);
            let context = flight.context.take().expect("a submitted command comes with its context");
            done(Completed { context, result });
        }
        due
    }
}

#[cfg(test)]
mod tests;
