//! Who comes with tokens that never were any: counted by address, so that guessing is slow and leaves the log readable.
//!
//! A good token is let in wherever it comes from: it holds 190 bits of chance, and who shares an address with a guesser, behind
//! a proxy perhaps, must not be locked out by them. One that was good once, and is over or revoked, is no guess.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::{Code, Problem};

/// Guesses that an address has within a window.
const GUESSES_MAX: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered; beyond it the oldest go.
const ADDRESSES_MAX: usize = 4_096;

/// Where a request came from.
#[derive(Clone, Copy)]
pub struct Peer(pub IpAddr);

struct Guesses {
    count: u32,
    /// In the machine's time.
    since: Duration,
}

#[derive(Default)]
pub struct Logins(Mutex<HashMap<IpAddr, Guesses>>);

impl Logins {
    /// A token came from there that never was one; the problem when that was once too often.
    pub fn guessed(&self, from: IpAddr, now: Duration) -> Result<(), Problem> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ADDRESSES_MAX {
            known.retain(|_, guesses| now.saturating_sub(guesses.since) < WINDOW);
        }
        if known.len() >= ADDRESSES_MAX
            && let Some(oldest) = known.iter().min_by_key(|(_, guesses)| guesses.since).map(|(from, _)| *from)
        {
            known.remove(&oldest);
        }
        let guesses = known.entry(household(from)).or_insert(Guesses { count: 0, since: now });
        if now.saturating_sub(guesses.since) >= WINDOW {
            *guesses = Guesses { count: 0, since: now };
        }
        guesses.count = guesses.count.saturating_add(1);
        if guesses.count <= GUESSES_MAX {
            return Ok(());
        }
        let left = WINDOW.saturating_sub(now.saturating_sub(guesses.since)).as_secs().max(1);
        let detail = "too many tokens that are not valid came from this address";
        Err(Problem::new(Code::QuotaExceeded, detail)
            .hint("check the token; a valid one is let in at once")
            .with("quota", "logins")
            .with("limit", GUESSES_MAX)
            .with("retry_after", left))
    }
}

/// Whoever has one address of IPv6 has 2^64 of them.
fn household(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from(u128::from(six) >> 64 << 64)),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_guesses_a_minute_and_others_have_their_own() {
        let (logins, now) = (Logins::default(), Duration::from_secs(7));
        for _ in 0..GUESSES_MAX {
            logins.guessed(at("10.0.0.1"), now).unwrap();
        }
        let refused = logins.guessed(at("::ffff:10.0.0.1"), now + Duration::from_secs(10)).unwrap_err();
        assert_eq!((refused.code().status(), &refused.extra()["retry_after"]), (429, &50.into()));
        logins.guessed(at("10.0.0.2"), now).unwrap();
        logins.guessed(at("10.0.0.1"), now + WINDOW).unwrap();
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_memory_has_a_bound() {
        let (logins, now) = (Logins::default(), Duration::from_secs(7));
        let refused = (0..1_000u128).map(|n| IpAddr::V6(Ipv6Addr::from((0x2001_0db8 << 96) | n)));
        assert!(refused.map(|from| logins.guessed(from, now)).any(|told| told.is_err()));
        for n in 0..5_000u32 {
            let _ = logins.guessed(IpAddr::V4(n.into()), now + Duration::from_millis(u64::from(n)));
        }
        assert!(logins.0.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
