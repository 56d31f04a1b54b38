//! `all exists exists_one filter map`: a body evaluated for each element of a list or key of a map.

use model::Code;

use super::eval::{Eval, Out};
use super::fault::{Fault, Span};
use super::program::{Loop, Macro};
use super::value::Val;

impl<'a> Eval<'a, '_> {
    pub(super) fn looped(&mut self, kind: Macro, parts: &'a Loop) -> Out<'a> {
        let over = self.node(&parts.over)?;
        self.pay(over.len().unwrap_or(0), 0, parts.over.span)?;
        let over = over.walked();
        let len = match (&over, over.len()) {
            (_, Some(len)) => len,
            // A missing list is an empty one.
            (Val::Null, _) => 0,
            _ => return Err(self.mismatch(&over, &parts.over, "a list or a map is needed here")),
        };
        match kind {
            Macro::All | Macro::Exists => self.quantify(&over, len, parts, kind == Macro::Exists),
            Macro::ExistsOne => {
                let mut found = 0;
                self.each(&over, parts.over.span, |eval, _| {
                    found += usize::from(eval.truth(&parts.body)?);
                    Ok(())
                })?;
                Ok(Val::Bool(found == 1))
            }
            Macro::Filter => {
                let mut kept = Vec::new();
                self.each(&over, parts.over.span, |eval, item| {
                    if eval.truth(&parts.body)? {
                        kept.push(item);
                    }
                    Ok(())
                })?;
                Ok(Val::list(kept))
            }
            Macro::Map => {
                let mut made = Vec::new();
                self.each(&over, parts.over.span, |eval, _| {
                    let wanted = parts.test.as_ref().map_or(Ok(true), |test| eval.truth(test))?;
                    if wanted {
                        made.push(eval.node(&parts.body)?);
                    }
                    Ok(())
                })?;
                Ok(Val::list(made))
            }
        }
    }

    /// `all` and `exists` forgive errors as `&&` and `||` do.
    fn quantify(&mut self, over: &Val<'a>, len: usize, parts: &'a Loop, decisive: bool) -> Out<'a> {
        let (mut failed, mut decided) = (None, false);
        for index in 0..len {
            let item = over.element(index).unwrap_or(Val::Null);
            self.pay(0, item.owned_len(), parts.over.span)?;
            self.locals.push(item);
            let verdict = self.truth(&parts.body);
            self.locals.pop();
            match verdict {
                Ok(value) if value == decisive => decided = true,
                Ok(_) => continue,
                Err(fault) if fault.code == Code::ExprLimit => return Err(fault),
                Err(fault) => failed = failed.or(Some(fault)),
            }
            if decided {
                return Ok(Val::Bool(decisive));
            }
        }
        failed.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn each(
        &mut self,
        over: &Val<'a>,
        span: Span,
        mut body: impl FnMut(&mut Self, Val<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for index in 0..over.len().unwrap_or(0) {
            let item = over.element(index).unwrap_or(Val::Null);
            self.pay(0, 2 * item.owned_len(), span)?;
            self.locals.push(item.clone());
            let done = body(self, item);
            self.locals.pop();
            done?;
        }
        Ok(())
    }
}
