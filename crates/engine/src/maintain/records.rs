//! Every record of the ledger as a line of JSON, gapless: `everwhen export --records`.

use ledger::{BodyRef, RecordRef};
use model::{Position, Problem};

use crate::read;
use crate::tenant::Tenant;

/// Calls `each` with every record from `from` on, in order, up to the head as it is now. 0 and 1 mean the first kept.
pub fn records<E: From<Problem>>(
    tenant: &Tenant,
    from: Position,
    mut each: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = if from <= 1 { tenant.first() } else { from };
    let head = tenant.head();
    let mut bytes = Vec::new();
    while next <= head {
        let end =
            tenant.with_reader(|reader| reader.read(next, read::CHUNK, &mut bytes).map_err(read::problem))?;
        for text in ledger::lines(&bytes) {
            let (line, _) = read::parse(text)?;
            for record in line.records().filter(|record| (next..=head).contains(&record.position)) {
                each(&shown(&record, line.time))?;
            }
        }
        next = end.next;
    }
    Ok(())
}

/// `{"position","time","k","v","d"}`, with the body as `b` or `"erased":true`.
fn shown(record: &RecordRef<'_>, time: &str) -> String {
    let RecordRef { position, kind, version, data, .. } = record;
    let mut out = format!(
        "{{\"position\":{position},\"time\":\"{time}\",\"k\":\"{kind}\",\"v\":{version},\"d\":{}",
        data.get()
    );
    match &record.body {
        Some(BodyRef::Json(json)) => {
            out.push_str(",\"b\":");
            out.push_str(json.get());
        }
        Some(BodyRef::Erased) => out.push_str(",\"erased\":true"),
        None => {}
    }
    out.push('}');
    out
}
