//! What is declared in a tenant now: every definition by kind and name, and concepts made ready for checking rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::definition::{Definition, Kind, Logic, Mutation, Query, Shape};
use model::record::Applied;
use model::{Code, Position, Problem};

use super::{Concept, mutation, own};
use crate::automation::{Automation, Automations};
use crate::program::Program;

#[derive(Clone, Debug)]
pub struct Entry {
    pub hash: String,
    /// `workspace:<name>`, `api` or `draft`.
    pub managed_by: String,
    /// Where it was last applied.
    pub position: Position,
    pub definition: Arc<Definition>,
}

#[derive(Clone, Debug, Default)]
pub struct Catalog {
    entries: BTreeMap<(Kind, String), Entry>,
    concepts: BTreeMap<String, Arc<Concept>>,
    pub automations: Automations,
    programs: BTreeMap<String, Arc<Program>>,
    mutations: BTreeMap<String, Arc<mutation::Mutation>>,
}

impl Catalog {
    pub fn entries(&self) -> impl Iterator<Item = (&(Kind, String), &Entry)> {
        self.entries.iter()
    }

    pub fn get(&self, kind: Kind, name: &str) -> Option<&Entry> {
        self.entries.get(&(kind, name.to_owned()))
    }

    /// Fails when a concept's pattern or derive cannot be compiled.
    pub fn put(&mut self, entry: Entry) -> Result<(), Problem> {
        if let Definition::Concept(concept) = entry.definition.as_ref() {
            let concept = Concept::new(concept.clone())?;
            self.concepts.insert(concept.definition.id.clone(), Arc::new(concept));
        }
        if let Definition::Automation(definition) = entry.definition.as_ref() {
            self.automations.put(Automation::new(definition.clone(), entry.hash.clone(), entry.position)?);
        }
        if let Definition::Logic(logic) = entry.definition.as_ref() {
            self.programs.insert(logic.name.clone(), Arc::new(Program::logic(&logic.steps)));
        }
        if let Definition::Mutation(mutation) = entry.definition.as_ref() {
            // One that cannot be made ready says why to whoever calls it.
            match mutation::Mutation::new(mutation) {
                Ok(ready) => _ = self.mutations.insert(mutation.name.clone(), Arc::new(ready)),
                Err(_) => _ = self.mutations.remove(&mutation.name),
            }
        }
        let key = (entry.definition.kind(), entry.definition.key().to_owned());
        self.entries.insert(key, entry);
        Ok(())
    }

    pub fn remove(&mut self, kind: Kind, name: &str) {
        self.entries.remove(&(kind, name.to_owned()));
        if kind == Kind::Concept {
            self.concepts.remove(name);
        }
        if kind == Kind::Automation {
            self.automations.remove(name);
        }
        if kind == Kind::Mutation {
            self.mutations.remove(name);
        }
    }

    /// The catalogue after this record. What was recorded was checked; what cannot be read is left out and said.
    pub fn after(&self, position: Position, applied: &Applied) -> Catalog {
        let mut next = self.clone();
        for (kind, name) in &applied.removed {
            next.remove(*kind, name);
        }
        for set in &applied.set {
            let entry = Definition::from_json(set.definition.get()).map(|definition| Entry {
                hash: set.hash.clone(),
                managed_by: applied.managed_by.clone(),
                position,
                definition: Arc::new(definition),
            });
            let put = entry.map_err(|err| err.to_string());
            if let Err(why) = put.and_then(|entry| next.put(entry).map_err(|problem| problem.to_string())) {
                tracing::error!(kind = %set.kind, name = set.name, why, "a recorded definition cannot be used");
            }
        }
        next.automations.rewire();
        next
    }

    pub fn concepts(&self) -> impl Iterator<Item = &Arc<Concept>> {
        self.concepts.values()
    }

    /// By id, or by bare name when only one concept has it.
    pub fn concept(&self, name: &str) -> Result<&Arc<Concept>, Problem> {
        if let Some(concept) = self.concepts.get(name).filter(|_| own::concept(name).is_none()) {
            return Ok(concept);
        }
        let mut named = self.concepts.values().filter(|concept| concept.definition.name == name);
        match (named.next(), named.next()) {
            (Some(concept), None) => Ok(concept),
            (Some(_), Some(_)) => {
                Err(Problem::new(Code::ConceptNotFound, format!("more than one concept is named \"{name}\""))
                    .hint("name it by its id, such as v1:domain:name"))
            }
            (None, _) => Err(self.unknown(Code::ConceptNotFound, Kind::Concept, name)),
        }
    }

    /// As [`Catalog::concept`], and the house's own, which only those inside may name.
    pub fn concept_for(&self, outside: bool, name: &str) -> Result<&Arc<Concept>, Problem> {
        match own::concept(name).filter(|_| !outside) {
            Some(concept) => Ok(concept),
            None => self.concept(name),
        }
    }

    pub fn query(&self, name: &str) -> Result<&Query, Problem> {
        match self.get(Kind::Query, name).map(|entry| entry.definition.as_ref()) {
            Some(Definition::Query(query)) => Ok(query),
            _ => Err(self.unknown(Code::QueryNotFound, Kind::Query, name)),
        }
    }

    pub fn mutation(&self, name: &str) -> Result<&Mutation, Problem> {
        match self.get(Kind::Mutation, name).map(|entry| entry.definition.as_ref()) {
            Some(Definition::Mutation(mutation)) => Ok(mutation),
            _ => Err(self.unknown(Code::MutationNotFound, Kind::Mutation, name)),
        }
    }

    /// A mutation, ready to be called.
    pub fn mutation_ready(&self, name: &str) -> Result<Arc<mutation::Mutation>, Problem> {
        match self.mutations.get(name) {
            Some(ready) => Ok(ready.clone()),
            None => mutation::Mutation::new(self.mutation(name)?).map(Arc::new),
        }
    }

    /// Logic by its name, or by `logic` and its name with a capital.
    pub fn logic(&self, name: &str) -> Result<(&Logic, Arc<Program>), Problem> {
        let mut long = String::from("logic");
        let mut letters = name.chars();
        long.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        long.push_str(letters.as_str());
        for name in [name, long.as_str()] {
            let entry = self.get(Kind::Logic, name).map(|entry| entry.definition.as_ref());
            if let (Some(Definition::Logic(logic)), Some(program)) = (entry, self.programs.get(name)) {
                return Ok((logic, program.clone()));
            }
        }
        Err(self.unknown(Code::LogicNotFound, Kind::Logic, name))
    }

    pub fn shape(&self, name: &str) -> Option<&Shape> {
        match self.get(Kind::Shape, name).map(|entry| entry.definition.as_ref()) {
            Some(Definition::Shape(shape)) => Some(shape),
            _ => None,
        }
    }

    fn unknown(&self, code: Code, kind: Kind, name: &str) -> Problem {
        let known: Vec<&str> = self
            .entries
            .keys()
            .filter(|(of, _)| *of == kind)
            .map(|(_, name)| name.as_str())
            .take(8)
            .collect();
        let hint = if known.is_empty() {
            format!("no {kind} is declared yet: write one and `everwhen apply` it")
        } else {
            format!("declared are: {}", known.join(", "))
        };
        Problem::new(code, format!("there is no {kind} \"{name}\"")).hint(hint)
    }
}
