//! JSON compared as values: one byte form for every way of writing the same value, and its hash.

use sha2::{Digest, Sha256};

use super::text::{next_special, unescape};

/// SHA-256 over the canonical forms of `parts`, one after the other. `{"a":1,"b":2}` and
/// `{"b":2.0,"a":1e0}` hash alike. The parts must have passed [`super::check`].
pub fn canonical_hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(canonical(part));
    }
    hash.finalize().into()
}

/// The canonical form of a checked JSON text. Every form says where it ends, so a sequence of them is
/// unambiguous:
///
/// ```text
///  null n   true t   false f
///  number   #<sign><digits>e<exponent>;   no zero at either end of the digits; exact; zero is #0;
///  string   "<bytes>:<text>               unescaped
///  array    [<value>…]
///  object   {<string><value>…}            by key
/// ```
pub fn canonical(raw: &str) -> Vec<u8> {
    let mut writer = Writer { text: raw, at: 0 };
    let mut out = Vec::with_capacity(raw.len());
    writer.value(&mut out);
    out
}

/// Walks text that is known to be good; nesting was bounded when it was checked.
struct Writer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Writer<'a> {
    fn value(&mut self, out: &mut Vec<u8>) {
        match self.peek() {
            b'{' => self.object(out),
            b'[' => self.array(out),
            b'"' => {
                let inner = self.string();
                write_string(&unescape(inner), out);
            }
            first @ (b'n' | b't' | b'f') => {
                self.at += if first == b'f' { 5 } else { 4 };
                out.push(first);
            }
            _ => write_number(self.number(), out),
        }
    }

    fn array(&mut self, out: &mut Vec<u8>) {
        out.push(b'[');
        self.at += 1;
        while !matches!(self.peek(), b']' | 0) {
            self.value(out);
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        out.push(b']');
    }

    /// Members are written as they come and brought into order afterwards, which mostly they are in already.
    fn object(&mut self, out: &mut Vec<u8>) {
        self.at += 1;
        out.push(b'{');
        let start = out.len();
        let mut members = Vec::new();
        while self.peek() == b'"' {
            let (key, from) = (unescape(self.string()), out.len());
            write_string(&key, out);
            self.peek();
            self.at += 1;
            self.value(out);
            members.push((key, from..out.len()));
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        if !members.is_sorted_by(|a, b| a.0 <= b.0) {
            members.sort_by(|a, b| a.0.cmp(&b.0));
            let ordered: Vec<u8> = members.into_iter().flat_map(|(_, range)| out[range].to_vec()).collect();
            out.truncate(start);
            out.extend(ordered);
        }
        out.push(b'}');
    }

    fn string(&mut self) -> &'a str {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let mut end = next_special(bytes, start);
        while bytes.get(end) == Some(&b'\\') {
            end = next_special(bytes, end + 2);
        }
        self.at = end + 1;
        self.text.get(start..end).unwrap_or_default()
    }

    fn number(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let number = &rest[..end.unwrap_or(rest.len())];
        self.at += number.len().max(1);
        number
    }

    /// The next byte that is no space; 0 at the end.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(0)
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.len().to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(text.as_bytes());
}

fn write_number(raw: &str, out: &mut Vec<u8>) {
    // Most numbers are small integers that end in another digit than zero: their form is their text.
    if raw.len() < 19 && raw.bytes().all(|b| b.is_ascii_digit()) && !raw.ends_with('0') {
        out.push(b'#');
        out.extend_from_slice(raw.as_bytes());
        return out.extend_from_slice(b"e0;");
    }
    let (mantissa, exponent) = raw.split_once(['e', 'E']).unwrap_or((raw, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return out.extend(b"#0;");
    }
    let trailing = digits.len() - digits.trim_end_matches('0').len();
    let shift = trailing as i128 - fraction.len() as i128;
    // An exponent beyond i128 is that of a number too small for any use; it only has to stay itself.
    let exponent = match exponent.parse::<i128>() {
        Ok(exponent) => exponent.saturating_add(shift).to_string(),
        Err(_) => format!("{exponent}+{shift}"),
    };
    out.extend(format!("#{sign}{significant}e{exponent};").bytes());
}
