//! Escaping of untrusted text, such as file names, for display.
//!
//! A name may contain any byte but zero and the slash. Printed as it is, a newline would start
//! another line of output, and an escape sequence would control the terminal.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Escapes control characters and invalid UTF-8 in a name or path, and doubles backslashes, so that
/// different names never look alike.
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

/// Like [`shown`], for a word of the command line.
pub fn shown_word(word: &OsStr) -> String {
    shown(word.as_bytes())
}

/// Escapes control characters in a line of text.
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

/// True for characters that affect a terminal: control characters, line separators, and
/// bidirectional overrides.
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
