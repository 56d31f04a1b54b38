//! Tokens into a tree. Binding, loosest first: `?:`, `||`, `&&`, comparison and `in`, `??`, `+ -`, `* / %`,
//! `! -`, then members, indexes and calls. So `event.n ?? 0 > 3` asks whether `event.n`, or 0, is above 3.

use model::Code;

use super::ast::{Kind, Literal, Node, Op};
use super::fault::{Fault, Span};
use super::lexer::{Lexeme, Token, lex};

/// Longest expression, in bytes.
const SOURCE_MAX: usize = 65_536;
/// Deepest nesting of parentheses, brackets and prefixes.
const DEPTH_MAX: usize = 100;
/// Tallest tree; a chain such as `a + b + c` grows by one with each link.
const HEIGHT_MAX: u16 = 300;

pub(crate) fn parse(source: &str) -> Result<Node, Fault> {
    if source.len() > SOURCE_MAX {
        let what = format!("the expression is longer than {SOURCE_MAX} bytes");
        return Err(Fault::new(Code::ExprLimit, Span::default(), what));
    }
    let mut parser = Parser { lexemes: lex(source)?, at: 0, depth: 0 };
    if matches!(parser.peek(), Token::End) {
        return Err(Fault::new(Code::ExprSyntax, Span::default(), "the expression is empty")
            .hint("write a test, such as event.payload.price > 9"));
    }
    let node = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(node),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser {
    lexemes: Vec<Lexeme>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.lexemes[self.at].token
    }

    fn span(&self) -> Span {
        self.lexemes[self.at].span
    }

    /// Takes the next token; the end stays where it is.
    fn take(&mut self) -> Lexeme {
        let lexeme = self.lexemes[self.at].clone();
        if self.at + 1 < self.lexemes.len() {
            self.at += 1;
        }
        lexeme
    }

    fn accept(&mut self, sign: &str) -> bool {
        let is = matches!(self.peek(), Token::Sign(s) if *s == sign);
        if is {
            self.take();
        }
        is
    }

    fn expect(&mut self, sign: &'static str) -> Result<Span, Fault> {
        let span = self.span();
        if self.accept(sign) { Ok(span) } else { Err(self.unexpected(&format!("{sign:?}"))) }
    }

    /// `test ? yes : no`, or anything tighter.
    fn expression(&mut self) -> Result<Node, Fault> {
        self.deeper()?;
        let test = self.any()?;
        let node = if self.accept("?") {
            let yes = self.any()?;
            self.expect(":")?;
            let no = self.expression()?;
            let span = test.span.to(no.span);
            let height = [&test, &yes, &no].map(|n| n.height).into_iter().max();
            let kind = Kind::Choose { test: test.into(), yes: yes.into(), no: no.into() };
            build(kind, span, height)?
        } else {
            test
        };
        self.depth -= 1;
        Ok(node)
    }

    fn deeper(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let what = format!("nested deeper than {DEPTH_MAX} levels");
            return Err(Fault::new(Code::ExprLimit, self.span(), what).hint("split the expression"));
        }
        Ok(())
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
        tighter: fn(&mut Parser) -> Result<Node, Fault>,
        kind: fn(Vec<Node>) -> Kind,
    ) -> Result<Node, Fault> {
        let first = tighter(self)?;
        if !matches!(self.peek(), Token::Sign(s) if *s == sign) {
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
        while let Some((op, binds)) = self.operator().filter(|(_, binds)| *binds >= tightness) {
            self.take();
            // `??` takes from the right, everything else from the left.
            let right = self.binary(if op == Op::Coalesce { binds } else { binds + 1 })?;
            let (span, height) = (left.span.to(right.span), left.height.max(right.height));
            left = build(Kind::Binary { op, left: left.into(), right: right.into() }, span, Some(height))?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(Op, u8)> {
        Some(match self.peek() {
            Token::Name(name) if name == "in" => (Op::In, 0),
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
            let span = start.to(self.take().span);
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

    fn postfix(&mut self) -> Result<Node, Fault> {
        let node = self.primary()?;
        self.suffixes(node)
    }

    fn suffixes(&mut self, mut node: Node) -> Result<Node, Fault> {
        loop {
            if self.accept(".") {
                node = self.member(node)?;
            } else if self.accept("[") {
                let at = self.expression()?;
                let end = self.expect("]")?;
                let (span, height) = (node.span.to(end), node.height.max(at.height));
                node = build(Kind::Index { of: node.into(), at: at.into() }, span, Some(height))?;
            } else {
                return Ok(node);
            }
        }
    }

    fn member(&mut self, of: Node) -> Result<Node, Fault> {
        let name_span = self.span();
        let name = match self.peek() {
            Token::Name(name) | Token::Quoted(name) => name.clone(),
            _ => return Err(self.unexpected("a name after \".\"")),
        };
        self.take();
        if matches!(self.peek(), Token::Sign("(")) {
            return self.call(Some(of), name, name_span);
        }
        let (span, height) = (of.span.to(name_span), of.height);
        build(Kind::Member { of: of.into(), name }, span, Some(height))
    }

    fn call(&mut self, receiver: Option<Node>, name: String, name_span: Span) -> Result<Node, Fault> {
        self.expect("(")?;
        let (args, end) = self.list(")")?;
        let start = receiver.as_ref().map_or(name_span, |r| r.span);
        let height = args.iter().chain(&receiver).map(|n| n.height).max();
        build(Kind::Call { receiver: receiver.map(Box::new), name, name_span, args }, start.to(end), height)
    }

    /// Nodes split by commas, up to and with `close`; a comma may stand before it.
    fn list(&mut self, close: &'static str) -> Result<(Vec<Node>, Span), Fault> {
        let mut nodes = Vec::new();
        loop {
            let span = self.span();
            if self.accept(close) {
                return Ok((nodes, span));
            }
            if !nodes.is_empty() {
                if !self.accept(",") {
                    return Err(self.unexpected(&format!("\",\" or {close:?}")));
                }
                let span = self.span();
                if self.accept(close) {
                    return Ok((nodes, span));
                }
            }
            nodes.push(self.expression()?);
        }
    }

    fn primary(&mut self) -> Result<Node, Fault> {
        let span = self.span();
        let literal = |parser: &mut Parser, literal| {
            parser.take();
            Ok(leaf(Kind::Literal(literal), span))
        };
        match self.peek().clone() {
            Token::Int(n) => {
                let n = i64::try_from(n).map_err(|_| {
                    Fault::new(Code::ExprOverflow, span, format!("the number {n} is out of range"))
                })?;
                literal(self, Literal::Int(n))
            }
            Token::Uint(n) => literal(self, Literal::Uint(n)),
            Token::Double(n) => literal(self, Literal::Double(n)),
            Token::Text(text) => literal(self, Literal::Text(text.into())),
            Token::Bytes(bytes) => literal(self, Literal::Bytes(bytes.into())),
            Token::Name(name) => match name.as_str() {
                "true" => literal(self, Literal::Bool(true)),
                "false" => literal(self, Literal::Bool(false)),
                "null" => literal(self, Literal::Null),
                "in" => Err(self.unexpected("a value")),
                _ => self.name(name, span),
            },
            Token::Quoted(name) => self.name(name, span),
            Token::Sign("(") => self.grouped(),
            Token::Sign("[") => {
                self.take();
                let (nodes, end) = self.list("]")?;
                let height = nodes.iter().map(|n| n.height).max();
                build(Kind::List(nodes), span.to(end), height)
            }
            Token::Sign("{") => self.map(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn name(&mut self, name: String, span: Span) -> Result<Node, Fault> {
        self.take();
        if matches!(self.peek(), Token::Sign("(")) {
            return self.call(None, name, span);
        }
        Ok(leaf(Kind::Name(name), span))
    }

    fn grouped(&mut self) -> Result<Node, Fault> {
        let start = self.expect("(")?;
        let mut node = self.expression()?;
        let end = self.expect(")")?;
        node.span = start.to(end);
        Ok(node)
    }

    fn map(&mut self) -> Result<Node, Fault> {
        let start = self.expect("{")?;
        let mut pairs = Vec::new();
        loop {
            let span = self.span();
            if self.accept("}") {
                let height = pairs.iter().map(|(k, v): &(Node, Node)| k.height.max(v.height)).max();
                return build(Kind::Map(pairs), start.to(span), height);
            }
            if !pairs.is_empty() && !self.accept(",") {
                return Err(self.unexpected("\",\" or \"}\""));
            }
            if matches!(self.peek(), Token::Sign("}")) {
                continue;
            }
            let key = self.key()?;
            self.expect(":")?;
            pairs.push((key, self.expression()?));
        }
    }

    /// A bare name before `:` is its own text.
    fn key(&mut self) -> Result<Node, Fault> {
        let bare = match (self.peek(), self.lexemes.get(self.at + 1).map(|l| &l.token)) {
            (Token::Name(name), Some(Token::Sign(":"))) => {
                (!matches!(name.as_str(), "true" | "false" | "null")).then(|| name.clone())
            }
            _ => None,
        };
        match bare {
            Some(name) => Ok(leaf(Kind::Literal(Literal::Text(name.into())), self.take().span)),
            None => self.expression(),
        }
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        let found = match self.peek() {
            Token::End => "the end".to_owned(),
            Token::Sign(sign) => format!("{sign:?}"),
            Token::Name(name) | Token::Quoted(name) => format!("{name:?}"),
            Token::Text(_) | Token::Bytes(_) => "a string".to_owned(),
            Token::Int(_) | Token::Uint(_) | Token::Double(_) => "a number".to_owned(),
        };
        let fault = Fault::new(Code::ExprSyntax, self.span(), format!("expected {wanted}, found {found}"));
        match self.peek() {
            Token::Name(name) if name == "and" => fault.hint("write \"&&\""),
            Token::Name(name) if name == "or" => fault.hint("write \"||\""),
            Token::Name(name) if name == "not" => fault.hint("write \"!\""),
            Token::Name(name)
                if matches!(name.as_str(), "contains" | "startsWith" | "endsWith" | "matches") =>
            {
                fault.hint(format!("call it as a method: .{name}(…)"))
            }
            _ => fault,
        }
    }
}

fn leaf(kind: Kind, span: Span) -> Node {
    Node { kind, span, height: 1 }
}

fn build(kind: Kind, span: Span, below: Option<u16>) -> Result<Node, Fault> {
    let height = below.unwrap_or(0) + 1;
    if height > HEIGHT_MAX {
        let what = format!("a chain of more than {HEIGHT_MAX} operators");
        return Err(Fault::new(Code::ExprLimit, span, what).hint("use a list with \"in\", or split it"));
    }
    Ok(Node { kind, span, height })
}
