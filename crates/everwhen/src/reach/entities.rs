//! Rows and what is declared about them, near or far.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::task::Poll;

use engine::entity::{Action, Expect, Provenance, Write, body as sent};
use engine::{AsOf, Asking, Lately, Listing, Paging};
use hyper::Method;
use lang::declare::check_workspace;
use model::{Code, Position, Problem};
use serde_json::{Map, Value, json};

use super::{Local, Reach};
use crate::client::{Sent, escape, query, read_all, read_json};

/// Which row is meant.
pub struct At<'a> {
    pub concept: &'a str,
    pub id: &'a str,
    pub space: Option<&'a str>,
    /// The version it must have to be written.
    pub if_match: Option<Position>,
}

impl At<'_> {
    fn expect(&self) -> Expect {
        self.if_match.map_or(Expect::Anything, Expect::Version)
    }
}

/// How a row is written from the command line.
#[derive(Clone, Copy)]
pub enum How {
    Put,
    Patch,
}

impl Reach {
    pub async fn entity(&self, at: &At<'_>, as_of: Option<&str>, lately: &Lately) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let place = (at.concept, at.space, at.id);
                match as_of {
                    None => Ok(local.tenant.entity_lately(&local.caller, place, lately)?.1),
                    Some(text) => {
                        Ok(local.tenant.entity_as_of(&local.caller, place, AsOf::parse(text)?)?.to_json())
                    }
                }
            }
            Reach::Remote(client) => {
                let asked = query(&[
                    ("as_of", as_of),
                    ("space", at.space),
                    ("in_state_since", lately.in_state_since.as_deref()),
                    ("transitions", lately.transitions.as_deref()),
                    ("window", lately.window.as_deref()),
                ]);
                client.get(&format!("{}{asked}", path(at))).await
            }
        }
    }

    /// Writes a row.
    pub async fn write_entity(&self, at: &At<'_>, how: How, value: &Value) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => local.write(at, how, value.clone()).await,
            Reach::Remote(client) => {
                let method = match how {
                    How::Put => Method::PUT,
                    How::Patch => Method::PATCH,
                };
                let path = format!("{}{}", path(at), query(&[("space", at.space)]));
                let body = Sent::Whole("application/json", value.to_string().into_bytes());
                read_json(client.send_if(method, &path, body, at.if_match).await?).await
            }
        }
    }

    pub async fn delete_entity(&self, at: &At<'_>) -> Result<(), Problem> {
        match self {
            Reach::Local(local) => {
                let write = Write {
                    space: at.space.unwrap_or_default().to_owned(),
                    expect: at.expect(),
                    provenance: Provenance::api("cli"),
                    ..Write::of(at.concept, Some(at.id), Action::Delete)
                };
                local.tenant.write(&local.caller, write).await.map(drop)
            }
            Reach::Remote(client) => {
                let path = format!("{}{}", path(at), query(&[("space", at.space)]));
                client.send_if(Method::DELETE, &path, Sent::Nothing, at.if_match).await.map(drop)
            }
        }
    }

    /// One page of rows; the cursor of the next.
    pub async fn entities(
        &self,
        concept: &str,
        listing: &Listing,
    ) -> Result<(Vec<Value>, Option<String>), Problem> {
        match self {
            Reach::Local(local) => {
                let found = local.tenant.entities(&local.caller, concept, listing)?;
                Ok((found.rows, found.next))
            }
            Reach::Remote(client) => {
                let limit = listing.limit.to_string();
                let query = query(&[
                    ("space", listing.space.as_deref()),
                    ("filter", listing.filter.as_deref()),
                    ("limit", Some(&limit)),
                    ("cursor", listing.cursor.as_deref()),
                ]);
                let page: Value = client.get(&format!("/v1/entities/{}{query}", escape(concept))).await?;
                Ok(page_of(page, "entities"))
            }
        }
    }

    /// One page of a row's changes; the cursor of the next.
    pub async fn entity_history(
        &self,
        at: &At<'_>,
        cursor: Option<String>,
    ) -> Result<(Vec<Value>, Option<String>), Problem> {
        match self {
            Reach::Local(local) => {
                let cursor = cursor.and_then(|cursor| cursor.parse().ok());
                let paging = Paging { cursor, ..Paging::default() };
                let place = (at.concept, at.space, at.id);
                let page = local.tenant.entity_history(&local.caller, place, &paging)?;
                Ok((page.changes, page.next.map(|next| next.to_string())))
            }
            Reach::Remote(client) => {
                let query = query(&[("space", at.space), ("cursor", cursor.as_deref())]);
                let page: Value = client.get(&format!("{}/history{query}", path(at))).await?;
                Ok(page_of(page, "changes"))
            }
        }
    }

    /// Writes rows of an import, each by itself, many to a sync; one answer for each, in order.
    pub async fn import_entities(
        &self,
        concept: &str,
        space: Option<&str>,
        rows: Vec<Value>,
    ) -> Result<Vec<Result<Value, Problem>>, Problem> {
        match self {
            Reach::Local(local) => local.import(concept, space, rows).await,
            Reach::Remote(client) => {
                let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
                let body = Sent::Whole("application/x-ndjson", lines.into_bytes());
                let query = query(&[("space", space)]);
                let path = format!("/v1/entities/{}/import{query}", escape(concept));
                let answer = read_all(client.send(Method::POST, &path, body).await?).await?;
                let lines = answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                Ok(lines.map(line_of_import).collect())
            }
        }
    }

    /// Runs a query; `as_of` is what `asking` says of the past, as it was typed.
    pub async fn run_query(&self, name: &str, asking: Asking, as_of: Option<&str>) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.query(&local.caller, name, &asking)?.to_json()),
            Reach::Remote(client) => {
                let explain = asking.explain.then_some("1");
                let query =
                    query(&[("explain", explain), ("as_of", as_of), ("space", asking.space.as_deref())]);
                let path = format!("/v1/queries/{}{query}", escape(name));
                client.post(&path, &json!({ "args": asking.args })).await
            }
        }
    }

    /// Waits until the ledger is at this position, as every read over HTTP can; a directory that nobody else holds gets
    /// no further by waiting.
    pub async fn wait_for(&self, position: Option<Position>) -> Result<(), Problem> {
        let Some(position) = position else { return Ok(()) };
        match self {
            Reach::Local(local) if local.tenant.head() >= position => Ok(()),
            Reach::Local(local) => {
                let detail =
                    format!("the ledger is at position {}, not yet at {position}", local.tenant.head());
                Err(Problem::new(Code::PositionAhead, detail).hint("ask for what is there"))
            }
            Reach::Remote(client) => {
                let query = query(&[("min_position", Some(&position.to_string()))]);
                client.get::<Value>(&format!("/v1/concepts{query}")).await.map(drop)
            }
        }
    }

    pub async fn mutate(
        &self,
        name: &str,
        args: Map<String, Value>,
        space: Option<&str>,
    ) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => Ok(local.tenant.mutate(&local.caller, name, args, space).await?.to_json()),
            Reach::Remote(client) => {
                let path = format!("/v1/mutations/{}{}", escape(name), query(&[("space", space)]));
                client.post(&path, &json!({ "args": args })).await
            }
        }
    }

    /// Applies a workspace, or says what that would do.
    pub async fn apply(
        &self,
        workspace: &str,
        files: &BTreeMap<String, String>,
        dry_run: bool,
    ) -> Result<Value, Problem> {
        match self {
            Reach::Local(local) => {
                let definitions = check_workspace(files).definitions;
                let plan = match dry_run {
                    true => local.tenant.plan(workspace, definitions).await?,
                    false => local.tenant.apply(workspace, definitions).await?,
                };
                Ok(plan.to_json())
            }
            Reach::Remote(client) => {
                let path = if dry_run { "/v1/plan" } else { "/v1/apply" };
                client.post(path, &json!({ "workspace": workspace, "files": files })).await
            }
        }
    }
}

