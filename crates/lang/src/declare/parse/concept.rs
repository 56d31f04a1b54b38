//! Reads concepts, and the fields and types that arguments share with them.

use model::Code;

use super::{Read, Reader};
use crate::declare::finding::fault;
use crate::declare::tree::{Body, Field, Member, Type, Word};
use crate::expr::lexer::Token;

impl Reader<'_> {
    pub(super) fn concept(&mut self) -> Read<(Word, Body)> {
        let name = self.name("the name of the concept")?;
        let mut members = Vec::new();
        self.block(|reader| {
            let member = reader.member()?;
            members.push(member);
            reader.p.accept(",");
            Ok(())
        })?;
        Ok((name, Body::Concept(members)))
    }

    fn member(&mut self) -> Read<Member> {
        if self.p.at_sign("@") {
            let note = self.note()?;
            return match note.name.text.as_str() {
                "relationship" => Ok(Member::Relationship(note)),
                other => {
                    let what = format!("the annotation @{other} belongs to no field");
                    Err(fault(Code::ExprSyntax, note.span, what).hint("write it behind the field's type"))
                }
            };
        }
        if self.p.at_word("derive") && matches!(self.p.ahead(1), Token::Text(_)) {
            self.p.take();
            let topic = self.text("a topic")?;
            let when = if self.p.accept_word("when") { Some(self.p.expression()?) } else { None };
            return Ok(Member::Derive { topic, when });
        }
        self.field().map(Member::Field)
    }

    /// `args { name type @required … }`
    pub(super) fn args(&mut self) -> Read<Vec<Field>> {
        let mut fields = Vec::new();
        self.block(|reader| {
            fields.push(reader.field()?);
            reader.p.accept(",");
            Ok(())
        })?;
        Ok(fields)
    }

    /// `name type! @note …`, `name { fields }`, `name object @variant(…) { cases }`
    pub(super) fn field(&mut self) -> Read<Field> {
        let name = match self.p.peek().clone() {
            Token::Text(text) => Word { text, span: self.p.take() },
            _ => self.name("a field")?,
        };
        self.p.accept(":");
        if self.p.newline_before() && !self.p.at_sign("{") || self.p.at_sign("}") {
            let what = format!("the field {:?} has no type", name.text);
            return Err(fault(Code::ExprSyntax, name.span, what).hint(format!("write {} string", name.text)));
        }
        let of_span = self.p.span();
        let mut of = if self.p.at_sign("{") { Type::Object(self.args()?) } else { self.of_type()? };
        let required = self.p.accept("!");
        let mut notes = Vec::new();
        while self.p.at_sign("@") && !matches!(self.p.ahead(1), Token::Name(name) if name == "relationship") {
            notes.push(self.note()?);
        }
        if matches!(&of, Type::Named(word) if word.text == "object") && self.p.at_sign("{") {
            of = Type::Object(self.args()?);
        }
        Ok(Field { name, of, of_span, required, notes })
    }

    fn of_type(&mut self) -> Read<Type> {
        if self.p.accept("[") {
            self.p.expect("]")?;
            return Ok(Type::List(Box::new(self.of_type()?)));
        }
        let word = self.name("a type, such as string")?;
        match word.text.as_str() {
            "enum" => {
                self.p.expect("(")?;
                let mut values = Vec::new();
                while !self.p.accept(")") {
                    values.push(self.p.expression()?);
                    if !self.p.accept(",") && !self.p.at_sign(")") {
                        return Err(self.p.unexpected("\",\" or \")\""));
                    }
                }
                if values.is_empty() {
                    let what = "an enum without values, which nothing fits";
                    let hint = "write what it may be: enum(\"open\", \"done\")";
                    return Err(fault(Code::DefinitionInvalid, self.since(word.span), what).hint(hint));
                }
                Ok(Type::Enum(values))
            }
            "list" | "array" | "ref" | "reference" if self.p.accept("(") => {
                let inner = self.of_type()?;
                self.p.expect(")")?;
                let list = matches!(word.text.as_str(), "list" | "array");
                Ok(if list { Type::List(Box::new(inner)) } else { inner })
            }
            "map" if self.p.accept("[") => {
                self.name("string")?;
                self.p.expect("]")?;
                Ok(Type::Map(Box::new(self.of_type()?)))
            }
            _ => Ok(Type::Named(self.qualified(word))),
        }
    }

    /// `v1:cognition:space` as a type: a concept by its id.
    fn qualified(&mut self, first: Word) -> Word {
        let mut word = first;
        while self.p.at_sign(":") && !self.p.newline_before() && matches!(self.p.ahead(1), Token::Name(_)) {
            self.p.take();
            if let Ok(next) = self.name("a name") {
                word = Word { text: format!("{}:{}", word.text, next.text), span: word.span.to(next.span) };
            }
        }
        word
    }
}
