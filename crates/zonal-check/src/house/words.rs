//! Words that the house has plainer ones for: phrases in prose, and names.

use super::{comment_at, name_at};

/// Phrases that do not say which actor is meant.
pub const ACTORS: [&str; 8] =
    ["nobody", "somebody", "anybody", "everybody", "whoever", "one that", "one who", "those who"];

/// Phrases that have a plainer form.
const PLAINER: [&str; 10] = [
    "as long as",
    "so many",
    "anew",
    "by itself",
    "goes on",
    "go on",
    "on its way",
    "on their way",
    "behind",
    "besides",
];

/// Words that no name has as a part.
const PARTS: [&str; 15] = [
    "sheaf", "sheaves", "gather", "gathers", "landed", "patients", "starved", "feed", "redo", "recalled",
    "tend", "fallen", "afloat", "meddling", "hostile",
];

/// Words that no type and no variant is called.
const TYPES: [&str; 13] = [
    "Brief", "Class", "Flight", "Flights", "Ground", "Lot", "Over", "Pending", "Waiter", "Walk", "Whole",
    "World", "Aside",
];

/// Words that a type has to be qualified by more than.
const BARE: [&str; 8] = ["Event", "Kind", "Piece", "Place", "Slot", "Stage", "State", "Step"];

/// A word of prose and its line. An empty word stands for the end of a clause: no phrase goes across it.
pub type Words = Vec<(usize, String)>;

/// The words of a line of prose.
fn add_words(words: &mut Words, number: usize, line: &str) {
    for word in line.split_whitespace() {
        let core = word.trim_matches(|c: char| !c.is_alphanumeric());
        let core = core.strip_suffix("'s").unwrap_or(core);
        words.push((number, core.to_lowercase()));
        if !word.ends_with(|c: char| c.is_alphanumeric()) {
            words.push((number, String::new()));
        }
    }
}

/// The words of a document, or of the comments of a module.
pub fn prose(text: &str, is_code: bool) -> Words {
    let mut words = Words::new();
    for (number, line) in (1..).zip(text.lines()) {
        match comment_at(line) {
            _ if !is_code => add_words(&mut words, number, line),
            Some(at) => add_words(&mut words, number, line[at..].trim_start_matches(['/', '!'])),
            None => words.push((number, String::new())),
        }
    }
    words
}

/// Phrases that are in `words`, with their lines.
pub fn phrases_in(words: &Words) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for phrase in ACTORS.into_iter().chain(PLAINER) {
        let parts: Vec<&str> = phrase.split(' ').collect();
        for run in words.windows(parts.len()) {
            if run.iter().map(|(_, word)| word.as_str()).eq(parts.iter().copied()) {
                found.push((run[0].0, phrase));
            }
        }
    }
    found
}

/// The lengths in words of the sentences of a document, or of the comments of a module. A list's entries are sentences; tables, headings and
/// blocks of code are none.
pub fn sentences(text: &str, is_code: bool) -> Vec<usize> {
    let (mut lengths, mut words, mut in_block) = (Vec::new(), 0, false);
    let mut end = |words: &mut usize| match std::mem::take(words) {
        // A label such as "Units:" is no sentence.
        0..=2 => {}
        length => lengths.push(length),
    };
    for line in text.lines() {
        let line = match comment_at(line) {
            _ if !is_code => line.trim(),
            Some(at) => line[at..].trim_start_matches(['/', '!']).trim(),
            None => "",
        };
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        if in_block || is_fence || line.is_empty() || line.starts_with(['|', '#']) {
            end(&mut words);
            continue;
        }
        if line.starts_with("- ") {
            end(&mut words);
        }
        for word in line.trim_start_matches("- ").split_whitespace() {
            words += 1;
            if word.trim_end_matches(['`', '*', ')', '"']).ends_with(['.', ':', ';', '?', '!']) {
                end(&mut words);
            }
        }
    }
    end(&mut words);
    lengths
}

/// The lower-case parts of a name.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    parts
}

