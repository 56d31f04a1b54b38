//! Bytes of JSON strings: finding their end quickly, and undoing their escapes.

use std::borrow::Cow;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Where, from `at` on, the next `"`, `\` or control character is; the length when there is none.
///
/// Eight bytes at a time: a byte below `n` is one whose high bit appears when `n` is taken away from it. A
/// borrow can raise false alarms only above the first true one, and only the first is used.
#[inline]
pub(crate) fn next_special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * u64::from(b'"'));
        let slash = word ^ (ONES * u64::from(b'\\'));
        let below = |v: u64, n: u64| v.wrapping_sub(ONES * n) & !v & HIGHS;
        let found = below(quote, 1) | below(slash, 1) | below(word, 0x20);
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20).unwrap_or(rest.len())
}

/// The text of a JSON string as written, quotes included. `None` when `raw` is no string; the escapes are
/// taken to have passed [`super::check`].
pub fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    Some(unescape(inner))
}

/// Undoes the escapes of the inside of a checked string.
pub(crate) fn unescape(inner: &str) -> Cow<'_, str> {
    let Some(first) = inner.find('\\') else { return Cow::Borrowed(inner) };
    let mut out = String::with_capacity(inner.len());
    out.push_str(&inner[..first]);
    let mut rest = &inner[first..];
    while let Some(after) = rest.strip_prefix('\\') {
        let (c, used) = escape(after);
        out.push(c);
        rest = &after[used..];
        let plain = rest.find('\\').unwrap_or(rest.len());
        out.push_str(&rest[..plain]);
        rest = &rest[plain..];
    }
    Cow::Owned(out)
}

/// The character that an escape stands for, given what follows its backslash, and the bytes it takes.
fn escape(after: &str) -> (char, usize) {
    let simple = |c| (c, 1);
    match after.as_bytes().first() {
        Some(b'n') => simple('\n'),
        Some(b't') => simple('\t'),
        Some(b'r') => simple('\r'),
        Some(b'b') => simple('\u{8}'),
        Some(b'f') => simple('\u{c}'),
        Some(b'u') => unicode(after),
        Some(b) if b.is_ascii() => simple(char::from(*b)),
        _ => (char::REPLACEMENT_CHARACTER, 0),
    }
}

fn unicode(after: &str) -> (char, usize) {
    let bytes = after.as_bytes();
    let high = hex4(bytes, 1).unwrap_or(0xfffd);
    if !(0xd800..0xdc00).contains(&high) {
        return (char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 5.min(after.len()));
    }
    let low = hex4(bytes, 7).unwrap_or(0xdc00);
    let code = 0x10000 + ((high - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
    (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 11.min(after.len()))
}

/// Four hexadecimal digits at `at`.
pub(crate) fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 4)?;
    digits.iter().try_fold(0, |sum, &b| Some(sum << 4 | char::from(b).to_digit(16)?))
}
