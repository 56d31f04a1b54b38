//! Reads logic and automations: arguments, annotations, statements.

use super::{Read, Reader};
use crate::declare::annotate;
use crate::declare::tree::{Action, Body, Callee, Field, Note, Step, Word};

impl Reader<'_> {
    /// `logic name { args { … } body { … } }`; the statements may also stand without `body`.
    pub(super) fn logic(&mut self) -> Read<(Word, Body)> {
        let name = self.name("the name of the logic")?;
        let (args, steps) = self.args_and_steps()?;
        Ok((name, Body::Logic { args, steps }))
    }

    fn args_and_steps(&mut self) -> Read<(Vec<Field>, Vec<Step>)> {
        let (mut args, mut steps) = (Vec::new(), Vec::new());
        self.block(|reader| {
            let opens = matches!(reader.p.ahead(1), crate::expr::lexer::Token::Sign("{"));
            if opens && reader.p.accept_word("args") {
                args.extend(reader.args()?);
            } else if opens && reader.p.accept_word("body") {
                steps.extend(reader.steps()?);
            } else {
                reader.statements(&mut steps)?;
            }
            Ok(())
        })?;
        Ok((args, steps))
    }

    /// `automation name { … }`, or in short `automation name @trigger(…) => logic x`.
    pub(super) fn automation(&mut self, notes: &mut Vec<Note>) -> Read<(Word, Body)> {
        let name = self.name("the name of the automation")?;
        notes.extend(self.notes()?);
        let (args, steps) =
            if self.p.accept("=>") { (Vec::new(), vec![self.short_call()?]) } else { self.args_and_steps()? };
        let automation = annotate::automation(&name.text, notes, args, steps, &mut self.p.faults);
        Ok((name, Body::Automation(Box::new(automation))))
    }

    /// What stands behind `=>`: one call. Without arguments, logic that has any gets the event.
    fn short_call(&mut self) -> Read<Step> {
        let mut steps = Vec::new();
        self.statements(&mut steps)?;
        let mut step = steps.pop().ok_or_else(|| self.p.unexpected("a call"))?;
        if let Action::Call { kind: Callee::Logic, args: None, .. } = &step.action {
            step.id = step.id.or_else(|| Some(Word { text: "run".to_owned(), span: step.span }));
        }
        Ok(step)
    }
}
