//! Suggestions for mistyped words.

/// Returns the known word closest to `word`, if it is close enough to be a typing error.
pub(crate) fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    // Longer than any known word with typing errors; the distance costs quadratic time.
    const WORD_MAX: usize = 64;
    if word.len() > WORD_MAX {
        return None;
    }
    let distance = |k: &&str| strsim::damerau_levenshtein(word, k);
    let best = known.iter().copied().min_by_key(distance)?;
    // Up to a third of the characters may be wrong.
    (distance(&best) <= best.len().div_ceil(3)).then_some(best)
}
