//! Builtins, methods and macros: memQL's conformance matrix, the collection library, times and texts.

use serde_json::{Value, json};

use super::super::*;

/// Evaluates over `rows` (one node), `active` (a step's result), `skipped`, `startedAt` and some numbers.
fn value(text: &str) -> Result<Value, String> {
    let node = json!({"id": "n1", "payload": {"name": "Ann", "score": 7}});
    let roots = [
        ("rows", json!([node])),
        ("result", json!({"rows": [node, {"id": "n2", "payload": {"score": 3}}], "next": "c"})),
        ("active", json!({"rows": [node]})),
        ("skipped", json!(null)),
        ("startedAt", json!("2026-03-10")),
        (
            "event",
            json!({"topic": "a.b", "time": "2026-01-01T10:00:00Z", "payload": {"n": 5, "tags": ["b", "a", "b"]}}),
        ),
        ("revenue", json!(100)),
        ("orders", json!(8)),
        ("vars", json!({"REGION": "eu"})),
        ("secrets", json!({"KEY": "s3"})),
    ];
    let names: Vec<&str> = roots.iter().map(|root| root.0).chain(["now"]).collect();
    let now = Val::instant(model::Timestamp::parse("2026-01-02T00:00:00Z").unwrap());
    let values: Vec<Val<'_>> = roots.iter().map(|root| Val::of(&root.1)).chain([now]).collect();
    let scope = Scope { concepts: &[("agent", "v1:agents:agent")], ..Scope::of(&names) };
    let expr = Expr::compile(text, &scope).map_err(|p| p.code().to_string())?;
    expr.eval(&values).and_then(|v| v.to_json()).map_err(|p| p.code().to_string())
}

fn check(table: &[(&str, Value)]) {
    for (text, want) in table {
        assert_eq!(value(text).as_ref(), Ok(want), "{text}");
    }
}

#[test]
fn what_is_declared_to_be_a_duration_or_an_instant_is_compared_as_one() {
    let row = json!({"w": 300, "s": 0.1, "at": "2026-01-01T00:00:01Z"});
    let lengths = ["row.w", "row.s", "row.none"].map(str::to_owned);
    let instants = ["row.at".to_owned()];
    let scope = Scope { lengths: &lengths, instants: &instants, ..Scope::rows(&["row"]) };
    for (text, holds) in [
        ("row.w > 4m && 4m < row.w", true),
        ("row.w == 5m && row.w == \"5m\" && \"300s\" == row.w && row.w == 300", true),
        ("row.s == 100ms && row.s < row.w && row.w in [1s, \"5m\"]", true),
        ("row.w != \"5m\" || row.w > \"soon\" || row.none > 1s", false),
        ("row.at > \"2026-01-01\" && row.at < \"2026-01-02\" && row.at != \"2026-01-01\"", true),
        ("row.at == \"2026-01-01T01:00:01+01:00\" && !(row.at in [\"2026-01-01\"])", true),
        ("row.at + row.w == \"2026-01-01T00:05:01Z\" && row.w + row.at > row.at - row.w", true),
        ("row.at - row.at == 0 && row.w + row.s == 300.1 && row.w - 1m == \"4m\"", true),
        ("timestamp(\"2026-01-01\") + (row.w - row.w) < row.at && row.at - duration(\"2s\") < row.at", true),
        ("\"due \" + row.at == \"due 2026-01-01T00:00:01Z\" && row.w + 60 == 360", true),
        ("row.at + row.none > row.at || row.at + row.at > row.at", false),
    ] {
        let expr = Expr::compile(text, &scope).unwrap();
        assert_eq!(expr.test(&[Val::of(&row)]).unwrap_or(false), holds, "{text}");
    }
}

fn check_errors(table: &[(&str, &str)]) {
    for (text, code) in table {
        assert_eq!(value(text), Err((*code).to_owned()), "{text}");
    }
}

#[test]
fn the_conformance_matrix_of_memql_holds() {
    let node = json!({"id": "n1", "payload": {"name": "Ann", "score": 7}});
    check(&[
        ("active", json!({"rows": [node]})),
        ("skipped", json!(null)),
        ("coalesce(active, skipped)", json!({"rows": [node]})),
        ("coalesce(skipped, active)", json!({"rows": [node]})),
        ("coalesce(skipped, \"default\")", json!("default")),
        ("rows.first()", node),
        ("rows.count()", json!(1)),
        ("rows.empty()", json!(false)),
        ("coalesce(rows.first().id, \"\")", json!("n1")),
        ("addDuration(\"2026-01-01T00:00:00Z\", \"P1D\")", json!("2026-01-02T00:00:00Z")),
        ("daysBetween(\"2026-01-01\", \"2026-01-11\")", json!(10)),
        ("addDuration(startedAt, \"P1D\")", json!("2026-03-11T00:00:00Z")),
        ("(revenue / orders)", json!(12)),
        ("((orders * 100) / revenue)", json!(8)),
        ("(rows.count() * 2)", json!(2)),
        ("((revenue - orders) > 0)", json!(true)),
        ("(0 < orders)", json!(true)),
    ]);
    // There a bare word that is no step is its own text, which lets a typo into the rows; here it is refused.
    check_errors(&[("writer", "expr.unknown_name")]);
}

