//! Devices by name.
//!
//! ```text
//! name     = wrapper [":" options] "+" name
//!          | kind ":" rest | kind | path
//! options  = option { "," option }      option = key "=" value | key
//! ```
//!
//! A kind creates a device from the text behind its colon. This may be options
//! (`null:size=1T,zone_size=256M`); a path and options (`image:disk.img,threads=4`, or
//! `image:[a,b.img],threads=4` for a path with a comma); device names in brackets
//! (`concat:[null:size=1G][disk.img]`); or a format of its own. A wrapper creates a device on top
//! of another (`trace:file=out.txt+null:size=1G`); its options cannot contain a plus sign. A name
//! that begins with `/` or `.`, or that has no colon and is not a kind, is a path as a whole and
//! has no options.
//!
//! Parsing a name and opening the device are separate steps. [`Registry::parse`] touches no file
//! and allocates almost nothing, so it can be given untrusted input.

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
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a device from its parsed name, for reading or for writing.
pub type Open = Box<dyn FnOnce(OpenMode) -> Result<Arc<dyn Device>, Box<dyn Error + Send + Sync>> + Send>;

/// Wraps a device in a wrapper from its parsed name.
pub type Wrap =
    Box<dyn FnOnce(Arc<dyn Device>) -> Result<Arc<dyn Device>, Box<dyn Error + Send + Sync>> + Send>;

type DeviceKind = Box<dyn Fn(&Part<'_>) -> Result<Open, NameError> + Send + Sync>;
type PathOpener = Arc<dyn Fn(&Path) -> Option<Open> + Send + Sync>;
type Wrapper = Box<dyn Fn(&Part<'_>) -> Result<Wrap, NameError> + Send + Sync>;

/// Maximum number of wrappers in a name. More are a mistake, and would overflow the stack.
const WRAPPERS_MAX: usize = 32;

/// Maximum number of devices combined by one part of a name.
const DEVICES_MAX: usize = 1024;

/// Maximum nesting depth of devices in a name, for the same reason.
const DEPTH_MAX: usize = 8;

/// Part of a name that is parsed by one kind or wrapper: the text behind its colon.
pub struct Part<'a> {
    registry: &'a Registry,
    /// Nesting depth of this name.
    depth: usize,
    name: &'a str,
    /// Location of the whole part, for errors that do not concern a single option.
    whole: Range<usize>,
    at: Range<usize>,
}

impl<'a> Part<'a> {
    /// Name of the device created by this part: this part of the whole name, and everything it
    /// wraps.
    pub fn name_from_here(&self) -> &'a str {
        &self.name[self.whole.start..]
    }

    /// Opens a path that is given without a kind: by the first opener that knows what is there, or
    /// else by `otherwise`.
    pub(super) fn open_path(&self, path: PathBuf, otherwise: Open) -> Open {
        let openers = self.registry.path_openers.clone();
        Box::new(move |mode| openers.iter().find_map(|opener| opener(&path)).unwrap_or(otherwise)(mode))
    }

    /// Returns the text.
    pub fn text(&self) -> &'a str {
        &self.name[self.at.clone()]
    }

    /// True if the name states the kind; otherwise the text is a bare path.
    pub fn has_kind(&self) -> bool {
        self.whole.start != self.at.start
    }

    /// Parses the text as options.
    ///
    /// # Errors
    /// [`NameError`] if an option is empty or occurs twice.
    pub fn options(&self) -> Result<Options<'a>, NameError> {
        Options::new(self.name, self.at.clone())
    }

    /// Parses the text as a path, optionally followed by a comma and options: `PATH` or
    /// `PATH,key=value`. The path ends at the first comma unless it is in brackets, `[PATH]` or
    /// `[PATH],key=value`. Brackets inside have to match.
    ///
    /// # Errors
    /// [`NameError`] if the closing bracket is followed by anything but a comma, and those of
    /// [`Part::options`].
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
            // A trailing comma means that an option is missing.
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

    /// Parses the text as a list of device names in brackets. Brackets inside have to match.
    ///
    /// # Errors
    /// [`NameError`] if the text is not such a list, or one of the names is invalid.
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

    /// Parses the device name in `name[at]`.
    fn device(&self, at: Range<usize>) -> Result<Plan, NameError> {
        if self.depth == DEPTH_MAX {
            return Err(self.refused(format!("more than {DEPTH_MAX} nested devices")));
        }
        self.registry.parse_piece(self.name, at, self.depth + 1)
    }

    /// Creates an error that concerns this part as a whole.
    pub fn refused(&self, error: impl Into<Box<dyn Error + Send + Sync>>) -> NameError {
        NameError::new(self.name, self.whole.clone(), NameProblem::Refused(error.into()))
    }
}

