//! Where randomness comes from: the kernel, or a seed. Salts, ids and tokens are drawn here and handed on as values.

#![expect(clippy::disallowed_methods, reason = "the one place that asks the machine for chance")]

use rustix::rand::{GetRandomFlags, getrandom};

/// A stream of random bytes. Kernel bytes are fetched a page at a time, because a publish draws twenty-six of them.
pub struct Entropy {
    source: Source,
    page: Vec<u8>,
    used: usize,
}

enum Source {
    Kernel,
    Seed(u64),
}

const PAGE: usize = 4096;

impl Entropy {
    pub fn kernel() -> Entropy {
        Entropy { source: Source::Kernel, page: vec![0; PAGE], used: PAGE }
    }

    /// The same seed gives the same bytes: simulation only, never salts that protect anything.
    pub fn seeded(seed: u64) -> Entropy {
        Entropy { source: Source::Seed(seed), page: vec![0; PAGE], used: PAGE }
    }

    /// A second stream of the same kind: a seeded one stays repeatable.
    pub fn split(&mut self) -> Entropy {
        match self.source {
            Source::Kernel => Entropy::kernel(),
            Source::Seed(_) => Entropy::seeded(self.number()),
        }
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        let mut rest = out;
        while !rest.is_empty() {
            if self.used == PAGE {
                self.refill();
            }
            let count = rest.len().min(PAGE - self.used);
            let drawn = &mut self.page[self.used..self.used + count];
            rest[..count].copy_from_slice(drawn);
            // What was given out is not kept.
            drawn.fill(0);
            self.used += count;
            rest = &mut rest[count..];
        }
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    pub fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn refill(&mut self) {
        match &mut self.source {
            Source::Kernel => fill_from_kernel(&mut self.page),
            Source::Seed(state) => {
                for chunk in self.page.chunks_exact_mut(8) {
                    chunk.copy_from_slice(&split_mix(state).to_le_bytes());
                }
            }
        }
        self.used = 0;
    }
}

fn fill_from_kernel(page: &mut [u8]) {
    let mut filled = 0;
    while filled < page.len() {
        // Interrupted calls are tried again; nothing else can fail once the kernel's pool is up.
        if let Ok(n) = getrandom(&mut page[filled..], GetRandomFlags::empty()) {
            filled += n;
        }
    }
}

/// SplitMix64: a full-period generator in four lines; also how draws are derived from names.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A draw that depends on nothing but its names, so that a decision made twice is made alike.
pub fn derived(name: &str, numbers: [u64; 2]) -> u64 {
    let mut state = numbers[0] ^ numbers[1].rotate_left(32);
    for byte in name.bytes() {
        state = split_mix(&mut state) ^ u64::from(byte);
    }
    split_mix(&mut state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_the_kernel_does_not() {
        assert_eq!(Entropy::seeded(7).bytes::<32>(), Entropy::seeded(7).bytes::<32>());
        assert_ne!(Entropy::kernel().bytes::<32>(), Entropy::kernel().bytes::<32>());
    }

    #[test]
    fn derived_draws_are_spread_over_the_whole_range() {
        let draws: Vec<u64> = (0..1000).map(|i| derived("g", [i, 1]) >> 60).collect();
        for sixteenth in 0..16 {
            let n = draws.iter().filter(|d| **d == sixteenth).count();
            assert!((30..100).contains(&n), "{sixteenth}: {n}");
        }
    }
}
