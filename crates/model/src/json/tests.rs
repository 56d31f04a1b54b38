//! The scanner against tables, against cuts and flips of good text, and against serde_json on random values.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::Code;

fn refusal(text: &str) -> (Code, u64, String) {
    let problem = check(text.as_bytes(), 128).expect_err(text);
    (problem.code(), problem.extra()["offset"].as_u64().unwrap(), problem.detail().to_owned())
}

#[test]
fn what_is_no_json_is_refused_at_its_byte() {
    let table = [
        ("", 0, "there is no value"),
        ("  ", 2, "there is no value"),
        ("{", 1, "the text ends where a key in double quotes should be"),
        ("{\"a\"", 4, "the text ends where \":\" should be"),
        ("{\"a\":1", 6, "the text ends where \",\" or \"}\" should be"),
        ("{\"a\":1,}", 7, "expected a key in double quotes, found \"}\""),
        ("{a:1}", 1, "expected a key in double quotes, found \"a\""),
        ("[1,]", 3, "expected a value, found \"]\""),
        ("[1 2]", 3, "expected \",\" or \"]\", found \"2\""),
        ("[1}", 2, "expected \",\" or \"]\", found \"}\""),
        ("1 2", 2, "something follows the value"),
        ("\"a", 2, "the text ends inside a string"),
        ("\"\\", 2, "the text ends inside a string"),
        ("\"a\nb\"", 2, "a control character stands bare in a string"),
        ("\"\\x\"", 1, "no such escape"),
        ("\"\\u12g4\"", 1, "\"\\u\" needs four hexadecimal digits"),
        ("\"\\ud800\"", 1, "half a surrogate pair stands alone"),
        ("\"\\ud800\\u0041\"", 1, "half a surrogate pair stands alone"),
        ("\"\\udc00\"", 1, "half a surrogate pair stands alone"),
        ("01", 1, "something follows the value"),
        ("-", 1, "the text ends where a digit should be"),
        ("1.", 2, "the text ends where a digit should be"),
        ("1e", 2, "the text ends where a digit should be"),
        ("[1e400]", 1, "the number is too large for a double"),
        ("tru", 0, "expected a value, found \"t\""),
        ("NaN", 0, "expected a value, found \"N\""),
        ("\u{feff}{}", 0, "a byte order mark stands before the value"),
    ];
    for (text, offset, detail) in table {
        let want = (Code::JsonInvalid, offset, format!("{detail}, at byte {offset}"));
        assert_eq!(refusal(text), want, "{text:?}");
    }
    assert_eq!(refusal(&format!("-{}", "9".repeat(400))).1, 0);
}

#[test]
fn bytes_that_are_not_utf8_are_refused_at_their_byte() {
    let problem = check(b"{\"a\":\"\xff\"}", 128).unwrap_err();
    assert_eq!((problem.code(), problem.extra()["offset"].as_u64()), (Code::JsonInvalid, Some(6)));
}

#[test]
fn nesting_is_counted_and_bounded_without_using_the_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(check(nested(128).as_bytes(), 128).is_ok() && check(b"1", 0).is_ok());
    assert_eq!(refusal(&nested(129)).1, 128);
    assert_eq!(refusal(&"[".repeat(1_000_000)).1, 128);
    assert!(check(nested(1_000_000).as_bytes(), usize::MAX).is_ok());
    assert_eq!(refusal(&"{\"a\":".repeat(500_000)).2, "nested deeper than 128 levels, at byte 640");
}

