//! What looks like an e-mail address, a phone number, a card number or a credential inside text, masked where
//! it stands.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::settings::Detector;

const MASK: &str = "***";

/// The detectors of one rule, in the order that keeps a card from being taken for a phone number.
pub(super) struct Detectors(Vec<Detector>);

impl Detectors {
    pub(super) fn new(wanted: &[Detector]) -> Detectors {
        let order = [Detector::Token, Detector::Email, Detector::Card, Detector::Phone];
        Detectors(order.into_iter().filter(|detector| wanted.contains(detector)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a number, as it stands in the JSON, is to be masked as a whole.
    pub(super) fn finds_number(&self, text: &str) -> bool {
        self.0.contains(&Detector::Card) && is_card_number(text)
    }

    /// The text with what was found masked; `None` when nothing was.
    pub(super) fn mask(&self, text: &str) -> Option<String> {
        let mut masked = None;
        for detector in &self.0 {
            let text = masked.as_deref().unwrap_or(text);
            if let Some(changed) = mask_one(*detector, text) {
                masked = Some(changed);
            }
        }
        masked
    }
}

fn mask_one(detector: Detector, text: &str) -> Option<String> {
    let regex = match detector {
        Detector::Email => &*EMAIL,
        Detector::Phone => &*PHONE,
        Detector::Card => &*CARD,
        Detector::Token => &*TOKEN,
    };
    let replaced = regex.replace_all(text, |found: &Captures<'_>| {
        let found = &found[0];
        let is_it = match detector {
            Detector::Card => passes_luhn(found),
            Detector::Phone => (7..=15).contains(&digits(found).count()),
            _ => true,
        };
        if is_it { MASK.to_owned() } else { found.to_owned() }
    });
    (replaced != text).then(|| replaced.into_owned())
}

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("the expression is a constant of this file")
}

static EMAIL: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[A-Za-z0-9._%+'-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"));

/// International with `+`, in groups of 3-3-4, or national with a leading 0 and a gap. Bare digits are left
/// alone: most of them are ids, and so are dates.
static PHONE: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        r"\+[0-9][0-9 ().-]{5,18}[0-9]",
        r"\(?\b[0-9]{3}\)?[ .-][0-9]{3}[ .-][0-9]{4}\b",
        r"\b0[0-9]{2,4}[ /-][0-9]{3,4}[ -]?[0-9]{3,5}\b",
    ];
    regex(&shapes.join("|"))
});

static CARD: LazyLock<Regex> = LazyLock::new(|| regex(r"\b[0-9](?:[ -]?[0-9]){12,18}\b"));

static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        r"(?i:bearer|basic)\s+[A-Za-z0-9._~+/=-]{16,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        r"\b[sprk]k_(?:live|test)_[A-Za-z0-9]{16,}",
        r"\bsk-[A-Za-z0-9_-]{20,}",
        r"\bgh[pousr]_[A-Za-z0-9]{36,}",
        r"\bgithub_pat_[A-Za-z0-9_]{22,}",
        r"\bglpat-[A-Za-z0-9_-]{20,}",
        r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\bAIza[A-Za-z0-9_-]{35}",
        r"\bwhsec_[A-Za-z0-9+/=]{16,}",
        r"\bew_[a-z]+_[A-Za-z0-9]{16,}(?:_[A-Za-z0-9]+)?",
    ];
    regex(&shapes.join("|"))
});

fn digits(text: &str) -> impl DoubleEndedIterator<Item = u32> + '_ {
    text.chars().filter_map(|c| c.to_digit(10))
}

/// The check digit of payment cards: from the right, every second digit counts double, and all add up to
/// tens.
fn passes_luhn(text: &str) -> bool {
    let doubled = |(i, digit): (usize, u32)| match digit * 2 {
        _ if i % 2 == 0 => digit,
        double @ 0..=9 => double,
        double => double - 9,
    };
    digits(text).rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

/// Numbers have no shape that tells them from ids and instants, and one in ten passes Luhn. So one is a card's only with the
/// first digits and the length that an issuer gives.
fn is_card_number(text: &str) -> bool {
    let starts = |low: u32, high: u32| {
        let front = text.get(..low.to_string().len()).and_then(|front| front.parse().ok());
        front.is_some_and(|front| (low..=high).contains(&front))
    };
    let issued = match text.len() {
        13 | 19 if starts(4, 4) => true,
        14 => starts(300, 305) || starts(36, 36) || starts(38, 39),
        15 => starts(34, 34) || starts(37, 37),
        16 => {
            let local = starts(3528, 3589) || starts(6011, 6011) || starts(644, 659) || starts(62, 62);
            local || starts(4, 4) || starts(51, 55) || starts(2221, 2720)
        }
        17..=19 => starts(62, 62),
        _ => false,
    };
    issued && text.bytes().all(|b| b.is_ascii_digit()) && passes_luhn(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(detector: Detector, text: &str) -> String {
        Detectors::new(&[detector]).mask(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn what_looks_private_is_masked_where_it_stands() {
        let table = [
            (Detector::Email, "write to ann.o'neil+x@mail.example.co.uk now", "write to *** now"),
            (Detector::Email, "a@b.de,c@d.org", "***,***"),
            (Detector::Phone, "call +49 (30) 1234-5678.", "call ***."),
            (Detector::Phone, "555-123-4567 or (555) 123-4567", "*** or ***"),
            (Detector::Phone, "030 1234567", "***"),
            (Detector::Card, "card 4111 1111 1111 1111, ok", "card ***, ok"),
            (Detector::Card, "378282246310005", "***"),
            (Detector::Token, "Authorization: Bearer abcdefghijklmnop1234", "Authorization: ***"),
            (Detector::Token, "ghp_0123456789abcdefghijABCDEFGHIJ012345!", "***!"),
            (Detector::Token, "k=AKIAIOSFODNN7EXAMPLE", "k=***"),
        ];
        for (detector, text, want) in table {
            assert_eq!(masked(detector, text), want, "{detector:?}");
        }
    }

    #[test]
    fn what_only_resembles_it_is_left_alone() {
        let table = [
            (Detector::Email, "user@localhost @home a@b"),
            (Detector::Phone, "2026-01-31T09:30:00Z order 1234567890 v1.2.3"),
            (Detector::Card, "4111 1111 1111 1112 and 12345"),
            (Detector::Token, "sk-short bearer of news, basically"),
        ];
        for (detector, text) in table {
            assert_eq!(Detectors::new(&[detector]).mask(text), None, "{detector:?} {text}");
        }
    }

    #[test]
    fn a_number_is_a_cards_only_where_an_issuer_gives_such() {
        let finds = |text| Detectors::new(&[Detector::Card]).finds_number(text);
        for card in
            ["4111111111111111", "378282246310005", "5555555555554444", "30569309025904", "6011111111111117"]
        {
            assert!(finds(card), "{card}");
        }
        // The first is an instant in milliseconds and passes Luhn.
        for other in [
            "1700000000004",
            "4111111111111112",
            "4.11111111111111",
            "-411111111111111",
            "42",
            "4111111111111111.0",
        ] {
            assert!(!finds(other), "{other}");
        }
        assert!(passes_luhn("1700000000004"));
        assert!(!Detectors::new(&[Detector::Phone]).finds_number("4111111111111111"));
    }

    #[test]
    fn a_card_number_is_not_taken_for_a_phone_number() {
        let both = Detectors::new(&[Detector::Phone, Detector::Card]);
        assert_eq!(both.mask("4111-1111-1111-1111").as_deref(), Some("***"));
    }
}
