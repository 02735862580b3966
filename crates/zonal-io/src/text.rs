//! Text that comes from elsewhere, such as names of files, for people to read.
//!
//! A name may have any byte but zero and the slash. Shown as it is, a newline in it would begin a line of output of its own, and
//! an escape sequence would steer the terminal.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// A name or a path: control characters and bytes that are no text are escaped, and a backslash is doubled, so that two names
/// never look alike.
pub fn shown(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => shown.push_str("\\\\"),
                _ => push(&mut shown, character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// The same of a word of the command line.
pub fn shown_word(word: &OsStr) -> String {
    shown(word.as_bytes())
}

/// A line of text with its control characters escaped.
pub fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    text.chars().for_each(|character| push(&mut harmless, character));
    harmless
}

fn push(into: &mut String, character: char) {
    match is_control(character) {
        true => into.extend(character.escape_default()),
        false => into.push(character),
    }
}

/// Whether a character steers a terminal: the control characters proper, and those that break lines or turn the direction of
/// writing around.
fn is_control(character: char) -> bool {
    let turns =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns || matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_name_has_one_line_and_is_no_other_names() {
        for (name, expected) in [
            (&b"films/caf\xc3\xa9 1"[..], "films/café 1"),
            (b"a\nb", "a\\nb"),
            (b"a\\nb", "a\\\\nb"),
            (b"\x1b[2J\x07", "\\u{1b}[2J\\u{7}"),
            (b"\x7f\xc2\x9b", "\\u{7f}\\u{9b}"),
            (b"\xff\xfe.txt", "\\xff\\xfe.txt"),
            ("a\u{202e}b\u{2028}".as_bytes(), "a\\u{202e}b\\u{2028}"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[test]
    fn harmless_text_keeps_its_backslashes() {
        assert_eq!(harmless("C:\\x \x1b[31m"), "C:\\x \\u{1b}[31m");
    }
}
