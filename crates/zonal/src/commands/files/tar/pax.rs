//! Records of POSIX for values that do not fit a header: `LENGTH KEY=VALUE` and a newline, where
//! the length counts all of it. A value may contain any bytes.

use super::super::kept::{SECOND, Xattr, is_kept};
use super::PIECES_MAX;

/// Prefix of the name of an extended attribute, as in GNU tar and others.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// Maximum number of attributes of a file, and of bytes of one; Linux allows no longer ones.
const XATTRS_MAX: usize = 1000;
const XATTR_MAX: usize = 1 << 16;

/// Values of the records of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    /// Path of a sparse file; `path` is then for programs without support for them.
    pub(super) sparse_path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    /// Bytes in the archive.
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// Nanoseconds since 1970.
    pub(super) mtime: Option<i64>,
    pub(super) atime: Option<i64>,
    pub(super) xattrs: Vec<Xattr>,
    /// Size of a sparse file.
    pub(super) real_size: Option<u64>,
    /// Offsets and lengths of its data, if records have them.
    pub(super) map: Vec<(u64, u64)>,
    /// True if the map is at the beginning of the data.
    pub(super) has_map_in_data: bool,
    /// First invalid record.
    pub(super) problem: Option<String>,
}

/// Appends a record to `into`.
pub(super) fn put(into: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = 3 + key.len() + value.len();
    let mut length = rest + 1;
    while rest + length.to_string().len() > length {
        length = rest + length.to_string().len();
    }
    into.extend_from_slice(format!("{length} ").as_bytes());
    into.extend_from_slice(key);
    into.push(b'=');
    into.extend_from_slice(value);
    into.push(b'\n');
}

/// Characters that are encoded in the name of an attribute, with their encodings.
const ENCODED: [(u8, &[u8; 3]); 2] = [(b'%', b"%25"), (b'=', b"%3D")];

/// Appends the record of an extended attribute, with its name encoded as in GNU tar.
pub(super) fn put_xattr(into: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut key = XATTR.to_vec();
    for sign in name {
        match ENCODED.iter().find(|(plain, _)| plain == sign) {
            Some((_, encoded)) => key.extend_from_slice(*encoded),
            None => key.push(*sign),
        }
    }
    put(into, &key, value);
}

/// Decodes the name of an attribute.
fn decoded(mut name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while let Some((first, rest)) = name.split_first() {
        let (sign, rest) = match ENCODED.iter().find(|(_, encoded)| name.starts_with(*encoded)) {
            Some((sign, encoded)) => (*sign, &name[encoded.len()..]),
            None => (*first, rest),
        };
        plain.push(sign);
        name = rest;
    }
    plain
}

/// Formats a time for a record: seconds since 1970 with a fraction.
pub(super) fn time(nanos: i64) -> String {
    let (seconds, rest) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
    match (seconds < 0, rest) {
        (_, 0) => seconds.to_string(),
        (false, rest) => format!("{seconds}.{rest:09}"),
        // The sign applies to the whole number.
        (true, rest) => format!("-{}.{:09}", -(seconds + 1), SECOND - rest),
    }
}

