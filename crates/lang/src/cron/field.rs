//! One field of a cron expression: a list of values, ranges and steps, as bits.

use model::{Code, Problem};

/// What a field may hold.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) min: u32,
    /// The largest value; a weekday may also be written 7, which is 0.
    pub(super) max: u32,
    step_max: u32,
    /// Of the values from `min` on.
    names: &'static [&'static str],
}

pub(super) const SECOND: Field = Field { name: "second", min: 0, max: 59, step_max: 59, names: &[] };
pub(super) const MINUTE: Field = Field { name: "minute", min: 0, max: 59, step_max: 59, names: &[] };
pub(super) const HOUR: Field = Field { name: "hour", min: 0, max: 23, step_max: 23, names: &[] };
pub(super) const DAY: Field = Field { name: "day", min: 1, max: 31, step_max: 31, names: &[] };
pub(super) const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    step_max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
pub(super) const WEEKDAY: Field = Field {
    name: "weekday",
    min: 0,
    max: 6,
    step_max: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// What the parts of a list have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Values {
    pub(super) bits: u64,
    /// `*` stands in it, so that it says nothing.
    pub(super) any: bool,
    /// A range, a step or `*` stands in it.
    pub(super) many: bool,
}

impl Values {
    pub(super) fn add(&mut self, other: Values) {
        self.bits |= other.bits;
        self.any |= other.any;
        self.many |= other.many;
    }
}

impl Field {
    /// All parts of a list, none of them empty.
    pub(super) fn parts<'a>(&self, text: &'a str) -> Result<Vec<&'a str>, Problem> {
        let parts: Vec<&str> = text.split(',').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(self.wrong(format!("the {} {text:?} is a list with an empty place", self.name)));
        }
        Ok(parts)
    }

    pub(super) fn list(&self, text: &str) -> Result<Values, Problem> {
        let mut all = Values::default();
        for part in self.parts(text)? {
            all.add(self.part(part)?);
        }
        Ok(all)
    }

    /// `*`, `5`, `5-9`, each with `/2` behind it or not.
    pub(super) fn part(&self, text: &str) -> Result<Values, Problem> {
        let (base, step) = match text.split_once('/') {
            Some((base, step)) => (base, Some(self.step(text, step)?)),
            None => (text, None),
        };
        let steps = step.unwrap_or(1);
        if matches!(base, "*" | "?") {
            return Ok(Values { any: steps == 1, many: true, bits: self.bits(self.min, self.max, steps) });
        }
        if let Some((from, to)) = base.split_once('-') {
            let (from, to) = (self.value(text, from)?, self.end(text, to)?);
            return Ok(Values { any: false, many: true, bits: self.bits(from, to, steps) });
        }
        let from = self.value(text, base)?;
        let to = if step.is_some() { self.max } else { from };
        Ok(Values { any: false, many: step.is_some(), bits: self.bits(from, to, steps) })
    }

    /// From `from` to `to` in steps; round the end when `to` is before `from`.
    fn bits(&self, from: u32, to: u32, step: u32) -> u64 {
        let round = self.max - self.min + 1;
        let to = if to < from { to + round } else { to };
        (from..=to)
            .step_by(step as usize)
            .fold(0, |bits, value| bits | 1 << (self.min + (value - self.min) % round))
    }

    fn step(&self, part: &str, text: &str) -> Result<u32, Problem> {
        number(text).filter(|step| (1..=self.step_max).contains(step)).ok_or_else(|| {
            let what = format!("the step {text:?} of the {} {part:?}", self.name);
            self.wrong(format!("{what} is not a number from 1 to {}", self.step_max))
        })
    }

    /// One value; Sunday is 0, however it was written.
    pub(super) fn value(&self, part: &str, text: &str) -> Result<u32, Problem> {
        let value = self.end(part, text)?;
        Ok(if value > self.max { self.min } else { value })
    }

    /// The end of a range, where Sunday may be 7.
    fn end(&self, part: &str, text: &str) -> Result<u32, Problem> {
        let named = || {
            let at = self.names.iter().position(|name| name.eq_ignore_ascii_case(text))?;
            Some(self.min + at as u32)
        };
        let max = if self.name == WEEKDAY.name { 7 } else { self.max };
        let value = number(text).filter(|value| (self.min..=max).contains(value)).or_else(named);
        value.ok_or_else(|| self.not_one(part, text, max))
    }

    fn not_one(&self, part: &str, text: &str, max: u32) -> Problem {
        let within = if part == text { String::new() } else { format!(" in {part:?}") };
        let names = match self.names {
            [first, .., last] => format!(", nor a name from {first} to {last}"),
            _ => String::new(),
        };
        let (name, min) = (self.name, self.min);
        self.wrong(format!("the {name} {text:?}{within} is not a number from {min} to {max}{names}"))
    }

    /// A problem of this field.
    pub(super) fn wrong(&self, detail: String) -> Problem {
        let hint = match self.name {
            "day" => "write days such as 1,15 or 1-7 or */2, or one of L, L-3, LW, 15W",
            "weekday" => {
                "write weekdays such as 1-5 or mon,fri, or 5L for the last friday, 5#2 for the second"
            }
            "month" => "write months such as 1-6 or jan,jul or */3",
            "hour" => "write hours such as 7 or 9-17 or */2",
            _ => "write values such as 0 or 0,30 or 10-20 or */5",
        };
        Problem::new(Code::CronInvalid, detail).hint(hint).with("field", self.name)
    }
}

/// One or two digits.
pub(super) fn number(text: &str) -> Option<u32> {
    let digits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}
