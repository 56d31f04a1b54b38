//! `.ew` text into a tree: `use`, annotations, declarations. A fault ends a statement or a clause, not the reading,
//! so that a file shows all its faults at once.

use model::Code;

use super::finding::{fault, suggest};
use super::tree::{Body, File, Item, Note, Use, Word};
use crate::expr::Span;
use crate::expr::ast::Node;
use crate::expr::cursor::Parser;
use crate::expr::fault::Fault;
use crate::expr::lexer::Token;

mod automation;
mod concept;
mod query;
mod step;
mod wait;

pub(super) type Read<T> = Result<T, Fault>;

/// Deepest nesting of blocks; everything after the parser walks them recursively.
const BLOCKS_MAX: usize = 50;

const KEYWORDS: [&str; 7] = ["use", "concept", "query", "mutation", "shape", "logic", "automation"];

pub(crate) struct Reader<'s> {
    p: Parser<'s>,
    blocks: usize,
    /// Where it was last said that a block does not end.
    unclosed: Option<usize>,
}

/// Reads a whole file.
pub(crate) fn parse(source: &str) -> (File, Vec<Fault>) {
    let mut reader = Reader { p: Parser::new(source), blocks: 0, unclosed: None };
    let file = reader.file();
    (file, reader.p.faults)
}

