//! The proto file: written as `buf lint` wants it, and the same that reflection tells of.

use std::collections::{BTreeMap, BTreeSet};

const PROTO: &str = include_str!("../../../../proto/everwhen/v1/everwhen.proto");
const DESCRIPTORS: &[u8] = include_bytes!("../../../../proto/everwhen/v1/everwhen.binpb");

/// What a message, enum or service is made of: names with their numbers; of methods, what goes in and out.
type Parts = BTreeMap<String, Vec<(String, String)>>;

/// `kind name` of every block, and its lines.
fn written() -> Parts {
    let (mut parts, mut open) = (Parts::new(), Vec::new());
    for line in PROTO.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        let words: Vec<&str> = line.split([' ', ';', '(', ')']).filter(|word| !word.is_empty()).collect();
        match (words[0], line) {
            (_, "}") => drop(open.pop()),
            ("message" | "enum" | "service", _) => open.push(format!("{} {}", words[0], words[1])),
            ("oneof", _) => open.push(open.last().unwrap().clone()),
            _ if open.is_empty() => {}
            ("rpc", _) => {
                let of = line.split_once('(').unwrap().1.trim_end_matches(';').replace(") returns (", " ");
                parts.entry(open[0].clone()).or_default().push((words[1].to_owned(), of.replace(')', "")));
            }
            _ => {
                let (name, number) = line.trim_end_matches(';').split_once(" = ").unwrap();
                let name = name.rsplit(' ').next().unwrap();
                parts.entry(open[0].clone()).or_default().push((name.to_owned(), number.to_owned()));
            }
        }
    }
    parts
}

/// Fields of a message on the wire: number, and the bytes or the whole number that stands there.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => found.push((tag >> 3, Vec::new(), varint(&mut bytes))),
            2 => {
                let length = varint(&mut bytes) as usize;
                found.push((tag >> 3, bytes[..length].to_vec(), 0));
                bytes = &bytes[length..];
            }
            other => panic!("descriptors hold no wire type {other}"),
        }
    }
    found
}

fn text(fields: &[(u64, Vec<u8>, u64)], number: u64) -> String {
    let found = fields.iter().find(|(of, ..)| *of == number);
    found.map(|(_, bytes, _)| String::from_utf8(bytes.clone()).unwrap()).unwrap_or_default()
}

fn number(fields: &[(u64, Vec<u8>, u64)], of: u64) -> u64 {
    fields.iter().find(|(number, ..)| *number == of).map_or(0, |(.., value)| *value)
}

/// The same of the descriptors: `FileDescriptorSet.file`, of which ours is the one with the package.
fn described() -> Parts {
    let files = fields(DESCRIPTORS);
    let ours = files.iter().map(|(_, bytes, _)| fields(bytes)).find(|file| text(file, 2) == "everwhen.v1");
    let ours = ours.expect("descriptors of everwhen.v1");
    let mut parts = Parts::new();
    // Messages with their fields, enums with their values, services with their methods.
    for (of, kind, inner, at) in [(4, "message", 2, 3), (5, "enum", 2, 2), (6, "service", 2, 0)] {
        for (_, bytes, _) in ours.iter().filter(|(number, ..)| *number == of) {
            let block = fields(bytes);
            let of_one = |bytes: &Vec<u8>| {
                let one = fields(bytes);
                let short = |at: u64| text(&one, at).replace(".everwhen.v1.", "");
                let streams = |at: u64| if number(&one, at) == 1 { "stream " } else { "" };
                let said = match kind {
                    "service" => format!("{}{} {}{}", streams(5), short(2), streams(6), short(3)),
                    _ => number(&one, at).to_string(),
                };
                (text(&one, 1), said)
            };
            let inside =
                block.iter().filter(|(number, ..)| *number == inner).map(|(_, bytes, _)| of_one(bytes));
            parts.insert(format!("{kind} {}", text(&block, 1)), inside.collect());
        }
    }
    parts
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[test]
fn the_descriptors_are_those_of_the_proto_file() {
    assert_eq!(described(), written(), "make them anew: protoc --descriptor_set_out … --include_imports");
}

#[test]
fn names_and_numbers_are_as_linters_want_them() {
    assert!(PROTO.contains("\npackage everwhen.v1;\n"), "as its folder is named");
    let pascal = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains('_');
    for (block, parts) in written() {
        let (kind, name) = block.split_once(' ').unwrap();
        assert!(pascal(name), "{block}");
        let names: BTreeSet<_> = parts.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), parts.len(), "{block} names something twice");
        if kind == "service" {
            assert!(name.ends_with("Service"), "{block}");
            for (method, types) in &parts {
                let types = types.replace("stream ", "");
                assert_eq!(types, format!("{method}Request {method}Response"), "{block}");
            }
            continue;
        }
        let numbers: BTreeSet<u32> = parts.iter().map(|(_, number)| number.parse().unwrap()).collect();
        assert_eq!(numbers.len(), parts.len(), "{block} has a number twice");
        if kind == "enum" {
            let prefix = snake(name).to_uppercase();
            assert_eq!(parts[0], (format!("{prefix}_UNSPECIFIED"), "0".to_owned()));
            assert!(parts.iter().all(|(value, _)| value.starts_with(&format!("{prefix}_"))), "{block}");
            continue;
        }
        let good = |number: &u32| *number > 0 && !(19_000..20_000).contains(number);
        assert!(numbers.iter().all(good), "{block}");
        assert!(parts.iter().all(|(field, _)| *field == snake(field)), "{block}");
    }
}

#[test]
fn services_methods_and_enums_say_what_they_are_for() {
    let lines: Vec<&str> = PROTO.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("// "));
    for (at, line) in lines.iter().enumerate() {
        let wants = ["rpc ", "service ", "enum "].iter().any(|begins| line.starts_with(begins));
        assert!(!wants || lines[at - 1].starts_with("// "), "{line}");
    }
}
