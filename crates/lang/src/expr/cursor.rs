//! The parser's place in the tokens: looking, taking, and saying what was expected. Expressions and
//! declarations are read with the same one.

use model::Code;

use super::fault::{Fault, Span};
use super::lexer::{Lexed, Lexeme, Token, lex};

/// Deepest nesting of parentheses, brackets and prefixes.
const DEPTH_MAX: usize = 100;

#[allow(dead_code, reason = "the declarations read the source and the comments")]
pub(crate) struct Parser<'s> {
    pub(crate) source: &'s str,
    pub(crate) lexemes: Vec<Lexeme>,
    pub(crate) at: usize,
    /// What the lexer could not read, and what a caller that goes on after a fault puts here.
    pub(crate) faults: Vec<Fault>,
    pub(crate) comments: Vec<Span>,
    pub(super) depth: usize,
    /// Round and square brackets that are open in this expression; inside them a line break means nothing.
    pub(super) brackets: usize,
}

#[allow(dead_code, reason = "the declarations look for words")]
impl<'s> Parser<'s> {
    pub(crate) fn new(source: &'s str) -> Parser<'s> {
        let Lexed { lexemes, comments, faults } = lex(source);
        Parser { source, lexemes, at: 0, faults, comments, depth: 0, brackets: 0 }
    }

    pub(crate) fn peek(&self) -> &Token {
        &self.lexemes[self.at].token
    }

    /// The token `by` places further; the end repeats.
    pub(crate) fn ahead(&self, by: usize) -> &Token {
        &self.lexemes[(self.at + by).min(self.lexemes.len() - 1)].token
    }

    pub(crate) fn span(&self) -> Span {
        self.lexemes[self.at].span
    }

    /// Whether the next token stands on a new line.
    pub(crate) fn newline_before(&self) -> bool {
        self.lexemes[self.at].newline_before
    }

    /// Takes the next token and gives its place; the end stays where it is.
    pub(crate) fn take(&mut self) -> Span {
        let span = self.span();
        if self.at + 1 < self.lexemes.len() {
            self.at += 1;
        }
        span
    }

    pub(crate) fn at_end(&self) -> bool {
        matches!(self.peek(), Token::End)
    }

    pub(crate) fn at_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(s) if *s == sign)
    }

    pub(crate) fn at_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(name) if name == word)
    }

    pub(crate) fn accept(&mut self, sign: &str) -> bool {
        let is = self.at_sign(sign);
        if is {
            self.take();
        }
        is
    }

    pub(crate) fn accept_word(&mut self, word: &str) -> bool {
        let is = self.at_word(word);
        if is {
            self.take();
        }
        is
    }

    pub(crate) fn expect(&mut self, sign: &'static str) -> Result<Span, Fault> {
        let span = self.span();
        if self.accept(sign) { Ok(span) } else { Err(self.unexpected(&format!("{sign:?}"))) }
    }

    /// A name, in backquotes or not; `wanted` says what it would name.
    pub(crate) fn expect_name(&mut self, wanted: &str) -> Result<(String, Span), Fault> {
        match self.peek().clone() {
            Token::Name(name) | Token::Quoted(name) => Ok((name, self.take())),
            _ => Err(self.unexpected(wanted)),
        }
    }

    pub(super) fn deeper(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let what = format!("nested deeper than {DEPTH_MAX} levels");
            return Err(Fault::new(Code::ExprLimit, self.span(), what).hint("split the expression"));
        }
        Ok(())
    }

    pub(crate) fn unexpected(&self, wanted: &str) -> Fault {
        let found = match self.peek() {
            Token::End => "the end".to_owned(),
            Token::Sign(sign) => format!("{sign:?}"),
            Token::Name(name) | Token::Quoted(name) => format!("{name:?}"),
            Token::Text(_) | Token::Bytes(_) => "a string".to_owned(),
            Token::Int(_) | Token::Uint(_) | Token::Double(_) => "a number".to_owned(),
            Token::Duration(_) => "a duration".to_owned(),
        };
        let fault = Fault::new(Code::ExprSyntax, self.span(), format!("expected {wanted}, found {found}"));
        match self.peek() {
            Token::Name(name) if name == "and" => fault.hint("write \"&&\""),
            Token::Name(name) if name == "or" => fault.hint("write \"||\""),
            Token::Name(name) if name == "not" => fault.hint("write \"!\""),
            Token::Sign("=") => fault.hint("compare with \"==\""),
            Token::Sign("|") => fault.hint("either: \"||\"; filters go inside {{ … }} only"),
            Token::Sign(";") => fault.hint("both: \"&&\""),
            Token::End => fault.hint(format!("the text ends too early: add {wanted}")),
            _ => fault,
        }
    }
}
