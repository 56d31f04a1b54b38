//! The hash chain: each line's hash covers the one before it, so a head names the whole history up to it.

use std::fmt;

use model::{Position, id};
use sha2::{Digest, Sha256};

/// The hash after a line. The first line is chained to [`Chain::ZERO`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chain(pub [u8; 32]);

impl Chain {
    pub const ZERO: Chain = Chain([0; 32]);

    /// Reads 64 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Chain> {
        unhex(text).map(Chain)
    }

    /// The chain after a line whose bytes before `,"chain":` are `covered`.
    pub(crate) fn after(self, covered: &[u8]) -> Chain {
        Chain(Sha256::new().chain_update(self.0).chain_update(covered).finalize().into())
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&id::hex(&self.0))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An end of the ledger: the last position and the chain there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub position: Position,
    pub chain: Chain,
}

impl Head {
    /// Before the first line.
    pub const EMPTY: Head = Head { position: 0, chain: Chain::ZERO };
}

/// SHA-256(salt ‖ json): what a record's `x` says about its body.
pub(crate) fn body_digest(salt: &[u8; 16], json: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(salt).chain_update(json).finalize().into()
}

pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let begin = out.len();
    out.resize(begin + 2 * bytes.len(), 0);
    for (pair, byte) in out[begin..].chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// What each character is worth as a lower-case hex digit; 255 = nothing.
const DIGIT: [u8; 256] = {
    let mut table = [255; 256];
    let mut i = 0;
    while i < 16 {
        table[b"0123456789abcdef"[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// Reads exactly `2 * N` lower-case hex digits. Without branches: every line read back has three such
/// numbers.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let (mut out, mut wrong) = ([0; N], 0);
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (DIGIT[usize::from(pair[0])], DIGIT[usize::from(pair[1])]);
        wrong |= high | low;
        *byte = high << 4 | (low & 15);
    }
    (wrong < 16).then_some(out)
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().fold(true, |all, b| all & (b.is_ascii_digit() | (b'a'..=b'f').contains(&b)))
}
