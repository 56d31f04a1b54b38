//! Reads an envelope back by hand where it is plain: every event of a backlog passes here, and most are plain.

use super::{Band, Envelope, Subject};
use crate::json::value_end;

impl Envelope {
    /// Reads what serde wrote.
    pub fn read(data: &str) -> Result<Envelope, serde_json::Error> {
        match plain(data) {
            Some(envelope) => Ok(envelope),
            None => serde_json::from_str(data),
        }
    }
}

const ALWAYS: u32 = 1 | 2 | 4 | 8;

/// `None` for whatever takes more than cutting out: an escape, a time, spaces, a name it does not know.
fn plain(data: &str) -> Option<Envelope> {
    let mut envelope = Envelope::default();
    let mut rest = data.strip_prefix('{')?;
    let mut seen = 0;
    loop {
        let (name, after) = rest.strip_prefix('"')?.split_once("\":")?;
        let end = value_end(after.as_bytes(), 0)?;
        let (value, after) = after.split_at_checked(end)?;
        seen |= set(&mut envelope, name, value)?;
        match after {
            "}" => break,
            _ => rest = after.strip_prefix(',')?,
        }
    }
    (seen == ALWAYS).then_some(envelope)
}

/// Which of those that are always there it was, as a bit; 0 for the others.
fn set(envelope: &mut Envelope, name: &str, value: &str) -> Option<u32> {
    let (place, bit) = match name {
        "id" => (&mut envelope.id, 1),
        "topic" => (&mut envelope.topic, 2),
        "space" => (&mut envelope.space, 4),
        "actor" => (&mut envelope.actor, 8),
        _ => return set_optional(envelope, name, value).map(|()| 0),
    };
    *place = text(value)?;
    Some(bit)
}

fn set_optional(envelope: &mut Envelope, name: &str, value: &str) -> Option<()> {
    match name {
        "source" => envelope.source = Some(text(value)?),
        "trace" => envelope.trace = Some(text(value)?),
        "key" => envelope.key = Some(text(value)?),
        "type" => envelope.kind = Some(text(value)?),
        "caused_by" => envelope.caused_by = Some(text(value)?),
        "run" => envelope.run = Some(text(value)?),
        "cause" => envelope.cause = Some(value.parse().ok()?),
        "depth" => envelope.depth = value.parse().ok()?,
        "ttl_ms" => envelope.ttl_ms = Some(value.parse().ok()?),
        "priority" => envelope.priority = value.parse().ok()?,
        "band" => envelope.band = Band::parse(bare(value)?)?,
        "subject" => {
            let (kind, id) = value.strip_prefix("{\"kind\":")?.strip_suffix('}')?.split_once(",\"id\":")?;
            envelope.subject = Some(Subject { kind: text(kind)?, id: text(id)? });
        }
        _ => return None,
    }
    Some(())
}

fn text(value: &str) -> Option<String> {
    bare(value).map(str::to_owned)
}

/// The inside of a string without escapes.
fn bare(value: &str) -> Option<&str> {
    let inside = value.strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr2(b'"', b'\\', inside.as_bytes()).is_none().then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Envelope {
        let text = |text: &str| Some(text.to_owned());
        Envelope {
            id: "01J".to_owned(),
            topic: "price.changed".to_owned(),
            space: "default".to_owned(),
            actor: "user:ann".to_owned(),
            source: text("erp"),
            subject: Some(Subject { kind: "item".to_owned(), id: "10,\"id\":472".replace('"', "'") }),
            cause: Some(40),
            depth: 1,
            trace: text("00-ab-01"),
            key: text("k1"),
            ttl_ms: Some(60_000),
            priority: 9,
            band: Band::Red,
            kind: text("price.changed"),
            caused_by: text("sync:tier=1"),
            run: text("run_1"),
            ..Envelope::default()
        }
    }

    #[test]
    fn a_plain_envelope_is_read_as_serde_reads_it() {
        let bare = Envelope { id: "1".to_owned(), topic: "a".to_owned(), ..Envelope::default() };
        for envelope in [bare, full()] {
            let data = serde_json::to_string(&envelope).unwrap();
            assert_eq!(plain(&data), Some(envelope.clone()), "{data}");
            assert_eq!(serde_json::from_str::<Envelope>(&data).unwrap(), envelope);
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_serde() {
        let ends_like_a_subject = Subject { kind: "a\",\"id\":\"b".to_owned(), id: "c".to_owned() };
        let unplain = [
            Envelope { topic: "a\"b".to_owned(), ..full() },
            Envelope { subject: Some(ends_like_a_subject), ..full() },
            Envelope { time: Some(crate::Timestamp::EPOCH), ..full() },
            Envelope { sequence: Some(-3), content_type: Some("text/\\plain".to_owned()), ..full() },
        ];
        for envelope in unplain {
            let data = serde_json::to_string(&envelope).unwrap();
            assert_eq!(plain(&data), None, "{data}");
            assert_eq!(Envelope::read(&data).unwrap(), envelope, "{data}");
        }
    }

    #[test]
    fn what_lacks_a_field_or_is_cut_is_an_error() {
        let data = serde_json::to_string(&full()).unwrap();
        for end in 0..data.len() {
            assert!(Envelope::read(&data[..end]).is_err(), "{}", &data[..end]);
        }
        assert!(Envelope::read(r#"{"id":"1","topic":"a","space":"b"}"#).is_err());
        assert!(Envelope::read(r#"{"id":"1","id":"1","topic":"a","space":"b"}"#).is_err());
    }
}