/// Names that a module defines and the house has other words for, with their lines. The name of a test may have any word: it is a
/// sentence, which documents and mutations repeat.
pub fn names_in(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_enum: Option<usize> = None;
    let mut is_test = false;
    for (number, line) in (1..).zip(text.lines()) {
        let code = &line[..comment_at(line).unwrap_or(line.len())];
        let indent = code.len() - code.trim_start().len();
        let mut names: Vec<(&str, bool)> = Vec::new();
        if in_enum == Some(indent) && code.trim() == "}" {
            in_enum = None;
        } else if in_enum.is_some_and(|outer| indent == outer + 4) {
            names.push((name_at(code.trim_start()), false));
        }
        let words: Vec<&str> = code.split_whitespace().collect();
        for pair in words.windows(2) {
            match pair[0] {
                "struct" | "enum" | "trait" | "type" | "union" => names.push((name_at(pair[1]), true)),
                "fn" if is_test => {}
                "fn" | "mod" | "const" | "static" => names.push((name_at(pair[1]), false)),
                _ => {}
            }
        }
        // Other attributes and comments may stand between it and its function.
        is_test =
            code.trim() == "#[test]" || is_test && (code.trim().is_empty() || code.trim().starts_with('#'));
        if words.contains(&"enum") && code.ends_with('{') {
            in_enum = Some(indent);
        }
        for (name, is_type) in names {
            let is_known = PARTS.iter().any(|part| parts_of(name).iter().any(|of| of == part));
            if is_known || TYPES.contains(&name) || is_type && BARE.contains(&name) {
                found.push((number, name.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_that_are_planted_are_found() {
        for phrase in ACTORS.into_iter().chain(PLAINER) {
            let (first, rest) = phrase.split_once(' ').unwrap_or((phrase, ""));
            let capital = phrase[..1].to_uppercase() + &phrase[1..];
            // In a comment of a module, at its end, over two lines of it; not in names and strings.
            let module = format!(
                "//! {capital}, it waits.\nlet a = 1; // The write is {phrase}\n/// It is {first}\n/// {rest} done.\n\
                 const TEXT: &str = \"// {phrase}\";\nfn {}() {{}}",
                phrase.replace(' ', "_")
            );
            let lines: Vec<usize> =
                phrases_in(&prose(&module, true)).into_iter().map(|(line, _)| line).collect();
            assert_eq!(lines, [1, 2, 3], "{phrase}: {module}");
            let document = format!("| {phrase} | zones |\nwrites it\n{first}\n{rest}, and more");
            assert_eq!(phrases_in(&prose(&document, false)), [(1, phrase), (3, phrase)]);
        }
        let owned = format!("//! It was {}'s.", ACTORS[0]);
        assert_eq!(phrases_in(&prose(&owned, true)), [(1, ACTORS[0])]);
        assert_eq!(phrases_in(&prose("//! The last one. That is all; so, many do.", true)), []);
    }

    #[test]
    fn names_that_are_planted_are_found() {
        let module = [
            "pub struct Walk;",
            "enum Body {",
            "    Whole(u32),",
            "    Step,",
            "}",
            "struct Slot { whole: u32 }",
            "struct ZoneSlot;",
            "fn gather_all() {}",
            "#[test]",
            "// It is one.",
            "#[cfg(unix)]",
            "fn all_landed() {}",
            "fn landed() {}",
            "let waiter: Waiter = gather();",
        ]
        .join("\n");
        let names = [(1, "Walk"), (3, "Whole"), (6, "Slot"), (8, "gather_all"), (13, "landed")];
        assert_eq!(names_in(&module), names.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn sentences_of_prose_and_of_comments_are_measured() {
        let document = "# A heading\n\nFirst of all, it waits. Then it\ngoes. Units:\n\n- one of `two.`\n- and three of four\n\n| a | b |\n\n```sh\na b c d\n```";
        assert_eq!(sentences(document, false), [5, 3, 3, 4]);
        assert_eq!(sentences("//! It is a module.\nlet a = b + c + d; // It adds three.\n", true), [4, 3]);
    }
}
