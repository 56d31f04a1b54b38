//! The token of a delivery: names one hand-out of one event by one opening of the engine, and nothing else.

use std::fmt;

use model::Position;

/// Written `epoch.position.serial`, the epoch in hex. Workers in other processes send it back as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub epoch: u64,
    pub position: Position,
    pub serial: u64,
}

impl Token {
    /// `None` for a text that never was a token.
    pub fn parse(text: &str) -> Option<Token> {
        let (epoch, rest) = text.split_once('.')?;
        let (position, serial) = rest.split_once('.')?;
        let epoch = u64::from_str_radix(epoch, 16).ok()?;
        Some(Token { epoch, position: position.parse().ok()?, serial: serial.parse().ok()? })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}.{}", self.epoch, self.position, self.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_other_texts_are_none() {
        let token = Token { epoch: u64::MAX, position: 42, serial: 7 };
        assert_eq!(Token::parse(&token.to_string()), Some(token));
        for text in ["", ".", "1.2", "1.2.3.4", "x.2.3", "1.-2.3", "1..3"] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }
}