fn line_of_import(line: &[u8]) -> Result<Value, Problem> {
    let odd = |err: serde_json::Error| Problem::new(Code::Internal, format!("the server's answer: {err}"));
    let mut answer: Value = serde_json::from_slice(line).map_err(odd)?;
    match answer["error"].take() {
        Value::Null => Ok(answer),
        error => Err(Problem::new(Code::EntityInvalid, error["message"].as_str().unwrap_or_default())),
    }
}

impl Local {
    async fn import(
        &self,
        concept: &str,
        space: Option<&str>,
        rows: Vec<Value>,
    ) -> Result<Vec<Result<Value, Problem>>, Problem> {
        let catalog = self.tenant.catalog();
        let declared = catalog.concept(concept)?;
        let mut writing = Vec::with_capacity(rows.len());
        for row in rows {
            let write = sent::read(declared, row, true).map(|read| Write {
                space: read.space.or(space.map(str::to_owned)).unwrap_or_default(),
                provenance: Provenance { kind: "import".to_owned(), ..Provenance::api("cli") },
                ..Write::of(concept, read.id.as_deref(), Action::Put(read.fields))
            });
            let one = async move { self.tenant.write_queued(&self.caller, write?).await };
            writing.push((Box::pin(one), None));
        }
        // All are queued in their order before the first is waited for, so that one sync serves many.
        poll_fn(|cx| {
            for (one, done) in &mut writing {
                if let Poll::Ready(written) = one.as_mut().poll(cx) {
                    *done = Some(written);
                }
            }
            Poll::Ready(())
        })
        .await;
        let mut answers = Vec::with_capacity(writing.len());
        for (one, done) in writing {
            let written = match done {
                Some(written) => written,
                None => one.await,
            };
            answers.push(written.map(|written| written.to_json()));
        }
        Ok(answers)
    }

    async fn write(&self, at: &At<'_>, how: How, value: Value) -> Result<Value, Problem> {
        let catalog = self.tenant.catalog();
        let read = sent::read(catalog.concept(at.concept)?, value, false)?;
        let action = match how {
            How::Put => Action::Put(read.fields),
            How::Patch => Action::Patch(read.fields),
        };
        let write = Write {
            space: at.space.unwrap_or_default().to_owned(),
            expect: at.expect(),
            provenance: Provenance::api("cli"),
            ..Write::of(at.concept, Some(at.id), action)
        };
        Ok(self.tenant.write(&self.caller, write).await?.to_json())
    }
}

fn path(at: &At<'_>) -> String {
    format!("/v1/entities/{}/{}", escape(at.concept), escape(at.id))
}

fn page_of(mut page: Value, name: &str) -> (Vec<Value>, Option<String>) {
    let next = page["next"].as_str().map(str::to_owned);
    let rows = match page[name].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    };
    (rows, next)
}
