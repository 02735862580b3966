//! Devices by name.
//!
//! ```text
//! name     = wrapper [":" options] "+" name
//!          | kind ":" rest | kind | path
//! options  = option { "," option }      option = key "=" value | key
//! ```
//!
//! A kind makes a device of what follows its colon: options (`null:size=1T,zone_size=256M`), a path and options
//! (`image:disk.img,threads=4`; a path with a comma stands in brackets, `image:[a,b.img],threads=4`),
//! names of devices in brackets (`concat:[null:size=1G][disk.img]`), whatever it likes. A wrapper makes a device out of a device
//! (`trace:file=out.txt+null:size=1G`); its options cannot contain a plus sign. What begins with `/` or `.`, or names no
//! kind and has no colon, is a path, all of it: such a name has no options.
//!
//! Reading a name and opening the device are two things: [`Registry::parse`] touches no file and takes no memory to
//! speak of, so it may be given anything.

mod builtin;
mod error;
mod options;

pub use error::{NameError, NameProblem};
pub use options::{Options, parse_size};

use crate::device::{Device, OpenMode};
use crate::words::nearest;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Opens a device whose name has been understood, for reading or for writing.
pub type Open = Box<dyn FnOnce(OpenMode) -> Result<Arc<dyn Device>, Box<dyn Error + Send + Sync>> + Send>;

/// Puts a wrapper whose name has been understood around a device.
pub type Wrap =
    Box<dyn FnOnce(Arc<dyn Device>) -> Result<Arc<dyn Device>, Box<dyn Error + Send + Sync>> + Send>;

type DeviceKind = Box<dyn Fn(&Part<'_>) -> Result<Open, NameError> + Send + Sync>;
type Wrapper = Box<dyn Fn(&Part<'_>) -> Result<Wrap, NameError> + Send + Sync>;

/// Most wrappers in one name: deeper is a mistake, and would end at the stack.
const WRAPPERS_MAX: usize = 32;

/// Most devices that one part of a name puts together.
const DEVICES_MAX: usize = 1024;

/// Most devices inside each other in one name, for the same reason.
const DEPTH_MAX: usize = 8;

/// The part of a name that one kind or wrapper is asked to understand: what follows its colon.
pub struct Part<'a> {
    registry: &'a Registry,
    /// How many names this one stands in.
    depth: usize,
    name: &'a str,
    /// All of it, for what concerns no single option.
    whole: Range<usize>,
    at: Range<usize>,
}

impl<'a> Part<'a> {
    /// The name of the device that this part makes: its own part of the whole name, and what it wraps.
    pub fn name_from_here(&self) -> &'a str {
        &self.name[self.whole.start..]
    }

    /// The text.
    pub fn text(&self) -> &'a str {
        &self.name[self.at.clone()]
    }

    /// Whether the name says which kind it is; otherwise the text is a path that stands for it.
    pub fn has_kind(&self) -> bool {
        self.whole.start != self.at.start
    }

    /// The text as options.
    ///
    /// # Errors
    /// [`NameError`] if an option is empty or stands there twice.
    pub fn options(&self) -> Result<Options<'a>, NameError> {
        Options::new(self.name, self.at.clone())
    }

    /// The text as a path and, after a comma, options: `PATH` or `PATH,key=value`. The path ends at the first comma, unless
    /// it stands in brackets, `[PATH]` or `[PATH],key=value`; brackets inside have to match.
    ///
    /// # Errors
    /// [`NameError`] if something else than a comma follows the closing bracket, or as [`Part::options`].
    pub fn path_and_options(&self) -> Result<(&'a str, Options<'a>), NameError> {
        let text = self.text();
        let (path, after) = match text.starts_with('[') {
            true => {
                let Some(inside) = bracketed(text) else {
                    return Err(NameError::new(self.name, self.at.clone(), NameProblem::OpenBracket));
                };
                (&text[1..=inside], inside + 2)
            }
            false => {
                let end = text.find(',').unwrap_or(text.len());
                (&text[..end], end)
            }
        };
        let end = self.at.end;
        let from = match text[after..].chars().next() {
            None => end..end,
            // Nothing but the comma is an option that is missing.
            Some(',') if after + 1 == text.len() => {
                return Err(NameError::new(self.name, end..end, NameProblem::EmptyOption));
            }
            Some(',') => self.at.start + after + 1..end,
            Some(_) => {
                let rest = self.at.start + after..end;
                return Err(NameError::new(self.name, rest, NameProblem::AfterBracket));
            }
        };
        Ok((path, Options::new(self.name, from)?))
    }

    /// The devices that the text names, each in brackets; brackets inside have to match.
    ///
    /// # Errors
    /// [`NameError`] if the text is something else, or one of the names is wrong.
    pub fn devices(&self) -> Result<Vec<Plan>, NameError> {
        let mut devices = Vec::new();
        let mut from = self.at.start;
        while from < self.at.end || devices.is_empty() {
            let text = &self.name[from..self.at.end];
            let Some(inside) = bracketed(text) else {
                return Err(NameError::new(self.name, from..self.at.end, NameProblem::NotBracketed));
            };
            if devices.len() == DEVICES_MAX {
                return Err(self.refused(format!("more than {DEVICES_MAX} devices")));
            }
            devices.push(self.device(from + 1..from + 1 + inside)?);
            from += inside + 2;
        }
        Ok(devices)
    }

    /// The device that `name[at]` names.
    fn device(&self, at: Range<usize>) -> Result<Plan, NameError> {
        if self.depth == DEPTH_MAX {
            return Err(self.refused(format!("more than {DEPTH_MAX} devices inside each other")));
        }
        self.registry.parse_piece(self.name, at, self.depth + 1)
    }

    /// The error that this part as a whole is refused with.
    pub fn refused(&self, error: impl Into<Box<dyn Error + Send + Sync>>) -> NameError {
        NameError::new(self.name, self.whole.clone(), NameProblem::Refused(error.into()))
    }
}

