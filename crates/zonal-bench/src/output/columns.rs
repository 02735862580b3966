//! Text in aligned columns.

use std::fmt::Write as _;

/// Formats lines with each column as wide as its widest cell, two blanks apart. The columns in
/// `words` are aligned left, the others right.
pub fn columns<const N: usize>(lines: &[[String; N]], words: &[usize]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if words.contains(&column) { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["name", "n", "unit"], ["größe", "10000", ""]].map(|line| line.map(str::to_owned));
        assert_eq!(columns(&lines, &[0, 2]), "name       n  unit\ngröße  10000\n");
    }
}
