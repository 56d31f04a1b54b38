//! Bad input from a seed: what is made depends on the seed alone.

pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % n.max(1) as u64) as usize
    }
}

const ODD: [&str; 36] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "@",
    "\"",
    "'",
    ":=",
    "=>",
    "//",
    "/*",
    "\n",
    "{{",
    "}}",
    "é",
    "\u{0}",
    "- ",
    "9e999",
    "when(",
    ".",
    "?",
    ":",
    ",",
    "|",
    "\\",
    "%.9f",
    "-9223372036854775808",
    "18446744073709551615u",
    "&&",
    "??",
    "in",
    "*",
    "$..",
    "\t",
];

/// Cuts, doubles, reverses, inserts odd pieces and pieces of `other`, always between characters.
pub fn mutated(text: &str, other: &str, chance: &mut Chance) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let other: Vec<char> = other.chars().collect();
    for _ in 0..=chance.below(5) {
        let (from, to) = piece(chars.len(), chance);
        match chance.below(6) {
            0 => drop(chars.drain(from..to)),
            1 => {
                let copy: Vec<char> = chars[from..to].to_vec();
                let times = 1 << (3 * chance.below(3));
                (0..times).for_each(|_| drop(chars.splice(from..from, copy.iter().copied())));
            }
            2 | 3 => {
                let odd = ODD[chance.below(ODD.len())];
                let times = 1 << (3 * chance.below(3));
                (0..times).for_each(|_| drop(chars.splice(from..from, odd.chars())));
            }
            4 => {
                let (start, end) = piece(other.len(), chance);
                chars.splice(from..to, other[start..end].iter().copied());
            }
            _ => chars[from..to].reverse(),
        }
    }
    chars.into_iter().collect()
}

/// At most 40 characters, somewhere.
fn piece(len: usize, chance: &mut Chance) -> (usize, usize) {
    let (a, b) = (chance.below(len + 1), chance.below(len + 1));
    (a.min(b), a.max(b).min(a.min(b) + 40))
}
