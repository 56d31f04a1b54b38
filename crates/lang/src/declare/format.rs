//! `everwhen fmt`: one layout for `.ew` files. Tokens, comments and the author's line breaks stay; spaces, indentation and
//! blank lines are set.
//!
//! Working on tokens and not on the tree keeps every comment, and formats a file whose names are still wrong. What cannot
//! be read at all is refused: moving parts of a text that is not understood may change what it means.

use model::{Code, Problem};

use super::finding::place;
use super::parse;
use crate::expr::Span;
use crate::expr::lexer::{Lexed, Token, lex};

mod space;

const INDENT: &str = "  ";

/// A file with this line keeps its layout, such as one that must stay as it stands elsewhere.
const OFF: &str = "// fmt: off";

/// The text in normal layout, or the first reason why it cannot be read. Formatting twice changes nothing more.
pub fn format(source: &str) -> Result<String, Problem> {
    let unread = |code: Code| matches!(code, Code::ExprSyntax | Code::ExprLimit | Code::ExprOverflow);
    if let Some(fault) = parse::parse(source).1.into_iter().find(|fault| unread(fault.code)) {
        let (line, col) = place(source, fault.span.start as usize);
        return Err(fault.problem_at(source, &format!("at line {line}, column {col}")));
    }
    if source.lines().any(|line| line.trim() == OFF) {
        return Ok(source.to_owned());
    }
    let pieces = pieces(source);
    let mut layout = Layout::default();
    for at in 0..pieces.len() {
        layout.put(&pieces, at);
    }
    let mut text = layout.text;
    if !text.is_empty() {
        text.push('\n');
    }
    // Layout must not touch meaning; a text that would be read otherwise stays as it was.
    Ok(if same_tokens(source, &text) { text } else { source.to_owned() })
}

fn same_tokens(one: &str, other: &str) -> bool {
    let (one, other) = (lex(one), lex(other));
    one.comments.len() == other.comments.len()
        && one.lexemes.len() == other.lexemes.len()
        && one.lexemes.iter().zip(&other.lexemes).skip(1).all(|(a, b)| {
            let tokens =
                a.token == b.token || matches!((&a.token, &b.token), (Token::Double(_), Token::Double(_)));
            tokens && a.newline_before == b.newline_before
        })
}

/// A token or a comment.
pub(super) struct Piece<'s> {
    pub(super) text: &'s str,
    pub(super) kind: Kind,
    /// Line breaks before it.
    breaks: usize,
    /// Nothing at all stands before it.
    pub(super) tight: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Value,
    Sign,
    Comment,
}

impl Piece<'_> {
    pub(super) fn is(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }

    pub(super) fn opens(&self) -> bool {
        self.is("{") || self.is("(") || self.is("[")
    }

    pub(super) fn closes(&self) -> bool {
        self.is("}") || self.is(")") || self.is("]")
    }
}

fn pieces(source: &str) -> Vec<Piece<'_>> {
    let Lexed { lexemes, comments, .. } = lex(source);
    let tokens = lexemes.iter().filter(|lexeme| lexeme.token != Token::End).map(|lexeme| {
        let kind = match lexeme.token {
            Token::Name(_) | Token::Quoted(_) => Kind::Word,
            Token::Sign(_) => Kind::Sign,
            _ => Kind::Value,
        };
        (lexeme.span, kind)
    });
    let mut all: Vec<(Span, Kind)> =
        tokens.chain(comments.iter().map(|span| (*span, Kind::Comment))).collect();
    all.sort_by_key(|(span, _)| span.start);
    let mut end = 0;
    let piece = |(span, kind): (Span, Kind)| {
        let between = &source[end..span.start as usize];
        end = span.end as usize;
        let text = if kind == Kind::Comment { span.of(source).trim_end() } else { span.of(source) };
        Piece { text, kind, breaks: between.matches('\n').count(), tight: between.is_empty() }
    };
    all.into_iter().map(piece).collect()
}

#[derive(Default)]
struct Layout {
    text: String,
    line: usize,
    /// For each open bracket, the line it was opened on.
    open: Vec<usize>,
    spaces: space::Spaces,
}

impl Layout {
    fn put(&mut self, pieces: &[Piece<'_>], at: usize) {
        let piece = &pieces[at];
        let before = at.checked_sub(1).map(|before| &pieces[before]);
        let broken = before.is_some_and(|before| piece.breaks > 0 || before.text.starts_with("//"));
        if broken {
            self.new_line(pieces, at);
        } else if at > 0 && self.spaces.between(pieces, at) {
            self.text.push(' ');
        }
        self.text.push_str(piece.text);
        self.spaces.pass(piece);
        if piece.opens() {
            self.open.push(self.line);
        } else if piece.closes() {
            self.open.pop();
        }
    }

    fn new_line(&mut self, pieces: &[Piece<'_>], at: usize) {
        let (piece, before) = (&pieces[at], &pieces[at - 1]);
        self.text.push('\n');
        self.line += 1;
        if piece.breaks > 1 && !before.opens() && !piece.closes() {
            self.text.push('\n');
        }
        // Only what closes on this line.
        let here = |(n, piece): &(usize, &Piece<'_>)| piece.closes() && (*n == 0 || piece.breaks == 0);
        let closing = pieces[at..].iter().enumerate().take_while(here).count();
        let mut lines = self.open[..self.open.len().saturating_sub(closing)].to_vec();
        lines.dedup();
        let mut depth = lines.len();
        if goes_on(piece) {
            depth += 1;
        }
        for _ in 0..depth {
            self.text.push_str(INDENT);
        }
    }
}

/// A line that begins with an operator goes on with the line before.
fn goes_on(piece: &Piece<'_>) -> bool {
    const SIGNS: [&str; 20] = [
        "&&", "||", "==", "!=", "<=", ">=", "??", "=>", "+", "-", "*", "/", "%", "<", ">", "?", ":", ".",
        "=", "|",
    ];
    match piece.kind {
        Kind::Sign => SIGNS.contains(&piece.text),
        Kind::Word => piece.text == "in",
        _ => false,
    }
}
