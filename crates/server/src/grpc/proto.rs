//! Protocol Buffers by hand: the few kinds of fields that `proto/everwhen/v1` uses, read and written. Pure.
//!
//! ```text
//!   field = varint(number << 3 | kind) value      kind 0 varint · 1 eight bytes · 2 varint(length) bytes · 5 four bytes
//! ```
//! `google.protobuf.Struct` and `Value` are JSON; their numbers are doubles.

use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value, json};

/// Nesting of structs in what clients send.
const DEPTH_MAX: usize = 64;
/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// A field's value as it stands in a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    Number(u64),
    Eight([u8; 8]),
    Bytes(&'a [u8]),
    Four,
}

fn bad() -> Problem {
    Problem::new(Code::RequestInvalid, "the message is not the Protocol Buffers of this method")
        .hint("proto/everwhen/v1/everwhen.proto says how it is written")
}

/// The fields of a message, in order; unknown ones are left to whoever reads.
pub fn fields(mut bytes: &[u8]) -> Result<Vec<(u32, Field<'_>)>, Problem> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = u32::try_from(key >> 3).map_err(|_| bad())?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Eight(take(&mut bytes, 8)?.try_into().map_err(|_| bad())?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| bad())?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            5 => {
                take(&mut bytes, 4)?;
                Field::Four
            }
            _ => return Err(bad()),
        };
        fields.push((number, field));
    }
    Ok(fields)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Problem> {
    let (front, rest) = bytes.split_at_checked(length).ok_or_else(bad)?;
    *bytes = rest;
    Ok(front)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Problem> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(bad())
}

impl<'a> Field<'a> {
    pub fn text(self) -> Result<&'a str, Problem> {
        std::str::from_utf8(self.bytes()?).map_err(|_| bad())
    }

    pub fn bytes(self) -> Result<&'a [u8], Problem> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(bad()),
        }
    }

    pub fn number(self) -> Result<u64, Problem> {
        match self {
            Field::Number(number) => Ok(number),
            _ => Err(bad()),
        }
    }

    pub fn double(self) -> Result<f64, Problem> {
        match self {
            Field::Eight(bytes) => Ok(f64::from_le_bytes(bytes)),
            _ => Err(bad()),
        }
    }
}

/// A `google.protobuf.Value` as JSON.
pub fn value(bytes: &[u8]) -> Result<Value, Problem> {
    value_at(bytes, DEPTH_MAX)
}

fn value_at(bytes: &[u8], depth: usize) -> Result<Value, Problem> {
    let deeper = depth.checked_sub(1).ok_or_else(bad)?;
    let mut value = Value::Null;
    for (number, field) in fields(bytes)? {
        value = match number {
            2 => finite(field.double()?)?,
            3 => field.text()?.into(),
            4 => (field.number()? != 0).into(),
            5 => structure_at(field.bytes()?, deeper)?,
            6 => {
                let items = fields(field.bytes()?)?;
                let items = items.into_iter().filter(|(number, _)| *number == 1);
                items.map(|(_, item)| value_at(item.bytes()?, deeper)).collect::<Result<_, _>>()?
            }
            _ => Value::Null,
        };
    }
    Ok(value)
}

/// A `google.protobuf.Timestamp`; its nanoseconds count forward, also before 1970.
pub fn instant(bytes: &[u8]) -> Result<Timestamp, Problem> {
    let (mut seconds, mut nanos) = (0, 0);
    for (number, field) in fields(bytes)? {
        match number {
            1 => seconds = field.number()? as i64,
            2 => nanos = field.number()? as i64,
            _ => {}
        }
    }
    if !(0..SECOND).contains(&nanos) {
        let detail = format!("the \"nanos\" of an instant are 0 to 999999999, not {nanos}");
        return Err(Problem::new(Code::RequestInvalid, detail));
    }
    let whole = i128::from(seconds) * i128::from(SECOND) + i128::from(nanos);
    let at = Timestamp::from_nanos(whole);
    if at.nanos() != whole {
        return Err(Problem::new(Code::RequestInvalid, "an instant lies outside of the years 0000 to 9999"));
    }
    Ok(at)
}

/// JSON has no word for what is no number: nothing is put in its place.
fn finite(number: f64) -> Result<Value, Problem> {
    let refuse = || Problem::new(Code::RequestInvalid, format!("a value is {number}, which JSON cannot say"));
    number.is_finite().then(|| whole(number)).ok_or_else(|| refuse().hint("leave it out, or send a text"))
}

/// A double that is a whole number is written as one, so that positions and counts are read as such.
pub fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { json!(number as i64) } else { json!(number) }
}

