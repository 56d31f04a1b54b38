//! Base64 (RFC 4648 §4): how bytes stand in JSON and in headers.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

/// The bytes, or `None` when the text is not what [`encode`] could have written.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in digits.as_bytes().chunks(4) {
        let mut word = 0u32;
        for byte in chunk {
            word = word << 6 | u32::from(digit(*byte)?);
        }
        word <<= 6 * (4 - chunk.len());
        let bytes = &word.to_be_bytes()[1..];
        let (kept, rest) = bytes.split_at(chunk.len() - 1);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

/// As [`decode`], for what others wrote: padding may be missing, and bits that say nothing may be set.
pub fn decode_loosely(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.as_bytes().chunks(4) {
        let mut word = 0u32;
        for byte in chunk {
            word = word << 6 | u32::from(digit(*byte)?);
        }
        word <<= 6 * (4 - chunk.len());
        out.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_reads_back_what_it_wrote() {
        let table = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{ff}~", "w79+"),
        ];
        for (plain, coded) in table {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()), "{coded}");
        }
    }

    #[test]
    fn what_others_wrote_may_lack_padding_but_not_digits() {
        for text in ["Zg==", "Zg", "Zh"] {
            assert_eq!(decode_loosely(text).as_deref(), Some(b"f".as_slice()), "{text}");
        }
        assert_eq!(decode_loosely("Zm8").as_deref(), Some(b"fo".as_slice()));
        for bad in ["Z", "Zm9vZ", "Zg===", "Z!", "Zm 9"] {
            assert_eq!(decode_loosely(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn text_that_nobody_encoded_is_refused() {
        for bad in ["Z", "Zg", "Zg=", "Zh==", "Z===", "====", "Zm9v\n", "Zm 9", "Zm9-", "é==="] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
