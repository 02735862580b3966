//! Wrapping of text to the width of the terminal.

use rustix::termios::tcgetwinsize;
use std::io::stdout;

/// Number of columns if standard output is not a terminal.
pub(crate) const COLUMNS: usize = 100;

/// Minimum number of columns for wrapping.
const COLUMNS_MIN: usize = 40;

/// Number of columns of the terminal on standard output, or [`COLUMNS`].
pub(crate) fn columns() -> usize {
    let terminal = tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col));
    terminal.filter(|columns| *columns > 0).map_or(COLUMNS, |columns| columns.max(COLUMNS_MIN))
}

/// Wraps `text`, which consists of paragraphs and of rows with a name and its meaning, to `columns`.
///
/// A line indented by two spaces starts a row. At least two spaces separate its name from the
/// meaning, which gets a hanging indent. Lines indented further continue the row; lines without
/// indentation form paragraphs.
pub(crate) fn hanging(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut block: Option<Block> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match &mut block {
            Some(block) if !line.trim().is_empty() && block.continues(indent) => block.add(line),
            _ => {
                block.take().into_iter().for_each(|block| block.write(columns, &mut out));
                match line.trim().is_empty() {
                    true => out.push('\n'),
                    false => block = Some(Block::begin(line, indent)),
                }
            }
        }
    }
    block.into_iter().for_each(|block| block.write(columns, &mut out));
    out
}

/// Paragraph or row.
struct Block {
    /// Name of a row with the spaces around it; empty for a paragraph.
    head: String,
    /// Column of the row's meaning, if known.
    column: Option<usize>,
    text: String,
}

impl Block {
    fn begin(line: &str, indent: usize) -> Block {
        if indent == 0 {
            return Block { head: String::new(), column: Some(0), text: line.trim().to_owned() };
        }
        let row = line.trim();
        match row.find("  ") {
            Some(end) => {
                let text = row[end..].trim_start();
                let column = line.len() - text.len();
                Block { head: line[..column].to_owned(), column: Some(column), text: text.to_owned() }
            }
            None => Block { head: line.to_owned(), column: None, text: String::new() },
        }
    }

    /// True if a line with this indentation belongs to the block.
    fn continues(&self, indent: usize) -> bool {
        if self.head.is_empty() { indent == 0 } else { indent > 2 }
    }

    fn add(&mut self, line: &str) {
        let text = line.trim_start();
        self.column.get_or_insert(line.len() - text.len());
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text += text;
    }

    fn write(&self, columns: usize, out: &mut String) {
        // If there is no room beside a wide name, the meaning is put below it.
        let column = self.column.unwrap_or_default();
        let column = if column + columns / 4 > columns { 6 } else { column };
        let indent = " ".repeat(column);
        let options = textwrap::Options::new(columns).subsequent_indent(&indent).break_words(false);
        // Not at hyphens, which are part of the names of options and modes.
        let options = options.word_splitter(textwrap::WordSplitter::NoHyphenation);
        let width = self.head.trim_end().len();
        if self.text.is_empty() || (width > 0 && width + 2 > column) {
            *out += self.head.trim_end();
            out.push('\n');
            if self.text.is_empty() {
                return;
            }
            *out += &textwrap::fill(&self.text, options.initial_indent(&indent));
        } else {
            let head = format!("{:column$}", self.head.trim_end());
            *out += &textwrap::fill(&self.text, options.initial_indent(&head));
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hang_and_paragraphs_flow() {
        let text = "One two three four five\nsix seven.\n\n  key   meaning of the key in words\n  long-name-alone\n        its meaning\n";
        assert_eq!(
            hanging(text, 40),
            "One two three four five six seven.\n\n  key   meaning of the key in words\n  long-name-alone\n        its meaning\n"
        );
        assert_eq!(
            hanging(text, 24),
            "One two three four five\nsix seven.\n\n  key   meaning of the\n        key in words\n  long-name-alone\n        its meaning\n"
        );
        assert_eq!(hanging(&hanging(text, 24), 40), hanging(text, 40));
    }
}
