//! `all exists filter map`, and the collection library's `where select orderBy reduce`: a body evaluated for
//! each element of a list, key of a map, or row of a result.

use std::cmp::Ordering;

use model::Code;

use super::ast::Op;
use super::builtins::Macro;
use super::collect;
use super::eval::{Eval, Out};
use super::fault::{Fault, Span};
use super::program::Loop;
use super::value::Val;

/// Deepest nesting that `reduce` may build.
const DEPTH_MAX: u16 = 100;

impl<'a> Eval<'a, '_> {
    pub(super) fn looped(&mut self, kind: Macro, parts: &'a Loop) -> Out<'a> {
        let over = self.node(&parts.over)?;
        self.pay(over.len().unwrap_or(0), 0, parts.over.span)?;
        let over = if parts.rows { self.rows(over, &parts.over)? } else { over };
        // A missing list is an empty one.
        let over = if matches!(over, Val::Null) { Val::list(Vec::new()) } else { over };
        if over.len().is_none() {
            return Err(self.mismatch(&over, &parts.over, "a list or a map is needed here"));
        }
        let over = if parts.pairs && kind != Macro::Reduce { over } else { over.walked() };
        match kind {
            Macro::All | Macro::Exists => self.quantify(&over, parts, kind == Macro::Exists),
            Macro::ExistsOne | Macro::Count => self.tally(&over, parts, kind),
            Macro::Filter => self.kept(&over, parts),
            Macro::First | Macro::Last | Macro::Single => self.chosen(&over, parts, kind),
            Macro::Map | Macro::TransformList => self.made(&over, parts),
            Macro::TransformMap => self.made_map(&over, parts),
            Macro::Sum | Macro::Avg => {
                let values = self.made(&over, parts)?;
                collect::sum(self, kind == Macro::Avg, &values, &parts.body, parts.body.span)
            }
            Macro::Min | Macro::Max => {
                let values = self.made(&over, parts)?;
                collect::extreme(self, kind == Macro::Max, &values, &parts.body)
            }
            Macro::OrderBy | Macro::OrderByDesc => self.ordered(&over, parts, kind == Macro::OrderByDesc),
            Macro::GroupBy | Macro::Distinct => self.grouped(&over, parts, kind == Macro::Distinct),
            Macro::Reduce => self.reduced(&over, parts),
        }
    }

    /// Puts the variables of turn `index` in place, runs `body`, and takes them away.
    fn turn<T>(
        &mut self,
        over: &Val<'a>,
        parts: &Loop,
        index: usize,
        body: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let depth = self.locals.len();
        if !parts.pairs {
            let item = over.element(index).unwrap_or(Val::Null);
            self.pay(1, item.owned_len(), parts.over.span)?;
            self.locals.push(item);
        } else if let Some((key, value)) = over.pair(index) {
            // Reaching the nth entry of an object walks over those before it.
            self.pay(1 + index / 16, key.owned_len() + value.owned_len(), parts.over.span)?;
            self.locals.extend([key, value]);
        } else {
            let item = over.element(index).unwrap_or(Val::Null);
            self.pay(1, item.owned_len(), parts.over.span)?;
            self.locals.extend([Val::count(index), item]);
        }
        let done = body(self);
        self.locals.truncate(depth);
        done
    }

    /// `all` and `exists` forgive errors as `&&` and `||` do.
    fn quantify(&mut self, over: &Val<'a>, parts: &'a Loop, decisive: bool) -> Out<'a> {
        let mut failed = None;
        for index in 0..over.len().unwrap_or(0) {
            match self.turn(over, parts, index, |eval| eval.truth(&parts.body)) {
                Ok(value) if value == decisive => return Ok(Val::Bool(decisive)),
                Ok(_) => {}
                Err(fault) if fault.code == Code::ExprLimit => return Err(fault),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn tally(&mut self, over: &Val<'a>, parts: &'a Loop, kind: Macro) -> Out<'a> {
        let mut found = 0;
        for index in 0..over.len().unwrap_or(0) {
            found += usize::from(self.turn(over, parts, index, |eval| eval.truth(&parts.body))?);
        }
        Ok(if kind == Macro::Count { Val::count(found) } else { Val::Bool(found == 1) })
    }

    fn kept(&mut self, over: &Val<'a>, parts: &'a Loop) -> Out<'a> {
        let mut kept = Vec::new();
        for index in 0..over.len().unwrap_or(0) {
            if self.turn(over, parts, index, |eval| eval.truth(&parts.body))? {
                let item = over.element(index).or_else(|| over.pair(index).map(|pair| pair.0));
                kept.push(self.copied(item.unwrap_or(Val::Null), parts.over.span)?);
            }
        }
        Ok(Val::list(kept))
    }

    fn copied(&mut self, item: Val<'a>, span: Span) -> Out<'a> {
        self.pay(0, item.owned_len(), span)?;
        Ok(item)
    }

    fn chosen(&mut self, over: &Val<'a>, parts: &'a Loop, kind: Macro) -> Out<'a> {
        let kept = self.kept(over, parts)?;
        let len = kept.len().unwrap_or(0);
        match (kind, len) {
            (Macro::Single, 1) | (Macro::First, _) => Ok(kept.element(0).unwrap_or(Val::Null)),
            (Macro::Last, _) => Ok(kept.element(len.saturating_sub(1)).unwrap_or(Val::Null)),
            _ => {
                let what = format!("\"single\" needs one element, there are {len}");
                Err(Fault::new(Code::ExprIndex, parts.body.span, what))
            }
        }
    }

    fn wanted(&mut self, parts: &'a Loop) -> Result<bool, Fault> {
        parts.test.as_ref().map_or(Ok(true), |test| self.truth(test))
    }

    fn made(&mut self, over: &Val<'a>, parts: &'a Loop) -> Out<'a> {
        let mut made = Vec::new();
        for index in 0..over.len().unwrap_or(0) {
            let value = self.turn(over, parts, index, |eval| {
                if eval.wanted(parts)? { eval.node(&parts.body).map(Some) } else { Ok(None) }
            })?;
            made.extend(value);
        }
        Ok(Val::list(made))
    }

    fn made_map(&mut self, over: &Val<'a>, parts: &'a Loop) -> Out<'a> {
        let mut made = Vec::new();
        for index in 0..over.len().unwrap_or(0) {
            let pair = self.turn(over, parts, index, |eval| {
                if !eval.wanted(parts)? {
                    return Ok(None);
                }
                let key = eval.locals[eval.locals.len() - 2].clone();
                Ok(Some((key, eval.node(&parts.body)?)))
            })?;
            made.extend(pair);
        }
        Ok(Val::map(made))
    }

    fn ordered(&mut self, over: &Val<'a>, parts: &'a Loop, descending: bool) -> Out<'a> {
        let keys = self.made(over, parts)?;
        let mut order: Vec<usize> = (0..keys.len().unwrap_or(0)).collect();
        let steps = order.len() * (usize::BITS - order.len().leading_zeros()) as usize;
        self.pay(steps, 0, parts.over.span)?;
        let mut failed = None;
        // Equal keys keep their order; what cannot be compared is reported after the sorting.
        order.sort_by(|a, b| {
            let (a, b) = (keys.element(*a).unwrap_or(Val::Null), keys.element(*b).unwrap_or(Val::Null));
            let found = match (&a, &b) {
                (Val::Null, Val::Null) => Ok(Some(Ordering::Equal)),
                (Val::Null, _) => Ok(Some(Ordering::Less)),
                (_, Val::Null) => Ok(Some(Ordering::Greater)),
                _ => self.order(Op::Less, (&parts.body, &a), (&parts.body, &b)),
            };
            let order = found.unwrap_or_else(|fault| {
                failed.get_or_insert(fault);
                None
            });
            let order = order.unwrap_or(Ordering::Equal);
            if descending { order.reverse() } else { order }
        });
        match failed {
            Some(fault) => Err(fault),
            None => Ok(Val::list(order.into_iter().filter_map(|index| over.element(index)).collect())),
        }
    }

    /// `[{key, items}, …]` in the order in which the keys first came, or one element of each.
    fn grouped(&mut self, over: &Val<'a>, parts: &'a Loop, one_each: bool) -> Out<'a> {
        let made = self.made(over, parts)?;
        let mut keys: Vec<Val<'a>> = Vec::new();
        let mut groups: Vec<Vec<Val<'a>>> = Vec::new();
        for index in 0..made.len().unwrap_or(0) {
            let key = made.element(index).unwrap_or(Val::Null);
            let item = over.element(index).unwrap_or(Val::Null);
            match collect::position(self, &keys, &key, parts.body.span)? {
                Some(group) if !one_each => groups[group].push(item),
                Some(_) => {}
                None => {
                    keys.push(key);
                    groups.push(vec![item]);
                }
            }
        }
        if one_each {
            return Ok(Val::list(groups.into_iter().flatten().collect()));
        }
        let group = |(key, items): (Val<'a>, Vec<Val<'a>>)| {
            Val::map(vec![(Val::text("key"), key), (Val::text("items"), Val::list(items))])
        };
        Ok(Val::list(keys.into_iter().zip(groups).map(group).collect()))
    }

    fn reduced(&mut self, over: &Val<'a>, parts: &'a Loop) -> Out<'a> {
        let mut total = match &parts.first {
            Some(first) => self.node(first)?,
            None => Val::Null,
        };
        for index in 0..over.len().unwrap_or(0) {
            let item = over.element(index).unwrap_or(Val::Null);
            self.pay(1, item.owned_len() + total.owned_len(), parts.over.span)?;
            self.locals.extend([total, item]);
            let next = self.node(&parts.body);
            self.locals.truncate(self.locals.len() - 2);
            total = next?;
            if total.depth() > DEPTH_MAX {
                let what = format!("\"reduce\" nests deeper than {DEPTH_MAX} levels");
                return Err(Fault::new(Code::ExprLimit, parts.body.span, what));
            }
        }
        Ok(total)
    }
}