#[test]
fn a_key_that_stands_twice_is_refused_with_its_pointer() {
    let many: String = (0..40).map(|n| format!("\"k{n}\":{n},")).collect();
    let table = [
        (r#"{"a":1,"a":2}"#.to_owned(), "/a"),
        (r#"{"a":1,"\u0061":2}"#.to_owned(), "/a"),
        (r#"{"x":[1,{"y":{"b":0,"b":0}}]}"#.to_owned(), "/x/1/y/b"),
        (r#"[0,[{"a/~":1,"a/~":2}]]"#.to_owned(), "/1/0/a~1~0"),
        (format!("[{{{many}\"k7\":0}}]"), "/0/k7"),
        (format!("{{{many}\"\\u006b39\":0}}"), "/k39"),
        (r#"{"":1,"":2}"#.to_owned(), "/"),
    ];
    for (text, pointer) in table {
        let problem = check(text.as_bytes(), 128).expect_err(&text);
        assert_eq!((problem.code(), problem.pointer()), (Code::JsonDuplicateKey, Some(pointer)), "{text}");
    }
    let first = check(br#"[{"a":1,"a":{"b":2,"b":3}},{"c":1,"c":2}]"#, 128).unwrap_err();
    assert_eq!(first.pointer(), Some("/0/a"), "of several the first");
    let fine = format!(r#"{{{many}"a":{{"a":[{{"a":1}},{{"a":2}}]}},"A":{{}},"b":{{{many}"x":1}}}}"#);
    assert!(check(fine.as_bytes(), 128).is_ok(), "the same key in different objects is no duplicate");
}

#[test]
fn what_is_no_json_is_not_told_of_its_keys() {
    let table = [
        (r#"{"E":1,"b":{"a":2,"a":}}"#, 22),
        (r#"{"a":1,"a":2"#, 12),
        (r#"{"a":1,"a":2} x"#, 14),
        (r#"[{"a":1,"a":2},]"#, 15),
        (r#"{"a":1,"a" 2}"#, 11),
        ("{\"a\":1,\"a\":\"\\ud800\"}", 12),
        (r#"{"a":1,"a":[[[1]]]}"#, 13),
    ];
    for (text, offset) in table {
        let problem = check(text.as_bytes(), 3).expect_err(text);
        let got = (problem.code(), problem.extra()["offset"].as_u64());
        assert_eq!(got, (Code::JsonInvalid, Some(offset)), "{text}");
    }
    let problem = check(b"{\"a\":1,\"a\":\"\xff\"}", 128).unwrap_err();
    assert_eq!(problem.code(), Code::JsonInvalid);
}

#[test]
fn an_object_is_opened_into_keys_and_values_as_written() {
    let text = " { \"to\\u0070ic\" : \"a.b\" , \"payload\":{\"n\": 1.10, \"l\":[ ]} ,\"e\":{},\"z\" : -0 } ";
    let got = fields(text.as_bytes(), 128).unwrap().unwrap();
    let got: Vec<(&str, &str)> = got.iter().map(|f| (&*f.key, f.value)).collect();
    let want = [("topic", "\"a.b\""), ("payload", "{\"n\": 1.10, \"l\":[ ]}"), ("e", "{}"), ("z", "-0")];
    assert_eq!(got, want);
    assert_eq!(fields(b"{}", 1).unwrap(), Some(vec![]));
    assert_eq!((fields(b"[1]", 1).unwrap(), elements(b"{}", 1).unwrap()), (None, None));
    assert_eq!(
        elements(b" [ 1 ,\"a\",[ 2],{\"k\":3} ] ", 9).unwrap().unwrap(),
        ["1", "\"a\"", "[ 2]", "{\"k\":3}"]
    );
    assert_eq!(elements(b"[]", 1).unwrap(), Some(vec![]));
    assert_eq!(outline(b" \"x\" ", 1).unwrap(), Outline::Scalar("\"x\""));
    assert!(fields(b"{\"a\":{\"b\":1,\"b\":2}}", 9).is_err(), "everything is checked, not only the outside");
}

#[test]
fn strings_lose_their_quotes_and_escapes() {
    assert_eq!(unquote(r#""plain""#).unwrap(), "plain");
    assert_eq!(unquote(r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00!""#).unwrap(), "\"\\/\u{8}\u{c}\n\r\té😀!");
    assert_eq!(unquote("12"), None);
}

#[test]
fn equal_values_have_one_canonical_form_and_others_another() {
    let same = [
        ("1", "1.0"),
        ("1", "1e0"),
        ("100", "1e2"),
        ("0.001", "1.00e-3"),
        ("-0", "0e9"),
        ("12300", "0.123E+5"),
        ("{\"a\":1,\"b\":[2]}", " { \"b\" : [ 2.0 ], \"\\u0061\":1 } "),
        ("\"é\"", "\"\\u00e9\""),
        ("[ ]", "[]"),
    ];
    for (a, b) in same {
        assert_eq!(canonical(a), canonical(b), "{a} and {b}");
    }
    let different = [
        ("1", "\"1\""),
        ("1", "-1"),
        ("0.1", "0.10000000000000001"),
        ("9007199254740992", "9007199254740993"),
        ("[1,2]", "[12]"),
        ("[\"a\",\"b\"]", "[\"ab\"]"),
        ("{}", "[]"),
        ("null", "false"),
        ("{\"a\":{\"b\":1}}", "{\"a\":1,\"b\":{}}"),
    ];
    for (a, b) in different {
        assert_ne!(canonical(a), canonical(b), "{a} and {b}");
    }
    assert_eq!(canonical_hash(["\"a\"", "{\"x\":1}"]), canonical_hash(["\"a\"", "{ \"x\" : 1.0 }"]));
    assert_ne!(canonical_hash(["\"a\"", "\"b\""]), canonical_hash(["\"a\\\"1:b\""]));
}

#[test]
fn every_cut_of_a_good_text_is_refused() {
    let text = r#"{"a":[1,-2.5e3,"x\u00e9\n",{"b":null,"c":[true,false,{}]}],"d":"ü"}"#;
    assert!(check(text.as_bytes(), 8).is_ok());
    for end in 0..text.len() {
        assert!(check(&text.as_bytes()[..end], 8).is_err(), "cut at {end}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 24, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::hash_map(".{0,6}", inner, 0..24)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn json_soup() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\",:\\u0e-. "[..])];
    prop::collection::vec(byte, 0..60)
}

proptest! {
    #[test]
    fn what_serde_writes_passes_and_means_the_same(value in any_json(), pretty: bool) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        prop_assert_eq!(check(text.as_bytes(), 128), Ok(()));
        match (&value, outline(text.as_bytes(), 128).unwrap()) {
            (Value::Object(map), Outline::Object(fields)) => {
                prop_assert_eq!(map.len(), fields.len());
                for field in fields {
                    prop_assert_eq!(&map[&*field.key], &serde_json::from_str::<Value>(field.value).unwrap());
                }
            }
            (Value::Array(list), Outline::Array(parts)) => {
                let read: Vec<Value> = parts.iter().map(|p| serde_json::from_str(p).unwrap()).collect();
                prop_assert_eq!(list, &read);
            }
            (_, Outline::Scalar(raw)) => {
                prop_assert_eq!(&value, &serde_json::from_str::<Value>(raw).unwrap());
            }
            _ => prop_assert!(false, "the outline has another shape"),
        }
        if let Value::String(s) = &value {
            prop_assert_eq!(&*unquote(&text).unwrap(), s);
        }
        let compact = value.to_string();
        prop_assert_eq!(canonical(&text), canonical(&compact));
    }

    /// Every byte of a good text replaced by another: the scanner and serde agree on what is still JSON.
    /// serde keeps the last of two equal keys, so those are left out.
    #[test]
    fn damaged_text_is_refused_exactly_when_serde_refuses_it(
        value in any_json(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), prop::sample::select(&b"\"\\,e{}[]:0"[..])],
    ) {
        let mut bytes = value.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        match (check(&bytes, 128), serde_json::from_slice::<Value>(&bytes)) {
            (Err(problem), Ok(_)) => prop_assert_eq!(problem.code(), Code::JsonDuplicateKey),
            (ours, theirs) => {
                prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?}", String::from_utf8_lossy(&bytes));
            }
        }
    }

    #[test]
    fn no_bytes_make_the_scanner_panic(bytes in json_soup()) {
        if check(&bytes, 16).is_ok() {
            canonical(std::str::from_utf8(&bytes).unwrap());
        }
    }
}