fn parse_time(text: &str) -> Option<i64> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanos = seconds.parse::<u64>().ok()?;
    let nanos = i128::from(nanos) * i128::from(SECOND) + i128::from(digits.parse::<u32>().ok()?);
    let nanos = if is_negative { -nanos } else { nanos };
    // A time that does not fit saturates.
    Some(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

impl Records {
    /// Adds records; later ones override earlier ones. An invalid one is the
    /// [problem](Records::problem) of the file.
    ///
    /// # Errors
    /// If the records cannot be told apart.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() && bytes[0] != 0 {
            let wrong = || "a record with an invalid length".to_owned();
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
            let length =
                std::str::from_utf8(&bytes[..space]).ok().and_then(|text| text.parse::<usize>().ok());
            let length =
                length.filter(|length| (space + 2..=bytes.len()).contains(length)).ok_or_else(wrong)?;
            let (record, rest) = bytes.split_at(length);
            let record = record[space + 1..].strip_suffix(b"\n").ok_or_else(wrong)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
            if let Err(what) = self.add_one(&record[..equals], &record[equals + 1..]) {
                self.problem.get_or_insert(what);
            }
            bytes = rest;
        }
        Ok(())
    }

    fn add_one(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let text = || std::str::from_utf8(value).map_err(|_| wrong(key));
        let number = || text()?.parse::<u64>().map_err(|_| wrong(key));
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"GNU.sparse.name" => self.sparse_path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number()?),
            b"uid" => self.uid = Some(number()?.try_into().map_err(|_| wrong(key))?),
            b"gid" => self.gid = Some(number()?.try_into().map_err(|_| wrong(key))?),
            b"mtime" => self.mtime = Some(parse_time(text()?).ok_or_else(|| wrong(key))?),
            b"atime" => self.atime = Some(parse_time(text()?).ok_or_else(|| wrong(key))?),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.real_size = Some(number()?),
            b"GNU.sparse.major" => self.has_map_in_data = number()? == 1,
            b"GNU.sparse.offset" if self.map.len() as u64 >= PIECES_MAX => return Err(wrong(key)),
            b"GNU.sparse.offset" => self.map.push((number()?, 0)),
            b"GNU.sparse.numbytes" => self.map.last_mut().ok_or_else(|| wrong(key))?.1 = number()?,
            b"GNU.sparse.map" => {
                let numbers: Result<Vec<u64>, _> = text()?.split(',').map(str::parse).collect();
                let numbers = numbers.map_err(|_| wrong(key))?;
                self.map = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            }
            _ => {
                if let Some(name) = key.strip_prefix(XATTR).map(decoded).filter(|name| is_kept(name)) {
                    self.xattrs.retain(|(other, _)| *other != name);
                    if self.xattrs.len() >= XATTRS_MAX || value.len() > XATTR_MAX {
                        return Err(format!(
                            "attribute {}: too long, or too many attributes",
                            name.escape_ascii()
                        ));
                    }
                    self.xattrs.push((name, value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

fn wrong(key: &[u8]) -> String {
    format!("invalid record {}", key.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        // Lengths whose digits change the length.
        for length in [0, 1, 80, 85, 86, 87, 88, 89, 90, 970, 980, 990, 3000] {
            let value: Vec<u8> = (0..length).map(|i| (i * 7 + 10) as u8).collect();
            bytes.clear();
            put(&mut bytes, b"path", &value);
            put_xattr(&mut bytes, b"user.a=b%3D%c", &value);
            put(&mut bytes, b"uid", b"4000000000");
            let mut records = Records::default();
            records.add(&bytes).unwrap();
            assert_eq!((records.path.as_ref(), records.uid), (Some(&value), Some(4_000_000_000)));
            assert_eq!(records.xattrs, [(b"user.a=b%3D%c".to_vec(), value)]);
        }
    }

    #[test]
    fn times_are_read_as_they_were_written() {
        for nanos in [0, 1, -1, 1_500_000_000, -1_500_000_000, SECOND, -SECOND, i64::MAX, i64::MIN] {
            assert_eq!(parse_time(&time(nanos)), Some(nanos), "{}", time(nanos));
        }
        assert_eq!(parse_time("12.5"), Some(12_500_000_000));
        assert_eq!(parse_time("99999999999999999"), Some(i64::MAX));
        assert_eq!((parse_time("x"), parse_time("")), (None, None));
    }

    #[test]
    fn wrong_records_are_refused() {
        for wrong in ["x", "5 a", "99 a=b\n", "3 a=b\n", "6 a=bc"] {
            assert!(Records::default().add(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        // Invalid records with valid lengths.
        for wrong in ["13 uid=minus\n", "25 GNU.sparse.numbytes=1\n", "10 uid=-2\n", "14 mtime=1e-7\n"] {
            let mut records = Records::default();
            records.add(format!("{wrong}11 path=ab\n").as_bytes()).unwrap();
            assert!(records.problem.is_some() && records.path.as_deref() == Some(b"ab"), "{wrong:?}");
        }
    }
}
