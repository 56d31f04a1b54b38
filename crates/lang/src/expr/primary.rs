//! Tokens into a tree: values, and the members, indexes and calls that follow them.

use model::Code;

use super::ast::{Kind, Literal, Node, Param};
use super::cursor::Parser;
use super::fault::{Fault, Span};
use super::lexer::Token;
use super::parser::{build, leaf};

impl Parser<'_> {
    pub(super) fn postfix(&mut self) -> Result<Node, Fault> {
        let node = self.primary()?;
        self.suffixes(node)
    }

    pub(super) fn suffixes(&mut self, mut node: Node) -> Result<Node, Fault> {
        loop {
            if self.accept(".") {
                node = self.member(node)?;
            } else if self.at_sign("[") && self.goes_on() {
                self.take();
                let (at, end) = self.bracketed("]")?;
                let (span, height) = (node.span.to(end), node.height.max(at.height));
                node = build(Kind::Index { of: node.into(), at: at.into() }, span, Some(height))?;
            } else {
                return Ok(node);
            }
        }
    }

    /// An expression up to and with `close`, whose opening was taken.
    fn bracketed(&mut self, close: &'static str) -> Result<(Node, Span), Fault> {
        self.brackets += 1;
        let node = self.nested()?;
        let end = self.expect(close)?;
        self.brackets -= 1;
        Ok((node, end))
    }

    fn member(&mut self, of: Node) -> Result<Node, Fault> {
        // `a.?b`: every member may be missing here, so the mark changes nothing.
        self.accept("?");
        let (name, name_span) = self.expect_name("a name after \".\"")?;
        if self.at_sign("(") && self.goes_on() {
            return self.call(Some(of), name, name_span);
        }
        let (span, height) = (of.span.to(name_span), of.height);
        build(Kind::Member { of: of.into(), name }, span, Some(height))
    }

    /// `(…)` after a name. Named arguments, `f(a: 1, b: 2)`, are one object, `f({a: 1, b: 2})`.
    fn call(&mut self, receiver: Option<Node>, name: String, name_span: Span) -> Result<Node, Fault> {
        let open = self.expect("(")?;
        let named = matches!((self.peek(), self.ahead(1)), (Token::Name(_), Token::Sign(":")));
        let (args, end) = if named {
            let object = self.entries(open, ")")?;
            let end = object.span;
            (vec![object], end)
        } else {
            self.list(")")?
        };
        let start = receiver.as_ref().map_or(name_span, |r| r.span);
        let height = args.iter().chain(&receiver).map(|n| n.height).max();
        build(Kind::Call { receiver: receiver.map(Box::new), name, name_span, args }, start.to(end), height)
    }

    /// Nodes split by commas, up to and with `close`; a comma may stand before it.
    pub(super) fn list(&mut self, close: &'static str) -> Result<(Vec<Node>, Span), Fault> {
        self.brackets += 1;
        let mut nodes = Vec::new();
        while !self.at_sign(close) {
            if !nodes.is_empty() {
                if !self.accept(",") {
                    return Err(self.unexpected(&format!("\",\" or {close:?}")));
                }
                if self.at_sign(close) {
                    break;
                }
            }
            nodes.push(self.nested()?);
        }
        self.brackets -= 1;
        Ok((nodes, self.take()))
    }

    fn primary(&mut self) -> Result<Node, Fault> {
        let span = self.span();
        let literal = |parser: &mut Self, literal| {
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
            Token::Duration(nanos) => literal(self, Literal::Duration(nanos)),
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
            // CEL's mark of a name that is not looked for in a container; there are none here.
            Token::Sign(".") if matches!(self.ahead(1), Token::Name(_)) => {
                self.take();
                self.primary()
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    fn name(&mut self, name: String, span: Span) -> Result<Node, Fault> {
        self.take();
        if !(self.at_sign("(") && self.goes_on()) {
            return Ok(leaf(Kind::Name(name), span));
        }
        let when = name == "when";
        let call = self.call(None, name, span)?;
        match call.kind {
            Kind::Call { mut args, .. } if when && args.len() == 1 && self.at_sign("{") => {
                self.take();
                let given = args.pop().expect("one argument was counted");
                let (body, end) = self.bracketed("}")?;
                let height = given.height.max(body.height);
                build(Kind::When { given: given.into(), body: body.into() }, span.to(end), Some(height))
            }
            kind => Ok(Node { kind, ..call }),
        }
    }

    fn grouped(&mut self) -> Result<Node, Fault> {
        let start = self.expect("(")?;
        let (mut node, end) = self.bracketed(")")?;
        node.span = start.to(end);
        Ok(node)
    }

    /// `x => body` or `(x, y) => body`, when that is what stands here.
    pub(super) fn lambda(&mut self) -> Result<Option<Node>, Fault> {
        let start = self.span();
        let Some(len) = self.lambda_head() else { return Ok(None) };
        let mut params = Vec::new();
        for _ in 0..len {
            let span = self.span();
            if let Token::Name(name) = self.peek().clone() {
                params.push(Param { name, span });
            }
            self.take();
        }
        self.expect("=>")?;
        let body = self.nested()?;
        let (span, height) = (start.to(body.span), body.height);
        build(Kind::Lambda { params, body: body.into() }, span, Some(height)).map(Some)
    }

    /// How many tokens stand before the `=>` of a lambda that begins here.
    fn lambda_head(&self) -> Option<usize> {
        let is = |by: usize, sign: &str| matches!(self.ahead(by), Token::Sign(s) if *s == sign);
        let name = |by: usize| matches!(self.ahead(by), Token::Name(_));
        if name(0) {
            return is(1, "=>").then_some(1);
        }
        if !is(0, "(") {
            return None;
        }
        let mut len = 1;
        while name(len) && is(len + 1, ",") {
            len += 2;
        }
        (name(len) && is(len + 1, ")") && is(len + 2, "=>")).then_some(len + 2)
    }

    /// `{ key: value, … }`. Entries are split by commas or line breaks; a bare name is its own text as a
    /// key; `a.b.c` alone means `c: a.b.c`.
    fn map(&mut self) -> Result<Node, Fault> {
        let start = self.expect("{")?;
        self.entries(start, "}")
    }

    /// The same in a declaration, where the next `key:` or `a.b` on a line also begins an entry.
    pub(crate) fn object(&mut self) -> Result<Node, Fault> {
        let start = self.expect("{")?;
        let begins = |p: &Self| matches!((p.peek(), p.ahead(1)), (Token::Name(_), Token::Sign(":" | ".")));
        self.entries_split(start, "}", begins)
    }

    fn entries(&mut self, start: Span, close: &'static str) -> Result<Node, Fault> {
        self.entries_split(start, close, |_| false)
    }

    /// `begins`: whether here a further entry begins, without a sign before it.
    fn entries_split(
        &mut self,
        start: Span,
        close: &'static str,
        begins: impl Fn(&Self) -> bool,
    ) -> Result<Node, Fault> {
        let brackets = std::mem::take(&mut self.brackets);
        let mut pairs: Vec<(Node, Node)> = Vec::new();
        while !self.at_sign(close) {
            let split = self.accept(",") || self.newline_before() || pairs.is_empty() || begins(self);
            if self.at_sign(close) {
                break;
            }
            if !split {
                return Err(self.unexpected(&format!("\",\" or {close:?}")));
            }
            pairs.push(self.entry()?);
        }
        self.brackets = brackets;
        let height = pairs.iter().map(|(key, value)| key.height.max(value.height)).max();
        build(Kind::Map(pairs), start.to(self.take()), height)
    }

    fn entry(&mut self) -> Result<(Node, Node), Fault> {
        let bare = match (self.peek(), self.ahead(1)) {
            (Token::Name(name), Token::Sign(":")) => {
                (!matches!(name.as_str(), "true" | "false" | "null")).then(|| name.clone())
            }
            _ => None,
        };
        let key = match bare {
            Some(name) => leaf(Kind::Literal(Literal::Text(name.into())), self.take()),
            None => self.nested()?,
        };
        if self.accept(":") {
            return Ok((key, self.nested()?));
        }
        match &key.kind {
            Kind::Member { name, .. } | Kind::Name(name) => {
                let text = Kind::Literal(Literal::Text(name.as_str().into()));
                Ok((leaf(text, key.span), key))
            }
            _ => Err(self.unexpected("\":\"")),
        }
    }
}
