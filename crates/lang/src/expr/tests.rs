//! What expressions mean: tables of text and value, the seeds' rules about missing fields, and random text.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod builtins;
mod refs;
mod templates;
mod turns;

fn event() -> Value {
    json!({
        "topic": "price.changed", "subject": {"kind": "item", "id": "10472"},
        "payload": {
            "n": 5, "x": 2.5, "name": "Widget", "empty": "", "nil": null, "yes": true, "odd key": 1,
            "big": 18446744073709551615u64, "tags": ["a", "b"], "items": [{"price": 3}, {"price": 12}],
            "deep": {"list": [[1, 2], [3]]},
        },
    })
}

fn value(text: &str) -> Result<Value, String> {
    let event = event();
    let expr = Expr::compile(text, &Scope::EVENT).map_err(|p| p.code().to_string())?;
    expr.eval(&[Val::of(&event)]).and_then(|v| v.to_json()).map_err(|p| p.code().to_string())
}

fn check(table: &[(&str, Value)]) {
    for (text, want) in table {
        assert_eq!(value(text).as_ref(), Ok(want), "{text}");
    }
}

fn check_errors(table: &[(&str, &str)]) {
    for (text, code) in table {
        assert_eq!(value(text), Err((*code).to_owned()), "{text}");
    }
}

#[test]
fn paths_reach_into_the_event() {
    check(&[
        ("event.payload.n", json!(5)),
        ("payload.n", json!(5)),
        ("topic", json!("price.changed")),
        ("subject.id", json!("10472")),
        ("payload[\"odd key\"]", json!(1)),
        ("payload.`odd key`", json!(1)),
        ("payload.items[1].price", json!(12)),
        ("payload.deep.list[0][1]", json!(2)),
        ("payload.tags[payload.n - 5]", json!("a")),
        ("payload['na' + 'me']", json!("Widget")),
        ("payload.gone", json!(null)),
        ("payload.gone.further.still[3]", json!(null)),
        ("payload.n.further", json!(null)),
        ("payload.tags['a']", json!(null)),
        ("{a: 1, 'b': [2]}.b[0]", json!(2)),
    ]);
    check_errors(&[
        ("payload.tags[2]", "expr.index"),
        ("payload.tags[-1]", "expr.index"),
        ("payload.name[0]", "expr.type"),
        ("evnt.payload", "expr.unknown_name"),
        ("price > 3", "expr.unknown_name"),
    ]);
}

#[test]
fn a_missing_or_null_field_equals_the_empty_text_and_is_no_in_a_test() {
    check(&[
        ("payload.gone == ''", json!(true)),
        ("'' == payload.nil", json!(true)),
        ("payload.gone != ''", json!(false)),
        ("payload.empty == ''", json!(true)),
        ("payload.gone == null", json!(true)),
        ("payload.empty == null", json!(false)),
        ("null == ''", json!(false)),
        ("payload.gone == 'x'", json!(false)),
        ("payload.gone == 0", json!(false)),
        ("payload.gone in ['', 'x']", json!(true)),
        ("payload.gone && true", json!(false)),
        ("!payload.gone", json!(true)),
        ("payload.gone ? 1 : 2", json!(2)),
        ("payload.gone ?? payload.nil ?? 7", json!(7)),
        ("payload.n ?? 0 > 3", json!(true)),
        ("has(payload.nil) && !has(payload.gone) && has(payload['odd key']) && has(payload)", json!(true)),
        ("payload.gone.exists(x, true)", json!(false)),
    ]);
    check_errors(&[
        ("payload.gone > 3", "expr.type"),
        ("3 <= payload.nil", "expr.type"),
        ("payload.gone + 1", "expr.type"),
        ("payload.gone.startsWith('a')", "expr.type"),
        ("size(payload.gone)", "expr.type"),
    ]);
}

