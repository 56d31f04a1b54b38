//! Where an effect may connect to: public addresses, and what the operator allows by name or network.
//!
//! **Invariant:** it is asked about the address that is connected to, after the name was resolved. How the address was written
//! (`127.1`, `2130706433`, `[::ffff:7f00:1]`, a name that points there) therefore does not matter.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::{Code, Problem};

/// Networks of IPv4 that are not the public internet.
const NOT_PUBLIC: [(Ipv4Addr, u8, &str); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this host"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared by a carrier"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, where clouds keep metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for measurements"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 5, "reserved"),
    (Ipv4Addr::new(248, 0, 0, 0), 5, "reserved"),
];

/// The public internet of IPv6 is `2000::/3` without these. Everything else is local, or carries an IPv4 address inside.
const NOT_PUBLIC_6: [(Ipv6Addr, u8, &str); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "an IPv4 address inside (6to4)"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
];

/// What is allowed besides the public internet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    networks: Vec<(IpAddr, u8)>,
    /// In lower case; such a name may point anywhere.
    names: Vec<String>,
}

impl Guard {
    /// Reads an allow list: networks (`10.1.0.0/16`, `::1`, `127.0.0.1`) and names (`hooks.internal`).
    pub fn parse<'a>(allow: impl IntoIterator<Item = &'a str>) -> Result<Guard, Problem> {
        let mut guard = Guard::default();
        for said in allow {
            match network(said) {
                Some(network) => guard.networks.push(network),
                None if is_name(said) => guard.names.push(said.to_ascii_lowercase()),
                None => {
                    let what = format!("\"{said}\" is neither a network nor the name of a host");
                    let hint = "write 10.1.0.0/16, 127.0.0.1, ::1 or hooks.internal";
                    return Err(Problem::new(Code::ConfigInvalid, what).hint(hint));
                }
            }
        }
        Ok(guard)
    }

    /// Whether a request for `host` may connect to `address`.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Problem> {
        let Some(why) = not_public(address) else { return Ok(()) };
        let in_network = |(network, bits): &(IpAddr, u8)| contains(*network, *bits, address);
        if self.networks.iter().any(in_network)
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
        {
            return Ok(());
        }
        let what = format!("\"{host}\" is at {address}, which is {why}");
        Err(Problem::new(Code::HttpRefused, what)
            .hint("if it is meant, an operator names it in `allow` of `[effects]` in everwhen.toml"))
    }
}

/// Why an address is not one of the public internet.
fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(four) => {
            let held =
                |(network, bits, _): &&(Ipv4Addr, u8, _)| contains((*network).into(), *bits, four.into());
            NOT_PUBLIC.iter().find(held).map(|(.., why)| *why)
        }
        IpAddr::V6(six) if six.segments()[0] & 0xe000 != 0x2000 => {
            Some("loopback, local, multicast, or holds an IPv4 address")
        }
        IpAddr::V6(six) => {
            let held =
                |(network, bits, _): &&(Ipv6Addr, u8, _)| contains((*network).into(), *bits, six.into());
            NOT_PUBLIC_6.iter().find(held).map(|(.., why)| *why)
        }
    }
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    let (network, address, size) = match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (u128::from(network.to_bits()), u128::from(address.to_bits()), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    let rest = u32::from(size - bits.min(size));
    // A shift by all 128 bits is none.
    network.checked_shr(rest).unwrap_or(0) == address.checked_shr(rest).unwrap_or(0)
}

fn network(said: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = said.split_once('/').map_or((said, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
    (bits <= most).then_some((address, bits))
}

fn is_name(said: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // What begins with a digit in its last label is an address, however it is written.
    let last_is_word =
        said.rsplit('.').next().is_some_and(|last| last.starts_with(|c: char| c.is_ascii_alphabetic()));
    said.len() <= 253 && said.split('.').all(label) && last_is_word
}