/// A `google.protobuf.Struct` as JSON.
pub fn structure(bytes: &[u8]) -> Result<Value, Problem> {
    structure_at(bytes, DEPTH_MAX)
}

fn structure_at(bytes: &[u8], depth: usize) -> Result<Value, Problem> {
    let mut map = Map::new();
    for (_, entry) in fields(bytes)?.into_iter().filter(|(number, _)| *number == 1) {
        let (mut key, mut value) = (String::new(), Value::Null);
        for (number, field) in fields(entry.bytes()?)? {
            match number {
                1 => key = field.text()?.to_owned(),
                2 => value = value_at(field.bytes()?, depth)?,
                _ => {}
            }
        }
        map.insert(key, value);
    }
    Ok(Value::Object(map))
}

/// A message being written. Fields that have their default are left out, as proto3 has it.
#[derive(Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn key(&mut self, number: u32, kind: u64) {
        self.varint(u64::from(number) << 3 | kind);
    }

    pub fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.key(field, 0);
            self.varint(number);
        }
    }

    pub fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    pub fn instant(&mut self, field: u32, at: Timestamp) {
        let nanos = at.nanos();
        self.message(field, |message| {
            message.number(1, nanos.div_euclid(1_000_000_000) as i64 as u64);
            message.number(2, nanos.rem_euclid(1_000_000_000) as u64);
        });
    }

    pub fn structure(&mut self, field: u32, value: &Value) {
        self.message(field, |message| message.members(value));
    }

    /// The members of a `google.protobuf.Struct`.
    pub fn members(&mut self, value: &Value) {
        for (key, value) in value.as_object().into_iter().flatten() {
            self.message(1, |entry| {
                entry.text(1, key);
                entry.value(2, value);
            });
        }
    }

    pub fn value(&mut self, field: u32, value: &Value) {
        self.message(field, |message| match value {
            // A oneof says which it is also when it has its default.
            Value::Null => message.0.extend([1 << 3, 0]),
            Value::Bool(yes) => message.0.extend([4 << 3, u8::from(*yes)]),
            Value::Number(number) => {
                message.key(2, 1);
                message.0.extend(number.as_f64().unwrap_or_default().to_le_bytes());
            }
            Value::String(text) => message.bytes(3, text.as_bytes()),
            Value::Object(_) => message.structure(5, value),
            Value::Array(items) => {
                message.message(6, |list| items.iter().for_each(|item| list.value(1, item)));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_comes_back_as_it_went() {
        let whole = json!({"a": [1, 2.5, "x", null, true, false, {}, []], "b": {"c": {"d": -7}}, "": "ä"});
        let mut message = Message::default();
        message.value(1, &whole);
        let [(1, Field::Bytes(inner))] = fields(&message.0).unwrap()[..] else { panic!("{:?}", message.0) };
        assert_eq!(value(inner).unwrap(), whole);
    }

    #[test]
    fn what_json_cannot_say_is_refused_and_not_changed() {
        let of = |number: f64| {
            let mut message = Message::default();
            message.key(2, 1);
            message.0.extend(number.to_le_bytes());
            value(&message.0)
        };
        assert_eq!(of(1.5).unwrap(), json!(1.5));
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(of(number).is_err(), "{number}");
        }
    }

    #[test]
    fn an_instant_counts_its_nanoseconds_forward_and_below_a_second() {
        let of = |seconds: i64, nanos: i64| {
            let mut message = Message::default();
            message.number(1, seconds as u64);
            message.number(2, nanos as u64);
            instant(&message.0)
        };
        assert_eq!(of(-1, 5).unwrap().nanos(), -999_999_995);
        for nanos in [-5, SECOND, i64::MAX] {
            assert!(of(1, nanos).is_err(), "{nanos}");
        }
        assert!(of(i64::MAX, 0).is_err());
    }

    #[test]
    fn what_is_cut_off_or_too_deep_is_refused_and_nothing_panics() {
        let mut message = Message::default();
        message.structure(1, &json!({"a": {"b": "some text"}, "n": 300}));
        message.text(2, "text");
        message.number(3, u64::MAX);
        for end in 0..message.0.len() {
            let _ = fields(&message.0[..end]).and_then(|fields| {
                fields.iter().try_for_each(|(_, field)| structure(field.bytes()?).map(drop))
            });
        }
        for first in 0..=255u8 {
            let _ = fields(&[first, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        }
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        let mut message = Message::default();
        message.value(1, &deep);
        let inner = fields(&message.0).unwrap()[0].1.bytes().unwrap();
        assert!(value(inner).is_err());
    }
}