#[test]
fn a_yes_or_no_needs_a_bool_and_errors_are_forgiven_only_by_a_decisive_side() {
    check(&[
        ("payload.gone > 3 || true", json!(true)),
        ("true || payload.gone > 3", json!(true)),
        ("false && 1 / 0 > 0", json!(false)),
        ("1 / 0 > 0 && false", json!(false)),
        ("[1, 0].exists(x, 4 / x == 4)", json!(true)),
        ("[0, 1].all(x, 4 / x == 5)", json!(false)),
    ]);
    check_errors(&[
        ("payload.n && true", "expr.type"),
        ("'yes' ? 1 : 2", "expr.type"),
        ("payload.gone > 3 || false", "expr.type"),
        ("true && 1 / 0 > 0", "expr.divide_by_zero"),
    ]);
}

#[test]
fn numbers_compare_across_kinds_and_do_not_wrap() {
    check(&[
        ("1 == 1.0 && 1 < 1.5 && payload.big > 9223372036854775807", json!(true)),
        ("7 / 2", json!(3)),
        ("-7 % 3", json!(-1)),
        ("payload.x * 2", json!(5.0)),
        ("payload.n + 1", json!(6)),
        ("1 + 2 * 3 - 4 / 2", json!(5)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("0x1F + 1", json!(32)),
        ("1.0 / 0.0", json!("Infinity")),
        ("2 - -3", json!(5)),
        ("!!true", json!(true)),
    ]);
    check_errors(&[
        ("9223372036854775807 + 1", "expr.overflow"),
        ("-(-9223372036854775808)", "expr.overflow"),
        ("9223372036854775808", "expr.overflow"),
        ("5 / (3 - 3)", "expr.divide_by_zero"),
        ("5 % 0", "expr.divide_by_zero"),
        ("1.5 % 2.0", "expr.type"),
        ("'a' + 1", "expr.type"),
        ("'a' < 1", "expr.type"),
        ("[1] < [2]", "expr.type"),
        ("int('12x')", "expr.type"),
        ("int(1e99)", "expr.overflow"),
    ]);
}

#[test]
fn texts_lists_and_maps_have_their_functions() {
    check(&[
        (
            "payload.name.startsWith('Wid') && payload.name.endsWith('get') && payload.name.contains('dg')",
            json!(true),
        ),
        ("payload.name.lower() + payload.name.upperAscii()", json!("widgetWIDGET")),
        ("payload.name.matches('^W.+t$')", json!(true)),
        ("payload.name.matches('^' + 'w')", json!(false)),
        ("size(payload.tags) + payload.name.size() + 'äö'.size()", json!(10)),
        ("'b' in payload.tags && 'n' in payload && !('q' in {a: 1})", json!(true)),
        ("payload.tags.contains('a')", json!(true)),
        ("payload.items.exists(i, i.price > 10)", json!(true)),
        ("payload.items.all(i, i.price > 10)", json!(false)),
        ("payload.items.exists_one(i, i.price > 10)", json!(true)),
        ("payload.items.filter(i, i.price > 10)", json!([{"price": 12}])),
        ("payload.items.map(i, i.price * 2)", json!([6, 24])),
        ("payload.items.map(i, i.price > 10, i.price)", json!([12])),
        ("payload.tags.map(event, event + '!')", json!(["a!", "b!"])),
        ("payload.deep.list.map(l, l.map(x, x + size(l)))", json!([[3, 4], [4]])),
        ("payload.tags + ['c'] == ['a', 'b', 'c']", json!(true)),
        ("{a: 1, b: {c: [1.0]}} == {'b': {'c': [1]}, 'a': 1}", json!(true)),
        ("payload.deep == {list: [[1, 2], [3]]}", json!(true)),
        ("string(1) + string(1.5) + string(true)", json!("11.5true")),
        ("int('42') + int(2.9) + int(double('1'))", json!(45)),
        ("bool('true') && bytes('a') == b'a'", json!(true)),
        ("timestamp('2026-01-01T00:00:00Z') + duration('1h30m')", json!("2026-01-01T01:30:00Z")),
        ("timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00+02:00')", json!("93600s")),
        ("duration('1.5s') < duration('2s') && duration('-5s') < duration('0')", json!(true)),
    ]);
}

#[test]
fn text_can_be_written_in_every_way_of_cel() {
    check(&[
        (r#"'it\'s' + "\t\u00e9\U0001f431\x41\101""#, json!("it's\té🐱AA")),
        (r#"r'\d+' + R"\n""#, json!("\\d+\\n")),
        ("'''a\n'b' '''", json!("a\n'b' ")),
        ("1 // one\n + 2", json!(3)),
        (".5 + 1e1", json!(10.5)),
        ("[1, 2,]", json!([1, 2])),
        ("{a: 1,}", json!({"a": 1})),
    ]);
}

#[test]
fn a_line_break_ends_an_expression_unless_the_next_line_can_only_go_on() {
    let read = |text: &str| {
        let mut parser = cursor::Parser::new(text);
        let node = parser.expression().unwrap();
        (node.span.of(text).to_owned(), parser.span().of(text).to_owned())
    };
    let table = [
        ("a\nb", "a", "b"),
        ("a\n  && b\n  || c\nd", "a\n  && b\n  || c", "d"),
        ("a\n - 1 x", "a\n - 1", "x"),
        ("a\n.b()\n[1]", "a\n.b()", "["),
        ("a\n(b)", "a", "("),
        ("x ? 1\n : 2\nstep", "x ? 1\n : 2", "step"),
        ("a\n in b\nhas c", "a\n in b", "has"),
        ("!a.Empty() && b.Empty() { x }", "!a.Empty() && b.Empty()", "{"),
        ("{ a: 1\n b.c\n d: [2\n, 3] }\n@x", "{ a: 1\n b.c\n d: [2\n, 3] }", "@"),
        ("x => x.a\ny", "x => x.a", "y"),
        ("a // why\n\n b", "a", "b"),
        ("a /* why\n */ b", "a", "b"),
        ("5m\n retry", "5m", "retry"),
        ("a := b", "a", ":="),
    ];
    for (text, want, next) in table {
        assert_eq!(read(text), (want.to_owned(), next.to_owned()), "{text}");
    }
}

#[test]
fn all_faults_of_a_file_are_kept_and_reading_goes_on() {
    let source = "a $ b\n'open\nc # d 7q";
    let mut parser = cursor::Parser::new(source);
    let places: Vec<&str> = parser.faults.iter().map(|fault| fault.span.of(source)).collect();
    assert_eq!(places, ["$", "'open", "#", "7q"]);
    assert!(parser.expression().is_ok() && parser.expression().is_ok());
    let deep = "(".repeat(200);
    let mut parser = cursor::Parser::new(&deep);
    assert!(parser.expression().is_err());
    assert_eq!((parser.depth, parser.brackets), (0, 0), "a fault leaves the parser usable");
}

#[test]
fn other_spellings_mean_the_same() {
    check(&[
        ("payload.name contains 'dg' && payload.name startsWith 'W' && payload.tags has 'a'", json!(true)),
        ("'q' not in payload.tags && !('a' not in payload.tags)", json!(true)),
        (
            "{payload.n, topic, deep: {payload.x}}",
            json!({"n": 5, "topic": "price.changed", "deep": {"x": 2.5}}),
        ),
        ("{a: 1\n b: 2}", json!({"a": 1, "b": 2})),
        ("5m + 1h30m", json!("5700s")),
        ("duration('5m') == 5m && 500ms < 1s", json!(true)),
        ("when(payload.gone) { payload.n == 1 } && true", json!(true)),
        ("when(payload.n) { payload.n == 1 } && true", json!(false)),
        ("when(payload.gone) { true } || false", json!(false)),
        ("payload.?n", json!(5)),
        ("1 /* one */ + 2", json!(3)),
    ]);
}

#[test]
fn work_is_bounded() {
    let doubling = format!("['{}']{}", "x".repeat(1000), ".map(s, s + s)".repeat(60));
    let nested = "[1,2,3,4,5,6,7,8,9,10].all(a, ".repeat(6) + "true" + &")".repeat(6);
    check_errors(&[
        (&doubling, "expr.limit"),
        (&nested, "expr.limit"),
        (&format!("{}1{}", "(".repeat(200), ")".repeat(200)), "expr.limit"),
        (&format!("{}true", "!".repeat(200)), "expr.limit"),
        (&vec!["1"; 400].join(" + "), "expr.limit"),
        (&"a".repeat(70_000), "expr.limit"),
        ("payload.name.matches('(a{500}){500}')", "expr.syntax"),
    ]);
    check(&[
        (&vec!["false"; 5000].join(" || "), json!(false)),
        (&vec!["1"; 200].join(" + "), json!(200)),
        (&format!("{}1{}", "[".repeat(90), "]".repeat(90)).replace("[1]", "size([1])"), {
            (0..89).fold(json!(1), |inner, _| json!([inner]))
        }),
    ]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a thread of its own has a stack of its own size")]
fn the_tallest_expression_fits_a_small_stack() {
    let tall = vec!["1"; 290].join(" + ");
    let deep = format!("{}1{}", "-(".repeat(49), ")".repeat(49));
    let small = std::thread::Builder::new().stack_size(512 * 1024);
    small.spawn(move || assert!(value(&tall).is_ok() && value(&deep).is_ok())).unwrap().join().unwrap();
}

#[test]
fn an_expression_knows_what_it_reads() {
    let reads = |text: &str| {
        let expr = Expr::compile(text, &Scope::EVENT).unwrap();
        let mut fields: Vec<Option<String>> = expr.reads().iter().map(|read| read.field.clone()).collect();
        fields.sort();
        fields.dedup();
        fields
    };
    let some = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
    assert_eq!(
        reads("event.topic == 'a' && payload.x.y[0] > subject.id.size()"),
        some(&["payload", "subject", "topic"])
    );
    assert_eq!(reads("has(event.key) || has(payload)"), some(&["key", "payload"]));
    assert_eq!(reads("event['band']"), some(&["band"]));
    assert_eq!(reads("payload.tags.exists(t, t.x == topic)"), some(&["payload", "topic"]));
    assert_eq!(reads("event[topic]"), [None, Some("topic".to_owned())]);
    assert_eq!(reads("size(event) > 1"), [None]);
    assert_eq!(reads("1 == 1"), []);
}

/// Pieces that make plausible and implausible expressions.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(
            &[
                "event",
                ".payload",
                "payload",
                ".n",
                ".tags",
                "[0]",
                "['x']",
                "(",
                ")",
                "[",
                "]",
                "{",
                "}",
                "a:",
                ",",
                "&&",
                "||",
                "!",
                "==",
                "!=",
                "<",
                ">=",
                "+",
                "-",
                "*",
                "/",
                "%",
                "??",
                "?",
                ":",
                " in ",
                "null",
                "true",
                "1",
                "2.5",
                "'a'",
                "\"é\"",
                "size(",
                ".map(x, x",
                ".exists(x, x",
                ".filter(x, x)",
                "has(",
                ".matches('a')",
                "int(",
                "9223372036854775807",
                "x",
                "duration('1s')",
                "timestamp(0)",
                "b'a'",
                "1u",
                "// c\n",
                "x => x",
                "(a, x) => a",
                ".reduce(0, (a, x) => a",
                ".groupBy(x => x)",
                ".orderBy(x => ",
                ".first()",
                "coalesce(",
                "hash(",
                ".getHours('Asia/Kathmandu')",
                ".substring(1",
                ".replace('', 'aa')",
                "when(",
                "5m",
                " not in ",
                "\n",
                "math.greatest(",
                ".split('')",
                ".join()",
                "\\",
                "'",
            ][..]
        )
        .prop_map(str::to_owned),
        ".{0,3}",
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_text_makes_the_parser_or_the_evaluator_panic(text in soup()) {
        let event = event();
        if let Ok(expr) = Expr::compile(&text, &Scope::EVENT) {
            let _ = expr.eval(&[Val::of(&event)]).map(|value| value.to_json());
            let _ = expr.test(&[Val::Null]);
        }
    }

    #[test]
    fn a_problem_points_inside_the_text(text in soup()) {
        if let Err(problem) = Expr::compile(&text, &Scope::EVENT) {
            let offset = problem.extra()["offset"].as_u64().unwrap() as usize;
            prop_assert!(offset <= text.len() && problem.hint_text().unwrap().contains('^'), "{problem:?}");
        }
    }

    #[test]
    fn templates_and_references_take_any_text(text in soup(), at in 0usize..20) {
        let cut = text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
        let template = format!("{}{{{{{}}}}} x", &text[..cut], &text[cut..]);
        let event = event();
        if let Ok(template) = Template::compile(&template, &Scope::EVENT) {
            let _ = template.eval(&[Val::of(&event)]).map(|value| value.to_json());
        }
        let _ = Refs::of(&text);
    }

    /// Real expressions with one piece gone, doubled or swapped are where parsers are weakest.
    #[test]
    fn a_broken_expression_is_an_error_and_no_more(
        which in 0usize..8, from in 0usize..120, len in 0usize..12, put in soup(), deep in 0usize..400,
    ) {
        let source = WHOLE[which];
        let bound = |at: usize| source.char_indices().nth(at).map_or(source.len(), |(byte, _)| byte);
        let text = format!("{}{}{}", &source[..bound(from)], put, &source[bound(from + len)..]);
        let nested = format!("{}{text}{}", "(".repeat(deep), ")".repeat(deep));
        let event = event();
        for text in [text, nested] {
            if let Ok(expr) = Expr::compile(&text, &Scope { late: true, ..Scope::EVENT }) {
                let _ = expr.eval(&[Val::of(&event)]).map(|value| value.to_json());
            }
            let _ = Refs::of(&text);
        }
    }
}

const WHOLE: [&str; 8] = [
    "payload.items.where(i => i.price > 10).select(i => {i.price, n: 1}).first() ?? [1, 2][0]",
    "timestamp('2026-01-01T00:00:00Z').getHours('Europe/Berlin') in [1, 2u, 3.0] && !has(payload.x)",
    "payload.name.matches('^W.+t$') ? {a: [1, {b: 'c'}]} : coalesce(payload.gone, \"x\")",
    "[1, 2, 3].reduce(0, (a, x) => a + x) * -2 % 7 == 5m.getSeconds()",
    r#"'''a''' + r'\d' + b'x' + "\u00e9" not in payload.tags"#,
    "payload.deep.list.map(l, l.map(x, x + size(l))).flatten().orderByDesc(x => x)",
    "when(payload.n) { payload.n > 1 } || payload.tags has 'a' // why",
    "math.greatest(1, 2.5, -3) + hash(payload, 1).substring(0, 4).size()",
];

#[test]
fn the_expressions_that_are_broken_above_are_whole() {
    for text in WHOLE {
        assert!(Expr::compile(text, &Scope::EVENT).is_ok(), "{text}");
    }
}

#[test]
fn what_is_suggested_is_another_name_that_is_there() {
    let hint = |text: &str, roots: &[&str]| {
        let problem = Expr::compile(text, &Scope::of(roots)).unwrap_err();
        problem.hint_text().unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(hint("topic", &["now"]), "names here: now");
    assert_eq!(hint("topc", &["event"]), "did you mean \"topic\"?");
    assert_eq!(hint("event", &["now"]), "names here: now");
    assert_eq!(hint("x", &["y"]), "names here: y");
    assert_eq!(hint("X", &["x"]), "did you mean \"x\"?");
    assert_eq!(hint("[1].wher(x => x > 1)", &[]), "did you mean \"where\"?");
    assert_eq!(hint("startWith('a', 'b')", &[]), "did you mean \"startsWith\"?");
}

#[test]
fn a_search_is_not_blamed_on_another_word() {
    let said = |text: &str| {
        let expr = Expr::compile(text, &Scope::of(&[])).unwrap();
        let problem = expr.eval(&[]).unwrap_err();
        (problem.detail().to_owned(), problem.hint_text().unwrap_or_default().to_owned())
    };
    let (detail, hint) = said("5 has 3");
    assert_eq!(detail, "\"5\" is an int; only a string or a list can be searched, at byte 0");
    assert!(!hint.contains("look here"), "{hint}");
    assert!(said("{'a': 1}.includes('a')").0.contains("only a string or a list can be searched"));
    assert!(said("'53' contains 3").0.contains("a string is searched for a string"));
}
