//! Secrets of all kinds, written in all ways, inside other text: none is left, and nothing else is touched.

use serde_json::json;

use super::*;

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn text(&mut self, alphabet: &str, most: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        let many = self.below(most + 1);
        (0..many).map(|_| letters[self.below(letters.len())]).collect()
    }
}

/// Each way with its name; `before` is what the other side put before it.
fn ways(secret: &str, before: &str) -> Vec<(&'static str, String)> {
    let quoted = |text: &str| json!(text).to_string().trim_matches('"').to_owned();
    let upper = |c: char| if c.is_ascii() { c.to_string() } else { String::new() };
    let ascii: String = quoted(secret)
        .chars()
        .map(|c| match c {
            c if c.is_ascii() => upper(c),
            c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect(),
        })
        .collect();
    let html = quoted(secret).replace('<', "\\u003c").replace('/', "\\/").replace('&', "\\u0026");
    let url = |keep: &str, lower: bool| -> String {
        let coded = |byte: &u8| match *byte as char {
            c if c.is_ascii_alphanumeric() || keep.contains(c) => c.to_string(),
            _ if lower => format!("%{byte:02x}"),
            _ => format!("%{byte:02X}"),
        };
        secret.as_bytes().iter().map(coded).collect()
    };
    let whole = model::base64::encode(format!("{before}{secret}").as_bytes());
    let page = |special: &dyn Fn(char) -> String, all: bool| -> String {
        let kept = |c: char| !all && c.is_ascii_alphanumeric();
        secret.chars().map(|c| if kept(c) { c.to_string() } else { special(c) }).collect()
    };
    let named = |c: char| match c {
        '"' => "&quot;".to_owned(),
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        'ü' => "&uuml;".to_owned(),
        '€' => "&euro;".to_owned(),
        '\'' => "&#039;".to_owned(),
        c => c.to_string(),
    };
    let wide = |order: fn(u16) -> [u8; 2]| -> Vec<u8> { secret.encode_utf16().flat_map(order).collect() };
    let (little, big) = (wide(u16::to_le_bytes), wide(u16::to_be_bytes));
    vec![
        ("html by name", page(&named, false)),
        ("html by name, twice", page(&named, false).replace('&', "&amp;")),
        ("html by number", page(&|c| format!("&#{};", c as u32), true)),
        ("html by number in hex", page(&|c| format!("&#x{:04X};", c as u32), false)),
        ("json in html", quoted(secret).replace('&', "&amp;").replace('"', "&quot;")),
        ("url twice", url("-._~", false).replace('%', "%25")),
        ("json in a url", quoted(secret).replace('%', "%25").replace('\\', "%5c").replace('"', "%22")),
        (
            "escape()",
            page(
                &|c| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("%u{unit:04x}")).collect(),
                false,
            ),
        ),
        ("bytes of a literal", secret.as_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect()),
        ("utf-16", String::from_utf8_lossy(&little).into_owned()),
        ("utf-16, big end first", String::from_utf8_lossy(&big).into_owned()),
        ("utf-16 in json", json!(String::from_utf8_lossy(&little)).to_string().trim_matches('"').to_owned()),
        ("utf-16 in hex", model::id::hex(&little)),
        ("utf-16, big end first, in hex", model::id::hex(&big).to_uppercase()),
        ("base64 of utf-16", model::base64::encode(&[before.as_bytes(), &little].concat())),
        ("base64 of utf-16, big end first", model::base64::encode(&[before.as_bytes(), &big].concat())),
        ("raw", secret.to_owned()),
        ("json", quoted(secret)),
        ("json twice", quoted(&quoted(secret))),
        ("json in ascii", ascii),
        ("json for html", html),
        ("url", url("-._~", false)),
        ("url in lower case", url("-._~", true)),
        ("url of scripts", url("-_.!~*'()", false)),
        ("url, all of it", url("", false)),
        ("form", url("-._*", false).replace("%20", "+")),
        ("hex", model::id::hex(secret.as_bytes())),
        ("hex in upper case", model::id::hex(secret.as_bytes()).to_uppercase()),
        ("base64", whole.clone()),
        ("base64 for urls", whole.replace('+', "-").replace('/', "_").replace('=', "")),
        ("base64 in a url", whole.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D")),
        ("base64 in json", whole.replace('/', "\\/")),
        (
            "base64 in lines",
            whole.as_bytes().chunks(7).map(|line| format!("{}\r\n", String::from_utf8_lossy(line))).collect(),
        ),
    ]
}

