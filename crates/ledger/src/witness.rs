//! What is known of a ledger from outside its lines: that a position was durable, and who says so.
//!
//! After an unclean stop the lines alone cannot tell an append that was never finished from a file that lost its end.
//! Whoever keeps something derived from synced lines only can: it is newer than the ledger, or it is not.

use std::path::Path;

use model::Position;

use crate::disk::Disk;
use crate::file::{marker, segment, walk};
use crate::{Chain, Finding, FindingKind, Head, Report};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    pub position: Position,
    /// A path or a name, as people know it.
    pub who: String,
}

impl Witness {
    pub(crate) fn accuse(&self, last: Position) -> String {
        let Witness { position, who } = self;
        format!(
            "the ledger ends at position {last}, but \"{who}\" shows that position {position} was durable; \
             remove that file only if it is not this ledger's"
        )
    }

    /// Adds to a report what recovery would refuse this ledger for.
    pub fn testify(&self, dir: &Path, report: &mut Report) {
        if !report.is_ok() || self.position <= report.last + report.cut_records {
            return;
        }
        let message = self.accuse(report.last);
        match report.problems.iter_mut().find(|finding| finding.kind == FindingKind::TornTail) {
            Some(finding) => (finding.kind, finding.message) = (FindingKind::Corrupt, message),
            None => {
                let (file, position) = (dir.to_path_buf(), report.last + 1);
                let kind = FindingKind::Corrupt;
                report.problems.push(Finding { kind, file, offset: 0, position, message });
            }
        }
    }
}

/// Where a ledger was closed, while nothing was written to it since.
pub fn closed_at(disk: &dyn Disk, dir: &Path) -> Option<Head> {
    marker::read(disk, dir)
}

/// The chain after the first line a tenant ever wrote, which tells its ledger from all others; `None` when that line is
/// trimmed, damaged or not there yet.
pub fn origin(disk: &dyn Disk, dir: &Path) -> Option<Chain> {
    let listing = segment::list(disk, dir).ok()?;
    let first = listing.segments.first().filter(|segment| segment.first == 1)?;
    let mut pieces = walk::Pieces::open(disk, &segment::path(dir, first.first)).ok()?;
    let piece = pieces.next().ok()??;
    walk::judge(piece.bytes, 1, Some(Chain::ZERO)).ok().map(|line| line.chain)
}