/// Length of what stands between the bracket that `text` begins with and the bracket that closes it.
fn bracketed(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => open += 1,
            b']' => open = open.checked_sub(1)?,
            _ => {}
        }
        if open == 0 {
            return at.checked_sub(1);
        }
    }
    None
}

/// What device names can begin with.
pub struct Registry {
    kinds: BTreeMap<&'static str, DeviceKind>,
    wrappers: BTreeMap<&'static str, Wrapper>,
    path_kind: Option<&'static str>,
}

impl Default for Registry {
    /// The devices of this crate.
    fn default() -> Registry {
        let mut registry = Registry::empty();
        builtin::register(&mut registry);
        registry
    }
}

impl Registry {
    /// Knows nothing.
    pub fn empty() -> Registry {
        Registry { kinds: BTreeMap::new(), wrappers: BTreeMap::new(), path_kind: None }
    }

    /// Adds a kind of device: `understand` reads a [`Part`] and returns how to open the device.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn add_kind(
        &mut self,
        kind: &'static str,
        understand: impl Fn(&Part<'_>) -> Result<Open, NameError> + Send + Sync + 'static,
    ) {
        assert!(!self.knows(kind), "device kind {kind:?} is registered twice");
        self.kinds.insert(kind, Box::new(understand));
    }

    /// Adds a wrapper: `understand` reads a [`Part`] and returns how to put it around a device.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn add_wrapper(
        &mut self,
        wrapper: &'static str,
        understand: impl Fn(&Part<'_>) -> Result<Wrap, NameError> + Send + Sync + 'static,
    ) {
        assert!(!self.knows(wrapper), "device wrapper {wrapper:?} is registered twice");
        self.wrappers.insert(wrapper, Box::new(understand));
    }

    /// Lets a name that is just a path stand for a device of this kind.
    pub fn set_path_kind(&mut self, kind: &'static str) {
        self.path_kind = Some(kind);
    }

    fn knows(&self, word: &str) -> bool {
        self.kinds.contains_key(word) || self.wrappers.contains_key(word)
    }

    /// Understands `name`, without opening anything.
    ///
    /// # Errors
    /// [`NameError`] with what is wrong and where.
    pub fn parse(&self, name: &str) -> Result<Plan, NameError> {
        self.parse_piece(name, 0..name.len(), 0)
    }

    /// Understands what stands in `whole[at]`, inside `depth` other names.
    fn parse_piece(&self, whole: &str, at: Range<usize>, depth: usize) -> Result<Plan, NameError> {
        let name = &whole[..at.end];
        let mut wrappers = Vec::new();
        let mut from = at.start;
        loop {
            match self.piece(name, from, depth).map_err(|e| e.inside(whole))? {
                NamePiece::Wrapper(wrapper, part, next) => {
                    if wrappers.len() == WRAPPERS_MAX {
                        let problem = format!("more than {WRAPPERS_MAX} wrappers");
                        return Err(part.refused(problem).inside(whole));
                    }
                    wrappers.push((part.whole.clone(), wrapper(&part).map_err(|e| e.inside(whole))?));
                    from = next;
                }
                NamePiece::Device(kind, part) => {
                    let device = (part.whole.clone(), kind(&part).map_err(|e| e.inside(whole))?);
                    return Ok(Plan { name: whole.to_owned(), wrappers, device });
                }
            }
        }
    }