#[test]
fn accessors_read_rows_in_either_case_and_a_skipped_step_has_none() {
    check(&[
        ("rows.First().payload.name", json!("Ann")),
        ("result.Last().id", json!("n2")),
        ("result.Nodes().size()", json!(2)),
        ("result.Len() + result.Count()", json!(4)),
        ("skipped.Empty() && !active.Empty()", json!(true)),
        ("skipped.First().payload.name == \"\"", json!(true)),
        ("skipped.count()", json!(0)),
        ("active.Ran() && !skipped.Ran()", json!(true)),
        ("first(rows).id + last(result).id", json!("n1n2")),
        ("rows.first().first().id", json!("n1")),
    ]);
    check_errors(&[("revenue.first()", "expr.type"), ("rows.frist()", "expr.unknown_name")]);
}

#[test]
fn the_collection_library_takes_lambdas() {
    check(&[
        ("result.where(r => r.payload.score > 5).select(r => r.id)", json!(["n1"])),
        ("result.Where(r => r.payload.score > 5).count()", json!(1)),
        ("result.any(r => r.id == 'n2') && result.all(r => r.payload.score > 2)", json!(true)),
        ("result.first(r => r.payload.score < 5).id", json!("n2")),
        ("result.count(r => r.payload.score < 5)", json!(1)),
        ("result.single(r => r.id == 'n1').id", json!("n1")),
        ("result.sum(r => r.payload.score)", json!(10)),
        ("result.avg(r => r.payload.score)", json!(5.0)),
        ("[3, 1, 2].min() + [3, 1, 2].max()", json!(4)),
        ("[].max()", json!(null)),
        ("[].avg()", json!(null)),
        ("[1.5, 2].sum()", json!(3.5)),
        ("result.orderBy(r => r.payload.score).select(r => r.id)", json!(["n2", "n1"])),
        ("[2, 3, 1].orderByDesc(x => x)", json!([3, 2, 1])),
        ("[1, 2, 3, 4].skip(1).take(2)", json!([2, 3])),
        ("event.payload.tags.distinct()", json!(["b", "a"])),
        ("[1, 2, 3].groupBy(x => x % 2)", json!([{"key": 1, "items": [1, 3]}, {"key": 0, "items": [2]}])),
        ("[1, 2, 3].reduce(10, (sum, x) => sum + x)", json!(16)),
        ("[1, 2, 3].reduce((sum, x) => sum + x, 0)", json!(6)),
        ("[[1], [2, 3], 4].flatten()", json!([1, 2, 3, 4])),
        ("{a: 1, b: 2}.values() + {c: 1}.keys()", json!([1, 2, "c"])),
        ("event.payload.tags.includes('a')", json!(true)),
        ("[1, 2].map(x => x * 2)", json!([2, 4])),
        ("[5, 6].transformList(i, v, i + v)", json!([5, 7])),
        ("skipped.where(x => true)", json!([])),
    ]);
    check_errors(&[
        ("[1, 2].single()", "expr.index"),
        ("[1, 'a'].orderBy(x => x)", "expr.type"),
        ("[1].reduce(x => x)", "expr.syntax"),
        ("[1].where(1)", "expr.syntax"),
        ("x => x", "expr.syntax"),
    ]);
}