#[test]
fn a_secret_is_found_however_it_is_written() {
    for seed in 1..400u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let secret = "q".to_owned() + &chance.text("abcXYZ019+/=-_.~!*'() \"\\\n\t<&%üß€😀", 40) + "Zx7";
        let masker = Masker::new([secret.as_str()]);
        for before in ["", "u", "us:", "user:"] {
            for (way, written) in ways(&secret, before) {
                let text = format!("<{written}>");
                let masked = masker.text(&text);
                let left = masked.replace(MASK, "");
                // Of base64, what stood before and the end of a group may stay; of UTF-16 the empty half of an end.
                let kept = match way {
                    way if way.starts_with("base64") => 20,
                    way if way.starts_with("utf-16") => 8,
                    _ => 2,
                };
                assert!(
                    masked.contains(MASK) && left.len() <= kept,
                    "seed {seed}, {way}: {text} gave {masked}"
                );
                assert!(!masked.contains(&secret), "seed {seed}, {way}");
            }
        }
    }
}

/// Whoever writes a body cuts it anywhere; it is masked when all of it is there, and then nothing is left of any of fifty.
#[test]
fn fifty_secrets_in_every_form_leave_nothing_however_the_body_was_cut() {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let secrets: Vec<String> = (0..50)
        .map(|n| format!("q{n:02}{}Zx7", chance.text("abcXYZ019+/=-_.~!*'() \"\\<&%üß€😀", 30)))
        .collect();
    let masker = Masker::new(secrets.iter().map(String::as_str));
    for secret in &secrets {
        for (way, written) in ways(secret, "us:") {
            let text = format!("<{written}>");
            let (mut body, mut rest) = (Vec::new(), text.as_bytes());
            while !rest.is_empty() {
                let (chunk, more) = rest.split_at((1 + chance.below(9)).min(rest.len()));
                body.extend_from_slice(chunk);
                rest = more;
            }
            let masked = masker.text(&String::from_utf8_lossy(&body));
            assert!(
                masked.contains(MASK) && masked.replace(MASK, "").len() <= 20,
                "{way}: {text} gave {masked}"
            );
            assert!(!masked.contains(secret.as_str()), "{way}");
        }
    }
}

#[test]
fn what_holds_no_secret_stays_as_it_is() {
    let masker = Masker::new(["correct horse", "battery-staple"]);
    for seed in 1..400u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let text = chance.text("corehstaply -%2\\u00\"+/=ü\n&#x;amp", 300);
        if !text.contains("correct horse") {
            assert_eq!(masker.text(&text), text, "seed {seed}");
        }
    }
    assert_eq!(Masker::default().text("anything"), "anything");
}

#[test]
fn secrets_that_overlap_are_masked_as_one() {
    let masker = Masker::new(["abcdef", "defghi", "abcd"]);
    assert_eq!(masker.text("<abcdefghi>"), "<***>");
    assert_eq!(masker.text("abcdabcd-abcd"), "***-***");
    assert_eq!(masker.text("abcde"), "***e");
}

#[test]
fn values_names_and_numbers_are_masked() {
    let masker = Masker::new(["12345678", "hunter22"]);
    let value =
        json!({"hunter22": 1, "hunter22!": [12_345_678, 1.5, "x hunter22", null, true], "n": -123_456_780.5});
    let masked = masked(&masker, value);
    assert_eq!(masked, json!({"***": 1, "***!": ["***", 1.5, "x ***", null, true], "n": "-***0.5"}));
}

#[test]
fn a_long_answer_full_of_beginnings_takes_no_time_to_speak_of() {
    let secrets: Vec<String> = (0..50).map(|n| format!("secret-number-{n}-of-fifty")).collect();
    let masker = Masker::new(secrets.iter().map(String::as_str));
    let text = "%73\\u0073&#115;&amp;%2525secret-number-".repeat(4_000);
    assert_eq!(masker.text(&text), text);
}