/// Length of the text between the bracket at the start of `text` and its closing bracket.
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

/// Known kinds of devices and wrappers.
pub struct Registry {
    kinds: BTreeMap<&'static str, DeviceKind>,
    wrappers: BTreeMap<&'static str, Wrapper>,
    path_kind: Option<&'static str>,
    path_openers: Vec<PathOpener>,
}

impl Default for Registry {
    /// Registry of the devices of this crate.
    fn default() -> Registry {
        let mut registry = Registry::empty();
        builtin::register(&mut registry);
        registry
    }
}

impl Registry {
    /// Registry without any kinds.
    pub fn empty() -> Registry {
        Registry {
            kinds: BTreeMap::new(),
            wrappers: BTreeMap::new(),
            path_kind: None,
            path_openers: Vec::new(),
        }
    }

    /// Adds a kind of device: `understand` parses a [`Part`] and returns a function that opens the
    /// device.
    ///
    /// # Panics
    /// If the name is already in use.
    pub fn add_kind(
        &mut self,
        kind: &'static str,
        understand: impl Fn(&Part<'_>) -> Result<Open, NameError> + Send + Sync + 'static,
    ) {
        assert!(!self.knows(kind), "device kind {kind:?} is registered twice");
        self.kinds.insert(kind, Box::new(understand));
    }

    /// Adds a wrapper: `understand` parses a [`Part`] and returns a function that wraps a device.
    ///
    /// # Panics
    /// If the name is already in use.
    pub fn add_wrapper(
        &mut self,
        wrapper: &'static str,
        understand: impl Fn(&Part<'_>) -> Result<Wrap, NameError> + Send + Sync + 'static,
    ) {
        assert!(!self.knows(wrapper), "device wrapper {wrapper:?} is registered twice");
        self.wrappers.insert(wrapper, Box::new(understand));
    }

    /// Sets the kind of device for names that are only a path.
    pub fn set_path_kind(&mut self, kind: &'static str) {
        self.path_kind = Some(kind);
    }

    /// Lets a name that is only a path be something else than a file of the path kind: `opener`
    /// looks at the path when the device is opened, and returns `None` if it is not its kind.
    pub fn add_path_opener(&mut self, opener: impl Fn(&Path) -> Option<Open> + Send + Sync + 'static) {
        self.path_openers.push(Arc::new(opener));
    }

    fn knows(&self, word: &str) -> bool {
        self.kinds.contains_key(word) || self.wrappers.contains_key(word)
    }

    /// Parses `name` without opening anything.
    ///
    /// # Errors
    /// [`NameError`] with the problem and its location.
    pub fn parse(&self, name: &str) -> Result<Plan, NameError> {
        self.parse_piece(name, 0..name.len(), 0)
    }

    /// Parses `whole[at]`, nested inside `depth` other names.
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

    /// Parses `name` and opens the device.
    ///
    /// # Errors
    /// [`NameError`] with the problem and its location.
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

    /// Parses `name` and opens the device for reading: see [`Plan::open_to_read`].
    ///
    /// # Errors
    /// [`NameError`] with the problem and its location.
    pub fn open_to_read(&self, name: &str) -> Result<Arc<dyn Device>, NameError> {
        self.parse(name)?.open_to_read()
    }

    /// Parses the first piece of the name, starting at byte `from`.
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
    /// A wrapper, its part, and the start of the remaining name.
    Wrapper(&'r Wrapper, Part<'n>, usize),
    Device(&'r DeviceKind, Part<'n>),
}

/// A parsed name.
pub struct Plan {
    name: String,
    /// Outermost first, with their location in the name.
    wrappers: Vec<(Range<usize>, Wrap)>,
    device: (Range<usize>, Open),
}

impl Plan {
    /// Opens the device and its wrappers, from the inside out.
    ///
    /// # Errors
    /// [`NameError`] with the location of the part that failed.
    pub fn open(self) -> Result<Arc<dyn Device>, NameError> {
        self.open_for(OpenMode::Writing)
    }

    /// Opens the device for reading, without changing anything it stores. A device that keeps
    /// nothing after it is closed ignores this and remains writable.
    ///
    /// # Errors
    /// As for [`Plan::open`].
    pub fn open_to_read(self) -> Result<Arc<dyn Device>, NameError> {
        self.open_for(OpenMode::Reading)
    }

    /// Opens the device in `mode`.
    ///
    /// # Errors
    /// As for [`Plan::open`].
    pub fn open_for(self, mode: OpenMode) -> Result<Arc<dyn Device>, NameError> {
        let Plan { name, wrappers, device: (at, open) } = self;
        let refused = |at| {
            |error: Box<dyn Error + Send + Sync>| match error.downcast::<NameError>() {
                // The error of a nested device already has a location in this name.
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
