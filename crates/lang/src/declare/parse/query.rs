//! Reads queries and mutations: a concept, a name, and clauses.

use model::Code;
use model::definition::Write;

use super::{Read, Reader};
use crate::declare::finding::{fault, suggest};
use crate::declare::tree::{AsOf, Body, Mutation, Query, Word};
use crate::expr::ast::{Kind, Literal, Node};
use crate::expr::lexer::Token;

const QUERY: [&str; 9] =
    ["args", "filter", "refine", "shape", "sort", "paginate", "asOf", "count", "detached"];
const MUTATION: [&str; 7] = ["args", "insert", "update", "upsert", "delete", "accept", "stamp"];

impl Reader<'_> {
    /// `query space queryName { … }`; without a concept before the name, the checker asks for one.
    fn concept_and_name(&mut self, what: &str) -> Read<(Word, Word)> {
        let first = self.name("a concept")?;
        if !matches!(self.p.peek(), Token::Name(_) | Token::Quoted(_)) {
            let lacks =
                fault(Code::ExprSyntax, first.span, format!("the {what} {:?} names no concept", first.text));
            return Err(lacks.hint(format!("write it as {what} <concept> {}", first.text)));
        }
        Ok((first, self.name("a name")?))
    }

    pub(super) fn query(&mut self) -> Read<(Word, Body)> {
        let (concept, name) = self.concept_and_name("query")?;
        let mut query = Query { concept, ..Query::default() };
        let mut seen = Vec::new();
        self.block(|reader| reader.query_clause(&mut query, &mut seen))?;
        Ok((name, Body::Query(query)))
    }

    /// One clause; `seen` has those before it. Filters add up, of everything else there is one.
    fn query_clause(&mut self, query: &mut Query, seen: &mut Vec<String>) -> Read<()> {
        let clause = self.name("a clause of the query")?;
        if seen.contains(&clause.text) && !matches!(clause.text.as_str(), "filter" | "refine") {
            let hint = match clause.text.as_str() {
                "args" => "write all arguments into one block",
                "sort" => "write the fields one behind the other: sort a, b desc",
                _ => "keep one of them",
            };
            let what = format!("the query has {:?} twice", clause.text);
            self.p.faults.push(fault(Code::DefinitionDuplicate, clause.span, what).hint(hint));
        }
        seen.push(clause.text.clone());
        match clause.text.as_str() {
            "args" => query.args.extend(self.args()?),
            "filter" | "refine" => {
                let node = self.p.expression()?;
                query.filter.push(node);
            }
            "shape" => query.shape = Some(self.name("a shape")?),
            "sort" => self.sort(query)?,
            "paginate" => query.paginate = Some(self.at_least_one("a number of rows")?),
            "asOf" if self.p.accept_word("latest") => query.as_of = Some(AsOf::Latest),
            "asOf" => query.as_of = Some(AsOf::Expr(self.p.expression()?)),
            "count" => query.count = true,
            "detached" => query.detached = true,
            other => {
                let operator =
                    [("and", "&&"), ("or", "||"), ("not", "!")].iter().find(|(word, _)| *word == other);
                if let Some((word, sign)) = operator {
                    let what = format!("unexpected {word:?}");
                    return Err(fault(Code::ExprSyntax, clause.span, what).hint(format!("write {sign:?}")));
                }
                let what = format!("a query has no clause {other:?}");
                return Err(suggest(fault(Code::ExprSyntax, clause.span, what), other, QUERY));
            }
        }
        Ok(())
    }

    /// `sort "createdAt", "desc"` or `sort createdAt desc, name`
    fn sort(&mut self, query: &mut Query) -> Read<()> {
        loop {
            let field = self.sort_field()?;
            let comma = self.p.accept(",");
            let direction = match self.p.peek() {
                Token::Text(text) | Token::Name(text) if matches!(text.as_str(), "asc" | "desc") => {
                    Some(text == "desc")
                }
                _ => None,
            };
            if direction.is_some() {
                self.p.take();
            }
            query.sort.push((field, direction.unwrap_or(false)));
            let more = if direction.is_some() { self.p.accept(",") } else { comma };
            if !more {
                return Ok(());
            }
        }
    }

    fn sort_field(&mut self) -> Read<Word> {
        if matches!(self.p.peek(), Token::Text(_)) {
            return self.text("a field");
        }
        let mut word = self.name("a field to sort by")?;
        while self.p.accept(".") {
            let next = self.name("a name after \".\"")?;
            word = Word { text: format!("{}.{}", word.text, next.text), span: word.span.to(next.span) };
        }
        Ok(word)
    }

    pub(super) fn mutation(&mut self) -> Read<(Word, Body)> {
        let (concept, name) = self.concept_and_name("mutation")?;
        let mut mutation = Mutation { concept, ..Mutation::default() };
        let faults = self.p.faults.len();
        self.block(|reader| reader.mutation_clause(&mut mutation))?;
        mutation.broken = self.p.faults.len() > faults;
        Ok((name, Body::Mutation(mutation)))
    }

    fn mutation_clause(&mut self, mutation: &mut Mutation) -> Read<()> {
        let clause = self.name("a clause of the mutation")?;
        let write = match clause.text.as_str() {
            "args" => {
                mutation.args.extend(self.args()?);
                return Ok(());
            }
            "accept" => return self.accept(mutation),
            "stamp" => return self.stamp(mutation),
            "insert" => Write::Insert,
            "update" => Write::Update,
            "upsert" => Write::Upsert,
            "delete" => Write::Delete,
            other => {
                let what = format!("a mutation has no clause {other:?}");
                return Err(suggest(fault(Code::ExprSyntax, clause.span, what), other, MUTATION));
            }
        };
        mutation.writes.push((write, clause.span));
        self.write(write, mutation)
    }

    fn write(&mut self, write: Write, mutation: &mut Mutation) -> Read<()> {
        if !self.p.at_sign("{") {
            // `delete args.id`; everything else may stand beside it as accept and stamp.
            if write == Write::Delete && !self.p.newline_before() && !self.p.at_sign("}") {
                let id = self.p.expression()?;
                mutation.stamp.push((Word { text: "id".to_owned(), span: id.span }, id));
            }
            return Ok(());
        }
        let nested =
            |token: &Token| matches!(token, Token::Name(name) if name == "accept" || name == "stamp");
        if !(nested(self.p.ahead(1)) && matches!(self.p.ahead(2), Token::Sign("{"))) {
            return self.stamp(mutation);
        }
        self.block(|reader| {
            if reader.p.accept_word("accept") {
                return reader.accept(mutation);
            }
            if reader.p.accept_word("stamp") {
                return reader.stamp(mutation);
            }
            let field = reader.name("accept, stamp or a field")?;
            reader.p.expect(":")?;
            mutation.stamp.push((field, reader.p.expression()?));
            reader.p.accept(",");
            Ok(())
        })?;
        Ok(())
    }

    fn accept(&mut self, mutation: &mut Mutation) -> Read<()> {
        self.block(|reader| {
            let field = reader.name("a field to accept")?;
            mutation.accept.push(field);
            reader.p.accept(",");
            Ok(())
        })?;
        Ok(())
    }

    fn stamp(&mut self, mutation: &mut Mutation) -> Read<()> {
        let object = self.p.object()?;
        let Kind::Map(pairs) = object.kind else { unreachable!("an object is a map") };
        for (key, value) in pairs {
            mutation.stamp.push((key_word(key)?, value));
        }
        Ok(())
    }
}

/// A key that is a word, bare or quoted.
pub(super) fn key_word(key: Node) -> Read<Word> {
    match key.kind {
        Kind::Literal(Literal::Text(text)) => Ok(Word { text: text.to_string(), span: key.span }),
        _ => Err(fault(Code::ExprSyntax, key.span, "a field's name is a plain word")),
    }
}
