//! Ids that sort by time for people's eyes (ULIDs); nothing in the engine relies on their order.

use crate::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A ULID from an instant and 80 bits of entropy: 26 characters of Crockford's base 32.
pub fn ulid(now: Timestamp, entropy: [u8; 10]) -> String {
    let mut bytes = [0u8; 16];
    let millis = now.millis().max(0) as u64;
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&entropy);
    let number = u128::from_be_bytes(bytes);
    let mut text = [0; 26];
    for (i, digit) in text.iter_mut().enumerate() {
        *digit = ALPHABET[(number >> (125 - 5 * i)) as usize & 31];
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[(b >> 4) as usize] as char, DIGITS[(b & 15) as usize] as char])
        .collect()
}

/// What [`hex`] wrote; `None` when it is not hex of exactly that length.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut out = [0u8; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// Hex of any length and in either case, as others write it.
pub fn unhex_any(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    let even = pairs.remainder().is_empty();
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect::<Option<_>>().filter(|_| even)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ulid_sorts_by_its_instant_and_shows_its_entropy() {
        let early = ulid(Timestamp::from_millis(1), [0xff; 10]);
        let late = ulid(Timestamp::from_millis(2), [0; 10]);
        assert!(early < late);
        assert_eq!(late, "00000000020000000000000000");
        assert_eq!(early, "0000000001ZZZZZZZZZZZZZZZZ");
    }

    #[test]
    fn hex_reads_back_what_it_wrote() {
        assert_eq!(unhex::<3>(&hex(&[0, 171, 255])), Some([0, 171, 255]));
        assert_eq!(unhex::<2>("0"), None);
        assert_eq!(unhex::<1>("0G"), None);
    }
}