impl Reader<'_> {
    fn file(&mut self) -> File {
        let mut file = File::default();
        while !self.p.at_end() {
            let before = self.p.at;
            if let Err(fault) = self.declaration(&mut file) {
                self.p.faults.push(fault);
                if self.p.at == before {
                    self.p.take();
                }
                self.skip_to_declaration();
            }
        }
        file
    }

    fn declaration(&mut self, file: &mut File) -> Read<()> {
        if self.p.accept_word("use") {
            file.uses.push(self.import()?);
            return Ok(());
        }
        let mut notes = self.notes()?;
        let keyword = self.p.span();
        let word = match self.p.peek() {
            Token::Name(name) => name.clone(),
            _ => {
                return Err(self
                    .p
                    .unexpected("a declaration")
                    .hint(format!("one of {}", KEYWORDS.join(", "))));
            }
        };
        self.p.take();
        let (name, body) = match word.as_str() {
            "concept" => self.concept()?,
            "query" => self.query()?,
            "mutation" => self.mutation()?,
            "shape" => self.shape()?,
            "logic" => self.logic()?,
            "automation" => self.automation(&mut notes)?,
            _ => {
                let unknown = fault(Code::ExprSyntax, keyword, format!("unknown declaration {word:?}"));
                return Err(suggest(unknown, &word, KEYWORDS));
            }
        };
        file.items.push(Item { name, notes, body });
        Ok(())
    }

    /// `a.b.{ x, y as z }`, or `a.b { … }`, or `a.b.x`.
    fn import(&mut self) -> Read<Use> {
        let first = self.name("a module, such as cognition.concepts")?;
        let mut parts = vec![first];
        while self.p.accept(".") {
            if self.p.at_sign("{") {
                break;
            }
            parts.push(self.name("a name after \".\"")?);
        }
        let mut names = Vec::new();
        if self.p.accept("{") {
            while !self.p.accept("}") {
                let name = self.name("a name to use")?;
                let here = if self.p.accept_word("as") { self.name("the name here")? } else { name.clone() };
                names.push((name, here));
                if !self.p.accept(",") && !self.p.at_sign("}") {
                    return Err(self.p.unexpected("\",\" or \"}\""));
                }
            }
        } else if parts.len() > 1 {
            let name = parts.pop().expect("more than one was counted");
            let here = if self.p.accept_word("as") { self.name("the name here")? } else { name.clone() };
            names.push((name, here));
        }
        let span = parts[0].span.to(parts[parts.len() - 1].span);
        let text = parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join(".");
        Ok(Use { module: Word { text, span }, names })
    }

    fn notes(&mut self) -> Read<Vec<Note>> {
        let mut notes = Vec::new();
        while self.p.at_sign("@") {
            notes.push(self.note()?);
        }
        Ok(notes)
    }

    /// `@name`, `@name(value)`, `@name(key = value, …)`
    fn note(&mut self) -> Read<Note> {
        let start = self.p.expect("@")?;
        let name = self.name("the name of an annotation")?;
        let mut span = start.to(name.span);
        let mut args = Vec::new();
        if self.p.at_sign("(") && !self.p.newline_before() {
            self.p.take();
            while !self.p.at_sign(")") {
                args.push(self.note_arg()?);
                if !self.p.accept(",") && !self.p.at_sign(")") {
                    return Err(self.p.unexpected("\",\" or \")\""));
                }
            }
            span = span.to(self.p.take());
        }
        Ok(Note { name, args, span })
    }

    fn note_arg(&mut self) -> Read<(Option<Word>, Node)> {
        let named =
            matches!(self.p.peek(), Token::Name(_)) && matches!(self.p.ahead(1), Token::Sign("=" | ":"));
        if !named {
            return Ok((None, self.p.expression()?));
        }
        let key = self.name("a name")?;
        self.p.take();
        Ok((Some(key), self.p.expression()?))
    }

    fn shape(&mut self) -> Read<(Word, Body)> {
        let concept = self.name("the concept of the shape")?;
        let name = self.name("the name of the shape")?;
        let mut fields = Vec::new();
        self.block(|reader| {
            fields.push(reader.shape_field()?);
            reader.p.accept(",");
            Ok(())
        })?;
        Ok((name, Body::Shape { concept, fields }))
    }

    /// `payload.x`, which is `x: payload.x`, or `name: expression`.
    fn shape_field(&mut self) -> Read<(Word, Node)> {
        if matches!(self.p.ahead(1), Token::Sign(":")) {
            let name = self.name("a field")?;
            self.p.take();
            return Ok((name, self.p.expression()?));
        }
        let node = self.p.expression()?;
        match super::walk::path(&node).and_then(|path| path.last().map(|last| (*last).to_owned())) {
            Some(text) => Ok((Word { text, span: node.span }, node)),
            None => Err(fault(Code::ExprSyntax, node.span, "this field has no name")
                .hint("write it as name: expression")),
        }
    }

    fn name(&mut self, wanted: &str) -> Read<Word> {
        self.p.expect_name(wanted).map(|(text, span)| Word { text, span })
    }

    /// A name that may be written as a string, such as a topic.
    fn text(&mut self, wanted: &str) -> Read<Word> {
        match self.p.peek().clone() {
            Token::Text(text) => Ok(Word { text, span: self.p.take() }),
            _ => Err(self.p.unexpected(wanted)),
        }
    }

    fn count(&mut self, wanted: &str) -> Read<u32> {
        match self.p.peek() {
            Token::Int(n) if *n <= u64::from(u32::MAX) => {
                let n = *n as u32;
                self.p.take();
                Ok(n)
            }
            _ => Err(self.p.unexpected(wanted)),
        }
    }

    fn at_least_one(&mut self, wanted: &str) -> Read<u32> {
        let span = self.p.span();
        match self.count(wanted)? {
            0 => Err(fault(Code::DefinitionInvalid, span, format!("expected {wanted}, at least 1, found 0"))),
            count => Ok(count),
        }
    }

    /// `{ part part … }`. A part that is faulty is stepped over to the next line, or to the end of the block.
    fn block(&mut self, mut part: impl FnMut(&mut Self) -> Read<()>) -> Read<Span> {
        let start = self.p.expect("{")?;
        self.blocks += 1;
        if self.blocks > BLOCKS_MAX {
            let what = format!("blocks nested deeper than {BLOCKS_MAX} levels");
            return Err(fault(Code::ExprLimit, start, what).hint("move a part into logic of its own"));
        }
        while !self.p.at_sign("}") {
            if self.p.at_end() || self.at_declaration() {
                // Said once, of the innermost; the blocks around it end here too.
                if self.unclosed.replace(self.p.at) != Some(self.p.at) {
                    let open = fault(Code::ExprSyntax, start, "this \"{\" is never closed");
                    self.p.faults.push(open.hint("add the \"}\" that belongs to it"));
                }
                self.blocks -= 1;
                return Ok(start);
            }
            let before = self.p.at;
            if let Err(fault) = part(self) {
                let deep = fault.code == Code::ExprLimit;
                self.p.faults.push(fault);
                if deep {
                    self.p.at = self.p.lexemes.len() - 1;
                    break;
                }
                self.skip_to_next_line(before);
            }
        }
        self.blocks -= 1;
        Ok(start.to(self.p.take()))
    }

    /// After a fault: to the first token on a new line, past blocks that open in between, or to the `}` of this block.
    /// `from` is where the faulty part began; what it had opened before the fault counts.
    fn skip_to_next_line(&mut self, from: usize) {
        let sign = |reader: &Self, at: usize| match reader.p.lexemes[at].token {
            Token::Sign(sign) => sign,
            _ => "",
        };
        let mut open = 0_i32;
        for at in from..self.p.at {
            open += opening(sign(self, at));
        }
        if self.p.at == from {
            open += opening(sign(self, from));
            self.p.take();
        }
        while !self.p.at_end() {
            let here = sign(self, self.p.at);
            if open <= 0 && (here == "}" || self.p.newline_before()) {
                return;
            }
            if self.at_declaration() {
                return;
            }
            open += opening(here);
            self.p.take();
        }
    }

    fn first_column(&self) -> bool {
        let start = self.p.span().start as usize;
        start == 0 || self.p.source.as_bytes().get(start - 1) == Some(&b'\n')
    }

    /// In the first column, what can only be a declaration, whatever braces are missing before it. `logic x {` and
    /// `automation x {` may also be calls in a text without indentation.
    fn at_declaration(&self) -> bool {
        const NOTES: [&str; 7] = ["trigger", "enabled", "disabled", "filter", "version", "namespace", "mcp"];
        let name = |by: usize| matches!(self.p.ahead(by), Token::Name(_));
        let sign = |by: usize, sign: &str| matches!(self.p.ahead(by), Token::Sign(s) if *s == sign);
        let word = |by: usize, words: &[&str]| matches!(self.p.ahead(by), Token::Name(w) if words.contains(&w.as_str()));
        self.first_column()
            && match self.p.peek() {
                Token::Sign("@") => word(1, &NOTES),
                Token::Name(keyword) => match keyword.as_str() {
                    "use" => name(1) && sign(2, "."),
                    "concept" => name(1) && sign(2, "{"),
                    "query" | "mutation" | "shape" => name(1) && name(2),
                    "logic" => name(1) && sign(2, "{") && word(3, &["args", "body"]) && sign(4, "{"),
                    "automation" => name(1) && (sign(2, "@") || sign(2, "=>")),
                    _ => false,
                },
                _ => false,
            }
    }

    fn skip_to_declaration(&mut self) {
        self.blocks = 0;
        let begins = |reader: &Self| match reader.p.peek() {
            Token::Sign("@") => reader.first_column(),
            Token::Name(name) => reader.first_column() && KEYWORDS.contains(&name.as_str()),
            _ => false,
        };
        while !self.p.at_end() && !begins(self) {
            self.p.take();
        }
    }
}

fn opening(sign: &str) -> i32 {
    match sign {
        "{" => 1,
        "}" => -1,
        _ => 0,
    }
}
