//! Words that users type.

/// The known word that looks most like `word`, if one is near enough to be meant.
pub(crate) fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    // Longer than any known word and its typing errors: not worth the square of its length.
    const WORD_MAX: usize = 64;
    if word.len() > WORD_MAX {
        return None;
    }
    let distance = |k: &&str| strsim::damerau_levenshtein(word, k);
    let best = known.iter().copied().min_by_key(distance)?;
    // A third of it may be wrong.
    (distance(&best) <= best.len().div_ceil(3)).then_some(best)
}
