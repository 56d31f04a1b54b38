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
    let (mut next, head) = (from, tenant.head());
    let mut lines = String::new();
    loop {
        lines.clear();
        next = some_records(tenant, (next, head), &mut lines)?;
        lines.lines().try_for_each(&mut each)?;
        if next > head {
            return Ok(());
        }
    }
}

/// As [`records`], a piece at a time: appends lines and says where to go on, behind `to` when there are no more.
pub fn some_records(
    tenant: &Tenant,
    (from, to): (Position, Position),
    out: &mut String,
) -> Result<Position, Problem> {
    let from = if from <= 1 { tenant.first() } else { from };
    let mut bytes = Vec::new();
    let end =
        tenant.with_reader(|reader| reader.read(from, read::CHUNK, &mut bytes).map_err(read::problem))?;
    for text in ledger::lines(&bytes) {
        let (line, _) = read::parse(text)?;
        for record in line.records().filter(|record| (from..=to).contains(&record.position)) {
            write(record, line.time, out);
        }
    }
    Ok(if end.next == from { to.max(from).saturating_add(1) } else { end.next })
}

/// `{"position","time","k","v","d"}`, with the body as `b` or `"erased":true`, and a newline.
fn write(record: &RecordRef<'_>, time: &str, out: &mut String) {
    let RecordRef { position, kind, version, data, .. } = record;
    out.push_str(&format!(
        "{{\"position\":{position},\"time\":\"{time}\",\"k\":\"{kind}\",\"v\":{version},\"d\":{}",
        data.get()
    ));
    match &record.body {
        Some(BodyRef::Json(json)) => {
            out.push_str(",\"b\":");
            out.push_str(json.get());
        }
        Some(BodyRef::Erased) => out.push_str(",\"erased\":true"),
        None => {}
    }
    out.push_str("}\n");
}