    /// Understands `name` and opens the device.
    ///
    /// # Errors
    /// [`NameError`] with what is wrong and where.
    ///
    /// ```
    /// use zonal_io::registry::Registry;
    /// let device = Registry::default().open("null:size=1T,zone_size=256M")?;
    /// assert_eq!(device.info().geometry.zones(), 4096);
    ///
    /// let error = Registry::default().open("null:sise=1T").err().unwrap();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"device name "null:sise=1T", at "sise": no such option; did you mean "size"?"#,
    /// );
    /// # Ok::<(), zonal_io::registry::NameError>(())
    /// ```
    pub fn open(&self, name: &str) -> Result<Arc<dyn Device>, NameError> {
        self.parse(name)?.open()
    }

    /// Understands `name` and opens the device for reading: see [`Plan::open_to_read`].
    ///
    /// # Errors
    /// [`NameError`] with what is wrong and where.
    pub fn open_to_read(&self, name: &str) -> Result<Arc<dyn Device>, NameError> {
        self.parse(name)?.open_to_read()
    }

    /// The first piece of what follows byte `from`.
    fn piece<'n>(&'n self, name: &'n str, from: usize, depth: usize) -> Result<NamePiece<'n, 'n>, NameError> {
        let registry = self;
        let rest = &name[from..];
        let error = |at, problem| Err(NameError::new(name, at, problem));
        if rest.is_empty() {
            return error(from..from, NameProblem::Empty);
        }
        let to_end = from..name.len();
        let word = rest.split([':', '+']).next().unwrap_or(rest);
        let after = from + word.len();
        if let Some(wrapper) = self.wrappers.get(word) {
            let Some(plus) = name[after..].find('+').map(|plus| after + plus) else {
                return error(to_end, NameProblem::NothingWrapped);
            };
            let part = Part { registry, depth, name, whole: from..plus, at: (after + 1).min(plus)..plus };
            return match plus + 1 == name.len() {
                true => error(from..plus + 1, NameProblem::NothingWrapped),
                false => Ok(NamePiece::Wrapper(wrapper, part, plus + 1)),
            };
        }
        let has_colon = rest[word.len()..].starts_with(':');
        if let Some(kind) = self.kinds.get(word).filter(|_| has_colon || after == name.len()) {
            let text = (after + 1).min(name.len())..name.len();
            return Ok(NamePiece::Device(kind, Part { registry, depth, name, whole: to_end, at: text }));
        }
        let looks_like_path = rest.starts_with(['/', '.']) || !has_colon;
        match self.path_kind.and_then(|kind| self.kinds.get(kind)) {
            Some(kind) if looks_like_path => {
                Ok(NamePiece::Device(kind, Part { registry, depth, name, whole: to_end.clone(), at: to_end }))
            }
            _ => {
                let known: Vec<_> = self.kinds.keys().chain(self.wrappers.keys()).copied().collect();
                let nearest = nearest(word, &known);
                error(from..after, NameProblem::UnknownKind { nearest, known: known.into() })
            }
        }
    }
}

enum NamePiece<'r, 'n> {
    /// A wrapper, its part, and where the rest begins.
    Wrapper(&'r Wrapper, Part<'n>, usize),
    Device(&'r DeviceKind, Part<'n>),
}

/// A name that has been understood.
pub struct Plan {
    name: String,
    /// Outermost first, with their places in the name.
    wrappers: Vec<(Range<usize>, Wrap)>,
    device: (Range<usize>, Open),
}

impl Plan {
    /// Opens the device and what wraps it, from the inside out.
    ///
    /// # Errors
    /// [`NameError`] with the place of what refused.
    pub fn open(self) -> Result<Arc<dyn Device>, NameError> {
        self.open_for(OpenMode::Writing)
    }

    /// The same for reading: nothing of what the device keeps is changed. A device that keeps nothing beyond its closing
    /// does not care, and may be written.
    ///
    /// # Errors
    /// As [`Plan::open`].
    pub fn open_to_read(self) -> Result<Arc<dyn Device>, NameError> {
        self.open_for(OpenMode::Reading)
    }

    /// Opens the device for what `mode` says.
    ///
    /// # Errors
    /// As [`Plan::open`].
    pub fn open_for(self, mode: OpenMode) -> Result<Arc<dyn Device>, NameError> {
        let Plan { name, wrappers, device: (at, open) } = self;
        let refused = |at| {
            |error: Box<dyn Error + Send + Sync>| match error.downcast::<NameError>() {
                // A device inside says itself where in the name it is.
                Ok(error) if name.starts_with(error.name()) => error.inside(&name),
                Ok(error) => NameError::new(&name, at, NameProblem::Refused(error)),
                Err(error) => NameError::new(&name, at, NameProblem::Refused(error)),
            }
        };
        let mut device = open(mode).map_err(refused(at))?;
        for (at, wrap) in wrappers.into_iter().rev() {
            device = wrap(device).map_err(refused(at))?;
        }
        Ok(device)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({:?}, {} wrappers)", self.name, self.wrappers.len())
    }
}

#[cfg(test)]
mod tests;
