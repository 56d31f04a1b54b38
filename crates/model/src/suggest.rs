//! Which known word somebody meant: what every "did you mean" rests on.

use std::cmp::Reverse;

/// The known word that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let near = |other: &'a str| {
        let known = other.to_lowercase();
        // Of words equally far, the one that begins alike: the end of a word is what is forgotten.
        let alike = lower.chars().zip(known.chars()).take_while(|(a, b)| a == b).count();
        (distance(&lower, &known), Reverse(alike), other)
    };
    let (distance, _, best) = known.into_iter().filter(|other| *other != word).map(near).min()?;
    let allowed = match word.chars().count() {
        // Any letter is one edit from any other.
        0 | 1 => 0,
        letters => (1 + letters / 4).min(3),
    };
    (distance <= allowed).then_some(best)
}

/// Edits between two words, a swap of neighbours counting as one.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_the_one_fewest_edits_away() {
        assert_eq!(nearest("playload", ["payload", "topic"]), Some("payload"));
        assert_eq!(nearest("TOPIC", ["payload", "topic"]), Some("topic"));
        assert_eq!(nearest("x", ["y"]), None, "any letter is one edit from any other");
        assert_eq!(nearest("stat", ["star", "state"]), Some("state"), "what is forgotten is the end");
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("ab", "ba")), (3, 3, 1));
    }
}
