//! Sequences against patterns in which some parts take any run: words of a topic against `#`, characters against `*`.

/// Whether the whole of `items` fits `pattern`. A part for which `is_run` holds takes any number of items, also none;
/// every other takes the one item that `takes` says it does.
///
/// Only the last run is ever tried again, because whatever an earlier one could give up the last one can take: the
/// cost is at most the product of the lengths.
pub fn matches<P, I: Iterator + Clone>(
    pattern: &[P],
    items: I,
    is_run: impl Fn(&P) -> bool,
    takes: impl Fn(&P, &I::Item) -> bool,
) -> bool {
    let (mut at, mut rest) = (0, items);
    let mut retry: Option<(usize, I)> = None;
    loop {
        let before = rest.clone();
        match (pattern.get(at), rest.next()) {
            (Some(part), _) if is_run(part) => {
                at += 1;
                rest = before.clone();
                retry = Some((at, before));
            }
            (Some(part), Some(item)) if takes(part, &item) => at += 1,
            (None, None) => return true,
            _ => {
                let Some((after, from)) = &mut retry else { return false };
                if from.next().is_none() {
                    return false;
                }
                (at, rest) = (*after, from.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_take_what_is_left_for_them_and_no_more() {
        let glob = |pattern: &str, text: &str| {
            let pattern: Vec<char> = pattern.chars().collect();
            matches(&pattern, text.chars(), |p| *p == '*', |p, c| p == c)
        };
        for (pattern, text, fits) in [
            ("", "", true),
            ("*", "", true),
            ("a*", "a", true),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("*ab*ab", "ababab", true),
            ("a*b*c", "acb", false),
            ("a", "", false),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
        // Exponential if every run were tried again.
        assert!(!glob(&"a*".repeat(40), &"a".repeat(39)));
        assert!(!glob(&format!("{}b", "a*".repeat(40)), &"a".repeat(2_000)));
    }
}
