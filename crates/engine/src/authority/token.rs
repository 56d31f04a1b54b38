//! The text of a token: `ew_<kind>_<base62>_<crc>`.
//!
//! ```text
//!  ew_admin_0HrZ…(32 digits of base 62, 190 bits)…_2fK9aQ
//!     kind  what only its holder knows                crc32 of all before it, base 62: a mistyped one is told apart
//! ```
//! Given out once; what is kept is the SHA-256 of the whole text, which is as hard to guess as the token.

use sha2::{Digest, Sha256};

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SECRET_LENGTH: usize = 32;
const CRC_LENGTH: usize = 6;

/// Makes the text of a new one. `random` is fresh entropy, more than is needed: digits are drawn without favour.
pub fn make(kind: &str, random: &[u8; 64]) -> String {
    // 248 is the largest multiple of 62 in a byte; above it small digits would come more often.
    let fair = random.iter().filter(|byte| **byte < 248).map(|byte| DIGITS[usize::from(byte % 62)] as char);
    let secret: String = fair.chain(std::iter::repeat('0')).take(SECRET_LENGTH).collect();
    let text = format!("ew_{kind}_{secret}");
    let crc: String = checksum(&text).iter().map(|digit| *digit as char).collect();
    format!("{text}_{crc}")
}

/// Whether it looks like one that was made here; says nothing about whether it is known.
pub fn is_whole(text: &str) -> bool {
    let Some((before, crc)) = text.rsplit_once('_') else { return false };
    let mut parts = before.split('_');
    let shaped = parts.next() == Some("ew")
        && parts.next().is_some_and(|kind| !kind.is_empty())
        && parts.next().is_some_and(|secret| {
            secret.len() == SECRET_LENGTH && secret.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
        && parts.next().is_none();
    shaped && crc.as_bytes() == checksum(before)
}

/// What is kept of it.
pub fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn checksum(text: &str) -> [u8; CRC_LENGTH] {
    let mut rest = crc32(text.as_bytes());
    let mut digits = [b'0'; CRC_LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

/// What each value of a byte does to the rest of the sum: every request's token is summed up.
const STEPS: [u32; 256] = {
    let mut steps = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        steps[byte] = crc;
        byte += 1;
    }
    steps
};

/// CRC-32 as in zip and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ STEPS[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_whole_and_one_that_was_mistyped_is_not() {
        let text = make("admin", &std::array::from_fn(|at| (at as u8).wrapping_mul(7)));
        assert!(is_whole(&text), "{text}");
        assert_eq!(text.split('_').map(str::len).collect::<Vec<_>>(), [2, 5, 32, 6]);
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'x' { b'y' } else { b'x' };
            assert!(!is_whole(std::str::from_utf8(&other).unwrap()), "changed at {at}");
        }
        for bad in ["", "ew", "ew_", "ew_admin_", "ew_admin_0", "ew__00000000000000000000000000000000_000000"]
        {
            assert!(!is_whole(bad), "{bad}");
        }
    }

    #[test]
    fn the_checksum_is_that_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
