//! Tokens into a tree: operators. Binding, loosest first: `?:`, `||`, `&&`, comparison and `in`, `??`, `+ -`,
//! `* / %`, `! -`, then members, indexes and calls. So `event.n ?? 0 > 3` asks whether `event.n`, or 0, is
//! above 3.
//!
//! A line break ends an expression, unless a bracket is open or the next line begins with something that
//! only an expression can go on with: a binary operator (`-` too), `.`, `?`, `:` or `in`. A `(` or `[` at
//! the beginning of a line belongs to that line.

use model::Code;

use super::ast::{Kind, Literal, Node, Op};
use super::cursor::Parser;
use super::fault::{Fault, Span};
use super::lexer::Token;
use super::nearest;

/// Longest expression, in bytes.
pub(super) const SOURCE_MAX: usize = 65_536;
/// Tallest tree; a chain such as `a + b + c` grows by one with each link.
const HEIGHT_MAX: u16 = 300;

/// Words that stand between two values and mean the method of that name; `has` means `contains`.
const INFIX: [&str; 5] = ["contains", "startsWith", "endsWith", "matches", "has"];

/// A text that is one expression and nothing else.
pub(crate) fn parse(source: &str) -> Result<Node, Fault> {
    if source.len() > SOURCE_MAX {
        let what = format!("the expression is longer than {SOURCE_MAX} bytes");
        return Err(Fault::new(Code::ExprLimit, Span::default(), what));
    }
    let mut parser = Parser::new(source);
    if let Some(fault) = parser.faults.drain(..).next() {
        return Err(fault);
    }
    if parser.at_end() {
        return Err(Fault::new(Code::ExprSyntax, Span::default(), "the expression is empty")
            .hint("write a test, such as event.payload.price > 9"));
    }
    // All of the text is the expression, as if it stood in brackets.
    parser.brackets = 1;
    let node = parser.nested()?;
    match parser.peek() {
        Token::End => Ok(node),
        Token::Name(name) => {
            let fault = parser.unexpected("an operator or the end");
            Err(match nearest(name, INFIX).filter(|_| fault.hint.is_none()) {
                Some(near) => fault.hint(format!("did you mean {near:?}?")),
                None => fault,
            })
        }
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

impl Parser<'_> {
    /// One expression, as far as it goes; the token after it is the next one. After a fault the place is
    /// where it was found, and the parser can go on from wherever the caller moves it to.
    #[allow(dead_code, reason = "the declarations embed expressions")]
    pub(crate) fn expression(&mut self) -> Result<Node, Fault> {
        let (depth, brackets) = (self.depth, std::mem::take(&mut self.brackets));
        let node = self.nested();
        (self.depth, self.brackets) = (depth, brackets);
        node
    }

    /// `test ? yes : no`, a lambda, or anything tighter.
    pub(super) fn nested(&mut self) -> Result<Node, Fault> {
        self.deeper()?;
        let node = match self.lambda()? {
            Some(node) => node,
            None => self.choice()?,
        };
        self.depth -= 1;
        Ok(node)
    }

    fn choice(&mut self) -> Result<Node, Fault> {
        let test = self.any()?;
        if !self.accept("?") {
            return Ok(test);
        }
        let yes = self.any()?;
        self.expect(":")?;
        let no = self.nested()?;
        let span = test.span.to(no.span);
        let height = [&test, &yes, &no].map(|n| n.height).into_iter().max();
        build(Kind::Choose { test: test.into(), yes: yes.into(), no: no.into() }, span, height)
    }

    fn any(&mut self) -> Result<Node, Fault> {
        self.chain("||", Parser::all, Kind::Any)
    }

    fn all(&mut self) -> Result<Node, Fault> {
        self.chain("&&", |parser| parser.binary(0), Kind::All)
    }

    /// `a <sign> b <sign> …` as one flat node, so that a long list of alternatives is no tall tree.
    fn chain(
        &mut self,
        sign: &str,
        tighter: fn(&mut Self) -> Result<Node, Fault>,
        kind: fn(Vec<Node>) -> Kind,
    ) -> Result<Node, Fault> {
        let first = tighter(self)?;
        if !self.at_sign(sign) {
            return Ok(first);
        }
        let mut nodes = vec![first];
        while self.accept(sign) {
            nodes.push(tighter(self)?);
        }
        let span = nodes[0].span.to(nodes[nodes.len() - 1].span);
        let height = nodes.iter().map(|n| n.height).max();
        build(kind(nodes), span, height)
    }

    /// Operators that bind at `tightness` or more.
    fn binary(&mut self, tightness: u8) -> Result<Node, Fault> {
        let mut left = self.prefix()?;
        loop {
            if tightness == 0 && self.at_infix() {
                left = self.infix(left)?;
                continue;
            }
            let Some((op, binds)) = self.operator().filter(|(_, binds)| *binds >= tightness) else {
                return Ok(left);
            };
            self.take();
            if op == Op::NotIn {
                self.take();
            }
            // `??` takes from the right, everything else from the left.
            let right = self.binary(if op == Op::Coalesce { binds } else { binds + 1 })?;
            let (span, height) = (left.span.to(right.span), left.height.max(right.height));
            left = build(Kind::Binary { op, left: left.into(), right: right.into() }, span, Some(height))?;
        }
    }

    fn at_infix(&self) -> bool {
        let word = matches!(self.peek(), Token::Name(name) if INFIX.contains(&name.as_str()));
        word && self.goes_on()
    }

    /// `text contains part` for `text.contains(part)`.
    fn infix(&mut self, left: Node) -> Result<Node, Fault> {
        let (name, name_span) = self.expect_name("an operator")?;
        let name = if name == "has" { "contains".to_owned() } else { name };
        let right = self.binary(1)?;
        let (span, height) = (left.span.to(right.span), left.height.max(right.height));
        let kind = Kind::Call { receiver: Some(left.into()), name, name_span, args: vec![right] };
        build(kind, span, Some(height))
    }

    fn operator(&self) -> Option<(Op, u8)> {
        Some(match self.peek() {
            Token::Name(name) if name == "in" => (Op::In, 0),
            Token::Name(name) if name == "not" && self.goes_on() => match self.ahead(1) {
                Token::Name(name) if name == "in" => (Op::NotIn, 0),
                _ => return None,
            },
            Token::Sign(sign) => match *sign {
                "==" => (Op::Equal, 0),
                "!=" => (Op::Unequal, 0),
                "<" => (Op::Less, 0),
                "<=" => (Op::LessEqual, 0),
                ">" => (Op::Greater, 0),
                ">=" => (Op::GreaterEqual, 0),
                "??" => (Op::Coalesce, 1),
                "+" => (Op::Add, 2),
                "-" => (Op::Subtract, 2),
                "*" => (Op::Multiply, 3),
                "/" => (Op::Divide, 3),
                "%" => (Op::Remainder, 3),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Whether the next token may go on with what stands before it although it could also begin something.
    pub(super) fn goes_on(&self) -> bool {
        self.brackets > 0 || !self.newline_before()
    }

    fn prefix(&mut self) -> Result<Node, Fault> {
        let start = self.span();
        if self.accept("!") {
            return self.prefixed(start, Kind::Not);
        }
        if !self.accept("-") {
            return self.postfix();
        }
        // The least integer has no positive twin, so its sign is read with it.
        if matches!(self.peek(), Token::Int(n) if *n == 1 << 63) {
            let span = start.to(self.take());
            return self.suffixes(leaf(Kind::Literal(Literal::Int(i64::MIN)), span));
        }
        self.prefixed(start, Kind::Negate)
    }

    fn prefixed(&mut self, start: Span, kind: fn(Box<Node>) -> Kind) -> Result<Node, Fault> {
        self.deeper()?;
        let of = self.prefix()?;
        self.depth -= 1;
        let (span, height) = (start.to(of.span), of.height);
        build(kind(of.into()), span, Some(height))
    }
}

pub(super) fn leaf(kind: Kind, span: Span) -> Node {
    Node { kind, span, height: 1 }
}

pub(super) fn build(kind: Kind, span: Span, below: Option<u16>) -> Result<Node, Fault> {
    let height = below.unwrap_or(0) + 1;
    if height > HEIGHT_MAX {
        let what = format!("a chain of more than {HEIGHT_MAX} operators");
        return Err(Fault::new(Code::ExprLimit, span, what).hint("use a list with \"in\", or split it"));
    }
    Ok(Node { kind, span, height })
}
