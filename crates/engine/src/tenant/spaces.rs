//! Spaces that are sealed: which key seals what is written there. Rows of the house, so that every act is an event with an actor.

use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::Tenant;
use crate::admit::{Caller, check_default_space};
use crate::entity::own::SPACE;
use crate::entity::{Action, Row, Write, check_id};
use crate::maintain;
use crate::sealing::{ALL, Held, keys};

impl Tenant {
    /// Those that are sealed or were forgotten.
    pub fn spaces(&self) -> Result<Vec<Value>, Problem> {
        Ok(self.own_rows(SPACE)?.iter().map(|row| self.shown_row(row)).collect())
    }

    /// Seals what is written in a space from now on; `*`: in every one that has no key of its own. `true` when it was not
    /// sealed before.
    pub async fn seal_space(&self, by: &Caller, name: &str) -> Result<(bool, Value), Problem> {
        if name != ALL {
            check_name(name)?;
        }
        let (by, name) = (by.clone(), name.to_owned());
        // Beside a forgetting of the same space, its new key would be taken for one of those to destroy.
        maintain::alone(self, move |tenant| tenant.seal_now(&by, &name)).await
    }

    fn seal_now(&self, by: &Caller, name: &str) -> Result<(bool, Value), Problem> {
        let row = self.space_row(name);
        if let Some(row) = row.as_ref().filter(|row| key_of(row).is_some()) {
            return Ok((false, shown(row)));
        }
        let id = self.new_key(name)?;
        let mut said = fields_of(row.as_ref());
        said.insert("key".to_owned(), id.clone().into());
        said.insert("sealed_at".to_owned(), json!(self.now()));
        let written = self.write_blocking(&inside(by), Write::of(SPACE, Some(name), Action::Put(said)))?;
        self.turn_to(name, &id)?;
        Ok((true, shown(&written.row)))
    }

    /// A space that is forgotten has another key from here on, if it had one; and a row that says when.
    pub(crate) fn renew_key(&self, by: &Caller, name: &str) -> Result<(), Problem> {
        let row = self.space_row(name);
        let mut said = fields_of(row.as_ref());
        let id = match row.as_ref().and_then(key_of) {
            Some(_) => Some(self.new_key(name)?),
            None => None,
        };
        said.extend(id.clone().map(|id| ("key".to_owned(), id.into())));
        said.insert("forgotten_at".to_owned(), json!(self.now()));
        self.write_blocking(&inside(by), Write::of(SPACE, Some(name), Action::Put(said)))?;
        id.map_or(Ok(()), |id| self.turn_to(name, &id))
    }

    /// Every key that was made for the space but the one that seals it now.
    pub(crate) fn destroy_keys(&self, space: &str) -> Result<(), Problem> {
        let Some(dir) = self.dir() else { return Ok(()) };
        let kept = self.seals().key_of(space);
        for id in self.seals().keys_of(space).into_iter().filter(|id| Some(id) != kept.as_ref()) {
            let gone = keys::destroy(dir, &id, space, self.now())?;
            self.seals().hold(&id, gone);
        }
        Ok(())
    }

    /// Sealed spaces, each with its key.
    pub(crate) fn sealed_spaces(&self) -> Result<Vec<(String, String)>, Problem> {
        let rows = self.own_rows(SPACE)?;
        Ok(rows.into_iter().filter_map(|row| Some((row.id.clone(), key_of(&row)?))).collect())
    }

    /// What is written from the first record on is sealed. A key that is missing is no reason to write in the clear.
    pub(super) fn spaces_at_hand(&self) -> Result<(), Problem> {
        for (space, id) in self.sealed_spaces()? {
            let id = match self.seals().held(&id) {
                Some(Held::Key { .. }) => id,
                // It is forgotten as soon as the tenant is open.
                Some(Held::Forgotten { .. }) => self.new_key(&space)?,
                None => return Err(missing(Some(&space), &id)),
            };
            self.seals().turn_to(&space, &id);
        }
        self.seals().settle();
        Ok(())
    }

    fn new_key(&self, space: &str) -> Result<String, Problem> {
        let Some(dir) = self.dir() else {
            return Err(Problem::new(Code::RequestInvalid, "this tenant lives in memory only"));
        };
        let id = model::id::hex(&self.random::<8>());
        self.seals().hold(&id, keys::make(dir, &id, space, self.random())?);
        Ok(id)
    }

    /// Between two batches: none is half under one key.
    fn turn_to(&self, space: &str, id: &str) -> Result<(), Problem> {
        self.with_writer(|_| {
            self.seals().turn_to(space, id);
            Ok(())
        })
    }

    pub(crate) fn shown_space(&self, name: &str) -> Value {
        self.space_row(name).map(|row| self.shown_row(&row)).unwrap_or_default()
    }

    /// One without a key of its own may be sealed with all others.
    fn shown_row(&self, row: &Row) -> Value {
        let mut space = shown(row);
        if space["sealed"] == false && self.seals().seals(&row.id) {
            (space["sealed"], space["key_of"]) = (true.into(), ALL.into());
        }
        space
    }

    pub(crate) fn has_space_row(&self, name: &str) -> bool {
        self.space_row(name).is_some()
    }

    fn space_row(&self, name: &str) -> Option<Row> {
        self.entity(&inside(&Caller::local()), SPACE, None, name).ok()
    }
}

/// Whether events of clients can have it.
pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let wrong = |problem: Problem| Problem::new(Code::RequestInvalid, problem.detail()).at("/name");
    check_default_space(name).map_err(wrong)?;
    // Longer ones may be published in; a row that says what they are could not be written.
    check_id(name).map_err(wrong)?;
    match name == ALL {
        true => {
            Err(Problem::new(Code::RequestInvalid, "\"*\" stands for all spaces, and one is to be named")
                .hint("name a space")
                .at("/name"))
        }
        false => Ok(()),
    }
}

/// Nothing is damaged: without the key it would be read, and written, otherwise than it was meant.
pub(super) fn missing(space: Option<&str>, id: &str) -> Problem {
    let of = space.map_or("a sealed space".to_owned(), |space| format!("the sealed space \"{space}\""));
    Problem::new(Code::StoreCorrupt, format!("the key \"{id}\" of {of} is missing"))
        .hint("copy DATA/keys/<tenant>.spaces from where you keep keys; backups do not hold it")
}

fn fields_of(row: Option<&Row>) -> Map<String, Value> {
    row.map(|row| row.fields.clone()).unwrap_or_default()
}

fn key_of(row: &Row) -> Option<String> {
    row.fields.get("key").and_then(Value::as_str).map(str::to_owned)
}

fn inside(by: &Caller) -> Caller {
    Caller { outside: false, ..by.clone() }
}

fn shown(row: &Row) -> Value {
    let mut space = json!({"name": row.id, "sealed": key_of(row).is_some()});
    let told = row.fields.iter().filter(|(_, value)| !value.is_null());
    told.for_each(|(name, value)| space[name] = value.clone());
    space
}
