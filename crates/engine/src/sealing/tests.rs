//! What is sealed opens under its key, in its place, and in no other way.

use ledger::{Batch, Chain, Head, NewRecord};
use model::Timestamp;

use super::*;

const BODY: &str = r#"{"payload":{"s":"x","p":"\"sealed:v1:aa:bb"}}"#;

fn seals() -> Seals {
    let key = |space: &str, byte| Held::Key { space: space.to_owned(), key: [byte; 32] };
    let seals = Seals::new(BTreeMap::from([("k1".to_owned(), key("a", 1)), ("k2".to_owned(), key(ALL, 2))]));
    seals.turn_to("a", "k1");
    seals.turn_to(ALL, "k2");
    seals
}

fn sealed_in(seals: &Seals, spaces: &[&str], kind: &str, body: &NewBody) -> Option<NewBody> {
    seals.seal(&spaces.iter().map(|space| (*space).to_owned()).collect::<Vec<_>>(), kind, body)
}

fn line(bodies: &[Option<NewBody>]) -> Vec<u8> {
    let mut batch = Batch::new(Head { position: 6, chain: Chain::ZERO }, 6, Timestamp::EPOCH);
    let record = |body: &Option<NewBody>| NewRecord {
        kind: "event",
        version: 1,
        data: b"{}".to_vec(),
        body: body.clone(),
    };
    batch.commit(&bodies.iter().map(record).collect::<Vec<_>>());
    batch.bytes().to_vec()
}

#[test]
fn a_sealed_line_reads_as_it_was_and_its_hashes_hold_as_it_stands() {
    let (seals, plain) = (seals(), NewBody::new([7; 16], BODY));
    let sealed = |space| sealed_in(&seals, &[space], "event", &plain);
    assert!(sealed("_system").is_none(), "what the house says of itself stays readable");
    let mut lines = line(&[sealed("a"), None, Some(plain.clone()), sealed("b")]);
    let stands = ledger::parse(&lines).unwrap();
    assert!(stands.fits(Chain::ZERO) && stands.bad_body().is_none());
    assert_eq!(memmem::find_iter(&lines, b"payload").count(), 1, "only the one that was not sealed");
    seals.open(&mut lines).unwrap();
    let opened = ledger::parse(&lines).unwrap();
    let bodies: Vec<_> = opened.records().filter_map(|record| record.body).collect();
    assert_eq!(bodies.len(), 3);
    for body in bodies {
        assert!(matches!(body, BodyRef::Json(json) if json.get() == BODY));
    }
}

#[test]
fn a_body_whose_key_is_gone_is_erased_and_one_whose_key_is_missing_is_an_error() {
    let (seals, plain) = (seals(), NewBody::new([7; 16], BODY));
    let whole =
        line(&[sealed_in(&seals, &["a"], "event", &plain), sealed_in(&seals, &["b"], "event", &plain)]);
    seals.hold("k1", Held::Forgotten { space: "a".to_owned() });
    assert!(sealed_in(&seals, &["a"], "event", &plain).is_none());
    let mut lines = whole.clone();
    seals.open(&mut lines).unwrap();
    let opened = ledger::parse(&lines).unwrap();
    let bodies: Vec<_> = opened.records().filter_map(|record| record.body).collect();
    assert!(matches!(bodies[..], [BodyRef::Erased, BodyRef::Json(json)] if json.get() == BODY));
    let stranger = Seals::new(BTreeMap::from([("k9".to_owned(), Held::Forgotten { space: "a".to_owned() })]));
    assert!(matches!(stranger.open(&mut whole.clone()), Err(Error::Unreadable { position: 7, .. })));
    assert!(stranger.missed().is_some());
}

#[test]
fn a_body_opens_only_as_the_kind_and_with_the_salt_it_was_sealed_with() {
    let (seals, plain) = (seals(), NewBody::new([7; 16], BODY));
    let other_kind = sealed_in(&seals, &["a"], "run.moved", &plain);
    assert!(seals.open(&mut line(&[other_kind])).is_err());
    let moved = sealed_in(&seals, &["a"], "event", &plain).map(|body| NewBody::new([8; 16], body.json));
    assert!(seals.open(&mut line(&[moved])).is_err());
}

#[test]
fn what_belongs_to_several_spaces_is_gone_with_each_of_their_keys() {
    let plain = NewBody::new([7; 16], BODY);
    let whole = |seals: &Seals| line(&[sealed_in(seals, &["a", "b", "a", "c"], "event", &plain)]);
    let (mut lines, mut again) = (whole(&seals()), whole(&seals()));
    seals().open(&mut lines).unwrap();
    let opened = ledger::parse(&lines).unwrap();
    assert!(matches!(opened.records().next().unwrap().body, Some(BodyRef::Json(json)) if json.get() == BODY));
    for (id, space) in [("k1", "a"), ("k2", ALL)] {
        let seals = seals();
        seals.hold(id, Held::Forgotten { space: space.to_owned() });
        let mut lines = again.clone();
        seals.open(&mut lines).unwrap();
        let opened = ledger::parse(&lines).unwrap();
        assert_eq!(opened.records().next().unwrap().body, Some(BodyRef::Erased), "{id}");
    }
    // Two spaces under one key: sealed once, or the second time would undo the first.
    again = line(&[sealed_in(&seals(), &["b", "c"], "event", &plain)]);
    assert_eq!(again, line(&[sealed_in(&seals(), &["b"], "event", &plain)]));
}