#[test]
fn builtins_of_the_seed_mean_what_it_says() {
    check(&[
        ("coalesce(\"  \", skipped, 1 / 0, rows.first().payload.nope, \"x\")", json!("x")),
        ("coalesce(skipped, \"\")", json!("")),
        ("cond(orders > 5, \"many\", 1 / 0)", json!("many")),
        ("concat(\"si-\", 7, \"-\", skipped, true)", json!("si-7-true")),
        ("hash(\"abc\")", json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")),
        ("hash(1, 'a') == hash(1, 'a') && hash(1, 'a') != hash('a', 1)", json!(true)),
        ("fingerprint({b: 1, a: 2}) == fingerprint({a: 2, b: 1})", json!(true)),
        ("canonicalId('x', agent)", json!("v1:agents:agent:x")),
        ("canonicalId('v1:agents:agent:x', agent)", json!("v1:agents:agent:x")),
        ("canonicalId('', agent)", json!("")),
        ("shortId('v1:agents:agent:x')", json!("x")),
        ("toString(1) + toString([1]) + toString(skipped)", json!("1[1]")),
        ("contains('abc', 'b') && contains([1], 1)", json!(true)),
        ("add(1, 2) + sub(5, 3)", json!(5)),
        ("exists(event.payload.n) && !exists(event.payload.gone) && !exists('') && !exists([])", json!(true)),
        ("field(event.payload, 'n')", json!(5)),
        ("var(\"REGION\") + secret(\"KEY\")", json!("eus3")),
        ("timestamp() == now && now() == now", json!(true)),
        ("nil == null && event.payload.gone == nil", json!(true)),
        ("lower('ÄB') + upper('ß') + trim('  x ')", json!("äbSSx")),
    ]);
    check_errors(&[
        ("publishEvent({topic: 'a'})", "expr.syntax"),
        ("canonicalId('v1:b:c:x', agent)", "expr.type"),
        ("secret(event.topic)", "expr.syntax"),
        ("step('a')", "expr.unknown_name"),
        ("cond(true, 1)", "expr.syntax"),
    ]);
}

#[test]
fn times_are_read_in_their_zones() {
    check(&[
        ("timestamp('2026-03-29T01:30:00Z').getHours('Europe/Berlin')", json!(3)),
        ("timestamp('2026-01-01T00:00:00Z').getDayOfWeek()", json!(4)),
        ("event.time < now && now > event.time", json!(true)),
        ("now - event.time", json!("50400s")),
        ("event.time + 1h", json!("2026-01-01T11:00:00Z")),
        ("year(event.time) + month(event.time) + quarter('2026-12-01')", json!(2031)),
        ("timestamp('9999-12-31T23:59:59.999999999Z')", json!("9999-12-31T23:59:59.999999999Z")),
        ("timestamp('2024-02-29T00:00:00Z').getDayOfYear()", json!(59)),
        ("localDate('2026-01-31T23:30:00Z')", json!("2026-01-31")),
        ("localDate(timestamp('2026-01-31T23:30:00Z'), 'Europe/Berlin')", json!("2026-02-01")),
        ("localDate('2026-01-01T02:00:00Z', 'America/New_York')", json!("2025-12-31")),
        ("timestamp('2026-01-01T00:00:00+02:00')", json!("2025-12-31T22:00:00Z")),
        ("duration('90s').getMinutes() + duration('1.25s').getMilliseconds()", json!(251)),
        ("duration('-1.5s')", json!("-1.5s")),
        ("duration('1000000000000000000ns')", json!("1000000000s")),
        ("duration('-9223372036854775807ns')", json!("-9223372036.854775807s")),
        ("'ta©o©αT'.lastIndexOf('©', 3)", json!(2)),
        ("'b©'.lastIndexOf('b', 1)", json!(0)),
        ("'éaé'.lastIndexOf('é', 1) + 'éaé'.lastIndexOf('é', 3)", json!(2)),
    ]);
    check_errors(&[
        ("timestamp('2025-02-29T00:00:00Z')", "expr.type"),
        ("timestamp('2026-01-01 00:00:00Z')", "expr.type"),
        ("now.getHours('Mars/Base')", "expr.type"),
        ("duration('300000h') + duration('3000000h')", "expr.overflow"),
        ("event.topic < now", "expr.type"),
    ]);
}

#[test]
fn what_an_expression_makes_cannot_grow_without_bound() {
    let list: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let list = format!("[{}]", list.join(","));
    check_errors(&[
        (&format!("{list}.reduce([0], (a, x) => [a])"), "expr.limit"),
        (&format!("{list}.take(40).reduce([0], (a, x) => [a, a])"), "expr.limit"),
        (&format!("{list}.take(40).reduce('x', (a, x) => a + a)"), "expr.limit"),
        (&format!("{list}.take(40).reduce([0], (a, x) => a + a)"), "expr.limit"),
        (&format!("toString({list}.take(40).reduce([0], (a, x) => [a, a]))"), "expr.limit"),
        (&format!("hash({list}.take(40).reduce([0], (a, x) => [a, a]))"), "expr.limit"),
        (&format!("{list}.map(x, {list}.orderBy(y => -y))"), "expr.limit"),
    ]);
}
