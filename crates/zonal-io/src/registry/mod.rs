//! Devices by name.
//!
//! ```text
//! name     = wrapper [":" options] "+" name
//!          | kind ":" rest | kind | path
//! options  = option { "," option }      option = key "=" value | key
//! ```
//!
//! A kind makes a device of what follows its colon: options (`null:size=1T,zone_size=256M`), a path (`image:disk.img`),
//! whatever it likes. A wrapper makes a device out of a device (`trace:file=out.txt+null:size=1G`); its options cannot
//! contain a plus sign. What begins with `/` or `.`, or names no kind and has no colon, is a path.
//!
//! Reading a name and opening the device are two things: [`Registry::parse`] touches no file and takes no memory to
//! speak of, so it may be given anything.

mod builtin;
mod error;
mod options;

pub use error::{NameError, NameProblem};
pub(crate) use options::nearest;
pub use options::{Options, parse_size};

use crate::device::Device;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Opens a device whose name has been understood.
pub type Open = Box<dyn FnOnce() -> Result<Arc<dyn Device>, Box<dyn Error + Send + Sync>> + Send>;

/// Puts a wrapper whose name has been understood around a device.
pub type Wrap =
    Box<dyn FnOnce(Arc<dyn Device>) -> Result<Arc<dyn Device>, Box<dyn Error + Send + Sync>> + Send>;

type Kind = Box<dyn Fn(&Part<'_>) -> Result<Open, NameError> + Send + Sync>;
type Wrapper = Box<dyn Fn(&Part<'_>) -> Result<Wrap, NameError> + Send + Sync>;

/// Most wrappers in one name: deeper is a mistake, and would end at the stack.
const WRAPPERS_MAX: usize = 32;

/// The part of a name that one kind or wrapper is asked to understand: what follows its colon.
pub struct Part<'a> {
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

    /// The text as options.
    ///
    /// # Errors
    /// [`NameError`] if an option is empty or stands there twice.
    pub fn options(&self) -> Result<Options<'a>, NameError> {
        Options::new(self.name, self.at.clone())
    }

    /// The error that this part as a whole is refused with.
    pub fn refused(&self, error: impl Into<Box<dyn Error + Send + Sync>>) -> NameError {
        NameError::new(self.name, self.whole.clone(), NameProblem::Refused(error.into()))
    }
}

/// What device names can begin with.
pub struct Registry {
    kinds: BTreeMap<&'static str, Kind>,
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
        let mut wrappers = Vec::new();
        let mut from = 0;
        loop {
            match self.piece(name, from)? {
                Piece::Wrapper(wrapper, part, next) => {
                    if wrappers.len() == WRAPPERS_MAX {
                        return Err(part.refused(format!("more than {WRAPPERS_MAX} wrappers")));
                    }
                    wrappers.push((part.whole.clone(), wrapper(&part)?));
                    from = next;
                }
                Piece::Device(kind, part) => {
                    let device = (part.whole.clone(), kind(&part)?);
                    return Ok(Plan { name: name.to_owned(), wrappers, device });
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

    /// The first piece of what follows byte `from`.
    fn piece<'n>(&self, name: &'n str, from: usize) -> Result<Piece<'_, 'n>, NameError> {
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
            let part = Part { name, whole: from..plus, at: (after + 1).min(plus)..plus };
            return match plus + 1 == name.len() {
                true => error(from..plus + 1, NameProblem::NothingWrapped),
                false => Ok(Piece::Wrapper(wrapper, part, plus + 1)),
            };
        }
        let has_colon = rest[word.len()..].starts_with(':');
        if let Some(kind) = self.kinds.get(word).filter(|_| has_colon || after == name.len()) {
            let text = (after + 1).min(name.len())..name.len();
            return Ok(Piece::Device(kind, Part { name, whole: to_end, at: text }));
        }
        let looks_like_path = rest.starts_with(['/', '.']) || !has_colon;
        match self.path_kind.and_then(|kind| self.kinds.get(kind)) {
            Some(kind) if looks_like_path => {
                Ok(Piece::Device(kind, Part { name, whole: to_end.clone(), at: to_end }))
            }
            _ => {
                let known: Vec<_> = self.kinds.keys().chain(self.wrappers.keys()).copied().collect();
                let nearest = options::nearest(word, &known);
                error(from..after, NameProblem::UnknownKind { nearest })
            }
        }
    }
}

enum Piece<'r, 'n> {
    /// A wrapper, its part, and where the rest begins.
    Wrapper(&'r Wrapper, Part<'n>, usize),
    Device(&'r Kind, Part<'n>),
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
        let Plan { name, wrappers, device: (at, open) } = self;
        let refused = |at| |error| NameError::new(&name, at, NameProblem::Refused(error));
        let mut device = open().map_err(refused(at))?;
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
