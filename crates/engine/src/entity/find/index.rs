//! The index of a declared query: what it is over, and when it is the way to the rows.

use super::narrow::{Column, Test};
use super::{Find, Order, Timed, order, quoted};
use crate::entity::Concept;
use model::definition::Query;

/// An index over rows of one concept.
pub struct Index {
    pub name: String,
    /// As SQL says what it is over.
    pub on: String,
    /// What the filter narrows by, in the order of the index; the keys of a sort may follow.
    filter: Vec<Column>,
    /// Whether the keys of the sort follow.
    sorts: bool,
}

/// How a search goes to its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As SQLite likes.
    Free,
    /// Through the rows in their order, with so little left to SQLite that rows are seen one by one and can be counted.
    Walk,
    /// By the index of the query.
    Index,
}

impl Index {
    /// Over these columns; the id and the space behind them make the order of equal ones.
    pub fn over(concept: &str, columns: &[String]) -> Index {
        let on = format!("entity ({}, id, space) WHERE concept = {}", columns.join(", "), quoted(concept));
        let text = serde_json::Value::from(on.as_str()).to_string();
        let hash = model::id::hex(&model::json::canonical_hash([text.as_str()]));
        Index { name: format!("entity_by_{}", &hash[..16]), on, filter: Vec::new(), sorts: false }
    }

    /// The index that a query wants. What it tests only `when` something is given is no reason for one.
    pub fn of(query: &Query, concept: &Concept) -> Option<Index> {
        let timed = Timed::of(query, concept);
        let always = query.filter.iter().filter(|conjunct| conjunct.when.is_none());
        let tests = always.flat_map(|conjunct| super::narrow::tests(&conjunct.test.0, concept, &timed));
        let sort = query.sort.iter().filter_map(|sort| order(sort, concept).ok());
        let (tests, sort) = (tests.collect::<Vec<_>>(), sort.collect::<Vec<_>>());
        Index::choose(concept, &tests.iter().collect::<Vec<_>>(), &sort)
    }

    /// First what has one value, then either the keys of the sort or what has several: rows that are few are sorted
    /// quickly, and rows in order are of no use when most of them are not wanted.
    pub(super) fn choose(concept: &Concept, tests: &[&Test], sort: &[Order]) -> Option<Index> {
        // Every row is found by its id already.
        if tests.iter().any(|test| test.column.sql == "id" && !test.ranges()) {
            return None;
        }
        let one: Vec<&Column> = tests.iter().filter(|test| test.pins()).map(|test| &test.column).collect();
        let several = |wanted: fn(&Test) -> bool| {
            let fits =
                |test: &&&Test| wanted(test) && test.column.sql != "id" && !one.contains(&&test.column);
            tests.iter().filter(fits).map(|test| &test.column).collect::<Vec<_>>()
        };
        let ranges = several(Test::ranges);
        let leads_sort = |column: &&Column| sort.first().is_some_and(|first| first.by == column.sql);
        let behind: Vec<&Column> = match () {
            () if ranges.iter().any(leads_sort) => Vec::new(),
            () => several(|test| !test.ranges() && !test.pins())
                .into_iter()
                .take(1)
                .chain(ranges.into_iter().take(1))
                .collect(),
        };
        let mut filter: Vec<Column> = one.into_iter().cloned().collect();
        filter.sort_by(|a, b| a.sql.cmp(&b.sql));
        filter.dedup();
        let sorts = behind.is_empty();
        filter.extend(behind.into_iter().cloned());
        let mut columns: Vec<String> = filter.iter().map(|column| column.sql.clone()).collect();
        if sorts {
            columns.extend(sort.iter().map(Order::sql));
        }
        let is_any = !columns.is_empty();
        is_any.then(|| Index { filter, sorts, ..Index::over(concept.id(), &columns) })
    }
}

impl Find {
    /// How to go to the first `limit` rows. What an index leaves in another order than the wanted one must be gathered before
    /// the first row is known: above `gathered_max` rows that takes longer than to meet so many on a walk.
    pub fn way(&self, db: &rusqlite::Connection, limit: usize, gathered_max: u64) -> rusqlite::Result<Way> {
        if !self.is_led() {
            return Ok(Way::Free);
        }
        if !self.gathers() || !self.sort.is_empty() || limit == usize::MAX {
            return Ok(Way::Index);
        }
        Ok(if self.left(db, gathered_max)? <= gathered_max { Way::Index } else { Way::Free })
    }

    /// Whether what is looked for is together in the index.
    fn is_led(&self) -> bool {
        let narrows = |column: &Column| self.narrows.iter().any(|narrow| narrow.column == *column);
        self.index.as_ref().is_some_and(|index| index.filter.first().is_none_or(narrows))
    }

    /// Whether rows come out of the index in another order than the wanted one.
    pub fn gathers(&self) -> bool {
        let is_one = |column: &Column| {
            self.narrows.iter().any(|narrow| narrow.column == *column && narrow.want.is_one())
        };
        self.index
            .as_ref()
            .is_none_or(|index| !index.filter.iter().all(is_one) || !(self.sort.is_empty() || index.sorts))
    }

    /// How many rows the index leaves, counted up to one more than `at_most`.
    pub fn left(&self, db: &rusqlite::Connection, at_most: u64) -> rusqlite::Result<u64> {
        let statement = self.counting(at_most + 1);
        // Where there is no such index nothing can be said cheaply.
        let Ok(mut read) = db.prepare_cached(&statement.sql) else { return Ok(0) };
        read.query_row(rusqlite::params_from_iter(statement.params), |row| row.get(0))
    }

    /// Which index serves the search, and over which fields none does.
    pub fn unserved(&self) -> String {
        let list = |names: Vec<String>| {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            names.join(", ")
        };
        let filter = self.index.iter().filter(|_| self.is_led()).flat_map(|index| &index.filter);
        let served: Vec<String> = filter.map(|column| column.name.clone()).collect();
        let mut other: Vec<String> = self.fields_read().filter(|name| !served.contains(name)).collect();
        other.sort();
        other.dedup();
        match (served.is_empty(), other.is_empty()) {
            (true, true) => "it has no filter".to_owned(),
            (true, false) => format!("no index over {} serves it", list(other)),
            (false, true) => format!("its index over {} leaves that many", list(served)),
            (false, false) => format!(
                "its index over {} leaves that many, and none over {} serves it",
                list(served),
                list(other)
            ),
        }
    }
}
