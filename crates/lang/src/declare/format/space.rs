//! Whether a space stands between two tokens of a line.

use super::{Kind, Piece};

/// Words that are followed by a value, so that a bracket or sign behind them begins one.
const BEFORE_VALUE: [&str; 22] = [
    "if",
    "else",
    "in",
    "where",
    "return",
    "filter",
    "refine",
    "when",
    "case",
    "switch",
    "while",
    "until",
    "timeout",
    "delay",
    "range",
    "wait_until",
    "wait_for",
    "not",
    "has",
    "publish",
    "asOf",
    "repeat",
];

#[derive(Default)]
pub(super) struct Spaces {
    /// For each open bracket, how many `?` wait for their `:`; the first is outside of all.
    asked: Vec<usize>,
    /// The sign before was one before a value: `-x`, `!x`.
    prefix: bool,
    /// Whether what was written last ends a value.
    value: bool,
    /// Inside a whole id such as `v1:shop:order`.
    id: bool,
}

impl Spaces {
    pub(super) fn between(&mut self, pieces: &[Piece<'_>], at: usize) -> bool {
        let (before, piece) = (&pieces[at - 1], &pieces[at]);
        if before.kind == Kind::Comment || piece.kind == Kind::Comment {
            return true;
        }
        let earlier = at.checked_sub(2).map(|at| &pieces[at]);
        self.signs(earlier, before, piece)
    }

    fn signs(&mut self, earlier: Option<&Piece<'_>>, before: &Piece<'_>, piece: &Piece<'_>) -> bool {
        let value_before = ends_value(before);
        self.id = match piece.text {
            ":" if piece.tight => self.id || is_version(before.text),
            _ => self.id && before.is(":") && piece.tight,
        };
        if before.is("{") && piece.is("}")
            || before.is("(")
            || before.is("[")
            || before.is("@")
            || before.is(".")
        {
            return false;
        }
        // Behind the mark of `a.?b`.
        if before.is("?") && earlier.is_some_and(|earlier| earlier.is(".")) {
            return false;
        }
        if before.kind == Kind::Sign && self.prefix {
            return false;
        }
        match piece.text {
            _ if piece.kind != Kind::Sign => after_sign(before, piece, self.id),
            ")" | "]" | "," | "." | ";" | "=" => false,
            ":" => !self.id && self.asked.last().is_some_and(|asked| *asked > 0),
            "(" => !value_before && !called(earlier, before),
            "[" if before.is("=") => false,
            "[" => !(value_before && piece.tight) || BEFORE_VALUE.contains(&before.text),
            "!" => !(value_before && piece.tight),
            _ => !before.is("="),
        }
    }

    /// Notes what was written.
    pub(super) fn pass(&mut self, piece: &Piece<'_>) {
        if self.asked.is_empty() {
            self.asked.push(0);
        }
        self.prefix = piece.kind == Kind::Sign && matches!(piece.text, "-" | "!") && !self.value;
        // A `!` behind a type is part of it.
        let mark = piece.is("!") && self.value && piece.tight;
        self.value = ends_value(piece) || mark;
        if piece.opens() {
            self.asked.push(0);
        } else if piece.closes() && self.asked.len() > 1 {
            self.asked.pop();
        } else if let Some(asked) = self.asked.last_mut() {
            match piece.text {
                "?" if piece.kind == Kind::Sign => *asked += 1,
                ":" if piece.kind == Kind::Sign => *asked = asked.saturating_sub(1),
                _ => {}
            }
        }
    }
}

/// A word that mostly stands before a value, called like a function: `@filter(…)`, `list.filter(…)`, `when(…)`.
fn called(earlier: Option<&Piece<'_>>, before: &Piece<'_>) -> bool {
    let named = earlier.is_some_and(|earlier| earlier.is("@") || earlier.is("."));
    before.kind == Kind::Word && (named || matches!(before.text, "when" | "has"))
}

fn after_sign(before: &Piece<'_>, piece: &Piece<'_>, id: bool) -> bool {
    match before.text {
        _ if before.kind != Kind::Sign => true,
        "=" => false,
        ":" => !id,
        "]" => !piece.tight,
        _ => true,
    }
}

/// Whether a value may end with it, so that what follows is a call, an index or a binary sign.
fn ends_value(piece: &Piece<'_>) -> bool {
    match piece.kind {
        Kind::Word => !BEFORE_VALUE.contains(&piece.text),
        Kind::Value => true,
        Kind::Sign => matches!(piece.text, ")" | "]" | "}"),
        Kind::Comment => false,
    }
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}
