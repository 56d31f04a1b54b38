//! A set of positions kept as ranges: what a group has settled above its floor.

use std::collections::BTreeMap;

use model::Position;
use model::record::Span;

/// Disjoint, non-touching ranges, by their first position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<Position, Position>);

impl Ranges {
    pub fn insert(&mut self, (mut first, mut last): Span) {
        if let Some((&start, &end)) = self.0.range(..=first).next_back()
            && end.saturating_add(1) >= first
        {
            first = start;
            last = last.max(end);
        }
        while let Some((&start, &end)) = self.0.range(first..=last.saturating_add(1)).next() {
            last = last.max(end);
            self.0.remove(&start);
        }
        self.0.insert(first, last);
    }

    pub fn contains(&self, position: Position) -> bool {
        self.0.range(..=position).next_back().is_some_and(|(_, &last)| last >= position)
    }

    /// Forgets everything at or below `floor`.
    pub fn drop_through(&mut self, floor: Position) {
        while let Some((&first, &last)) = self.0.iter().next() {
            if first > floor {
                break;
            }
            self.0.remove(&first);
            if last > floor {
                self.0.insert(floor + 1, last);
            }
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.0.iter().map(|(first, last)| (*first, *last)).collect()
    }
}

impl FromIterator<Span> for Ranges {
    fn from_iter<I: IntoIterator<Item = Span>>(spans: I) -> Ranges {
        let mut ranges = Ranges::default();
        spans.into_iter().for_each(|span| ranges.insert(span));
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_when_they_touch_and_agree_with_a_plain_set() {
        let mut seed = 1;
        for _ in 0..200 {
            let mut ranges = Ranges::default();
            let mut set = std::collections::BTreeSet::new();
            for _ in 0..30 {
                let first = crate::entropy::split_mix(&mut seed) % 60;
                let last = first + crate::entropy::split_mix(&mut seed) % 6;
                ranges.insert((first, last));
                set.extend(first..=last);
            }
            let floor = crate::entropy::split_mix(&mut seed) % 60;
            ranges.drop_through(floor);
            set.retain(|p| *p > floor);
            for p in 0..80 {
                assert_eq!(ranges.contains(p), set.contains(&p), "{p} in {ranges:?}");
            }
            let spans = ranges.spans();
            assert!(spans.windows(2).all(|w| w[0].1 + 1 < w[1].0), "{spans:?}");
        }
    }
}
