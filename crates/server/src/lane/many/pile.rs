//! What lies between two stations of a round: all that was read before any of it is looked at, all answers before any is sent.

use super::guest::Came;

/// What one connection is read into.
const ROOM: usize = 16 * 1_024;
/// So much is read before it is looked at.
const BYTES_MAX: usize = 256 * 1_024;

/// What was read, and of whom.
#[derive(Default)]
pub struct Incoming {
    /// Empty before the first read, then never shorter.
    bytes: Vec<u8>,
    used: usize,
    /// With where its bytes begin.
    came: Vec<(usize, Came, usize)>,
}

impl Incoming {
    /// There is no room for another: what is there has to be looked at first.
    pub fn is_full(&self) -> bool {
        self.used + ROOM > BYTES_MAX
    }

    pub fn room(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = vec![0; BYTES_MAX];
        }
        &mut self.bytes[self.used..self.used + ROOM]
    }

    /// Notes what lies in the room now.
    pub fn put(&mut self, number: usize, came: Came) {
        self.came.push((number, came, self.used));
        if let Came::Whole(length) = came {
            self.used += length;
        }
    }

    pub fn each(&self) -> impl Iterator<Item = (usize, Came, &[u8])> {
        self.came.iter().map(|(number, came, from)| (*number, *came, &self.bytes[*from..]))
    }

    pub fn clear(&mut self) {
        self.came.clear();
        self.used = 0;
    }
}

/// Answers one after the other, and for whom each is.
#[derive(Default)]
pub struct Outgoing {
    text: String,
    /// With where it ends.
    to: Vec<(usize, usize)>,
}

/// What may stay when a large answer has gone.
const TEXT_MAX: usize = 256 * 1_024;

impl Outgoing {
    pub fn write(&mut self, number: usize, answer: impl FnOnce(&mut String)) {
        answer(&mut self.text);
        self.to.push((number, self.text.len()));
    }

    pub fn each(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut from = 0;
        self.to.iter().map(move |(number, to)| {
            let answer = &self.text.as_bytes()[from..*to];
            from = *to;
            (*number, answer)
        })
    }

    pub fn clear(&mut self) {
        self.to.clear();
        self.text.clear();
        self.text.shrink_to(TEXT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_found_again_and_fits() {
        let mut incoming = Incoming::default();
        let lengths = [3, 0, ROOM, 5];
        for (number, length) in lengths.into_iter().enumerate() {
            incoming.room()[..length].fill(number as u8);
            incoming.put(number, Came::Whole(length));
        }
        for ((number, came, bytes), length) in incoming.each().zip(lengths) {
            assert!(matches!(came, Came::Whole(known) if known == length));
            assert!(bytes[..length].iter().all(|byte| usize::from(*byte) == number), "{number}");
        }
        while !incoming.is_full() {
            assert_eq!(incoming.room().len(), ROOM);
            incoming.put(9, Came::Whole(ROOM));
        }
        incoming.clear();
        assert!(!incoming.is_full() && incoming.each().next().is_none());
    }

    #[test]
    fn each_hears_its_own_answer() {
        let mut outgoing = Outgoing::default();
        for (number, answer) in [(7, "a"), (2, ""), (5, "bcd")] {
            outgoing.write(number, |out| out.push_str(answer));
        }
        let said: Vec<_> = outgoing.each().collect();
        assert_eq!(said, [(7, &b"a"[..]), (2, b""), (5, b"bcd")]);
        outgoing.clear();
        assert!(outgoing.each().next().is_none());
    }
}
