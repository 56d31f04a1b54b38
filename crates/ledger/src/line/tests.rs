//! What parsing must take and must not.

use model::{Timestamp, id};

use super::*;
use crate::{Batch, Head, NewBody, NewRecord};

fn record(data: &str, body: Option<&str>) -> NewRecord {
    let body = body.map(|json| NewBody::new([7; 16], json));
    NewRecord { kind: "event", version: 1, data: data.as_bytes().to_vec(), body }
}

fn batch(records: &[NewRecord]) -> Batch {
    let mut batch = Batch::new(Head::EMPTY, 0, Timestamp::EPOCH);
    batch.commit(records);
    batch
}

#[test]
fn a_line_stands_exactly_as_drawn() {
    let batch = batch(&[record("{\"a\":1}", Some("[1,2]")), record("null", None)]);
    let text = std::str::from_utf8(batch.bytes()).unwrap();
    let x = id::hex(&body_digest(&[7; 16], b"[1,2]"));
    let covered = format!(
        "{{\"p\":1,\"t\":\"1970-01-01T00:00:00Z\",\"s\":0,\"r\":[\
         {{\"k\":\"event\",\"v\":1,\"d\":{{\"a\":1}},\"x\":\"{x}\"}},\
         {{\"k\":\"event\",\"v\":1,\"d\":null}}]"
    );
    let chain = Chain::ZERO.after(covered.as_bytes());
    let salt = "07".repeat(16);
    let want = format!("{covered},\"chain\":\"{chain}\",\"b\":[{{\"s\":\"{salt}\",\"p\":[1,2]}}]}}\n");
    assert_eq!(text, want);
    assert_eq!(batch.head(), Head { position: 2, chain });
}

#[test]
fn a_line_reads_back_record_by_record() {
    let awkward = r#"{"a":"}]\"{,\\","b":[{"c":"],\"chain\":"}]}"#;
    let batch = batch(&[
        record(awkward, Some(r#""b\"ody""#)),
        record("1", None),
        record("{}", Some(r#"{"x":[{"s":"]}"}]}"#)),
    ]);
    let line = parse(batch.bytes()).unwrap();
    assert_eq!((line.first, line.last(), line.synced, line.records().len()), (1, 3, 0, 3));
    assert_eq!(line.time, "1970-01-01T00:00:00Z");
    let records: Vec<_> = line.records().collect();
    assert_eq!(records.iter().map(|r| r.position).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(records[0].data.get(), awkward);
    assert_eq!(records[0].body, Some(BodyRef::Json(Json(r#""b\"ody""#))));
    assert_eq!(records[1].body, None);
    assert_eq!(records[2].body, Some(BodyRef::Json(Json(r#"{"x":[{"s":"]}"}]}"#))));
    assert_eq!(check(batch.bytes(), Chain::ZERO), Ok(batch.head().chain));
}

#[test]
fn every_flipped_bit_of_a_line_is_noticed() {
    for bodies in [vec![None], vec![Some("{\"n\":1}")], vec![Some("[]"), Some("\"ü\"")]] {
        let records: Vec<_> = bodies.iter().map(|body| record("{\"topic\":\"a.b\"}", *body)).collect();
        let good = batch(&records).bytes().to_vec();
        for bit in 0..(good.len() - 1) * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bad, Chain::ZERO).is_err(), "bit {bit} of {:?}", String::from_utf8_lossy(&good));
        }
    }
}

#[test]
fn a_line_cut_anywhere_is_noticed() {
    let good = batch(&[record("{}", Some("{\"a\":[1,2,{\"b\":\"c\"}]}"))]).bytes().to_vec();
    for len in 0..good.len() - 1 {
        assert!(check(&good[..len], Chain::ZERO).is_err(), "{len}");
    }
}

#[test]
fn a_newline_in_a_body_becomes_a_space() {
    let body = NewBody::new([0; 16], "{\n\"a\": 1\r\n}");
    assert_eq!(&*body.json, "{ \"a\": 1  }");
    assert_eq!(body.digest, body_digest(&[0; 16], body.json.as_bytes()));
}

#[test]
fn garbage_is_refused_without_a_panic() {
    let good = batch(&[record("{\"a\":[1]}", Some("[1]")), record("2", Some("{}"))]).bytes().to_vec();
    let mut seed = 1u64;
    for _ in 0..20_000 {
        let mut bad = good.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) as usize % bad.len();
            bad[at] = (seed >> 8) as u8;
        }
        if let Ok(line) = parse(&bad) {
            line.records().for_each(drop);
        }
    }
}
