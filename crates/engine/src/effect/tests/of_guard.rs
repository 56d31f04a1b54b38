//! Which addresses the guard lets through.

use std::net::IpAddr;

use model::Code;

use crate::effect::guard::Guard;

fn check(guard: &Guard, host: &str, address: &str) -> bool {
    guard.check(host, address.parse::<IpAddr>().unwrap()).is_ok()
}

#[test]
fn private_local_and_metadata_addresses_are_refused_and_public_ones_are_not() {
    let guard = Guard::default();
    let refused = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.168.1.1",
        "198.19.255.255",
        "203.0.113.7",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ];
    for address in refused {
        assert!(!check(&guard, "host", address), "{address} was let through");
    }
    let public = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "168.63.129.17",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.1",
        "192.169.0.0",
        "198.20.0.0",
        "223.255.255.255",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00::1",
    ];
    for address in public {
        assert!(check(&guard, "host", address), "{address} was refused");
    }
}

#[test]
fn networks_and_names_can_be_allowed_and_nothing_else_with_them() {
    let guard = Guard::parse(["10.1.0.0/16", "::1", "hooks.Internal"]).unwrap();
    assert!(check(&guard, "any", "10.1.255.255"));
    assert!(!check(&guard, "any", "10.2.0.0"));
    assert!(check(&guard, "any", "::1"));
    assert!(!check(&guard, "any", "::2"));
    assert!(!check(&guard, "any", "127.0.0.1"));
    assert!(check(&guard, "HOOKS.internal", "192.168.0.1"));
    assert!(!check(&guard, "hooks.internal.example", "192.168.0.1"));
    assert!(check(&Guard::parse(["0.0.0.0/0"]).unwrap(), "any", "127.0.0.1"));
    assert!(check(&Guard::parse(["::/0"]).unwrap(), "any", "fe80::1"));
    for wrong in ["10.0.0.0/33", "127.1", "2130706433", "0x7f.1", "a b", "", "::1/129", "http://a"] {
        assert_eq!(Guard::parse([wrong]).unwrap_err().code(), Code::ConfigInvalid, "{wrong}");
    }
}
