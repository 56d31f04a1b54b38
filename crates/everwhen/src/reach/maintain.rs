//! The care of whole directories: what the engine's maintenance does here, or asks of the server that holds it.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use engine::import::Importer;
use engine::maintain;
use hyper::Method;
use model::{Code, Position, Problem};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Reach;
use crate::client::lines::Lines;
use crate::client::{Sent, read_json};
use crate::output::Stop;
use crate::session::{Place, Session};

/// Checks a directory's files, beside whoever holds them, or asks a server to. A tenant that was named is the only one.
pub async fn verify(session: &Session, quick: bool) -> Result<Value, Problem> {
    let report = verify_all(session, quick).await?;
    let Some(name) = session.named_tenant()? else { return Ok(report) };
    let all = report["tenants"].as_array().into_iter().flatten();
    let Some(tenant) = all.into_iter().find(|tenant| tenant["tenant"] == name.as_str()) else {
        return Err(Problem::new(Code::NotFound, format!("there is no tenant \"{name}\" to check"))
            .hint("without --tenant all are checked"));
    };
    Ok(json!({ "ok": tenant["ok"], "tenants": [tenant] }))
}

async fn verify_all(session: &Session, quick: bool) -> Result<Value, Problem> {
    match session.place()? {
        Place::Server(url) => {
            let client = session.client(&url, &session.tenant()?)?;
            client.get(if quick { "/v1/verify?quick=true" } else { "/v1/verify" }).await
        }
        Place::Directory(data) => {
            let data = existing(data)?;
            let bar = session.out.progress("verify", 1);
            aside(move || {
                let report = maintain::verify(&data, quick, &mut |done, total| {
                    bar.set_length(total);
                    bar.set_position(done);
                });
                bar.finish_and_clear();
                Ok(report?.to_json())
            })
            .await
        }
    }
}

/// Copies the sound part of a directory into a new one.
pub async fn salvage(session: &Session, to: &Path) -> Result<Value, Problem> {
    let (data, to) = (existing(session.data()?)?, to.to_owned());
    aside(move || Ok(maintain::salvage(&data, &to)?.to_json())).await
}

/// Makes the data directory out of a backup.
pub async fn restore(session: &Session, from: &Path) -> Result<Value, Problem> {
    let (from, data) = (from.to_owned(), session.data()?);
    aside(move || {
        let mut report = maintain::restore(&from, &data)?.to_json();
        report["data"] = json!(data);
        Ok(report)
    })
    .await
}

/// Long work on files, on a thread of its own: a signal must still be heard.
pub(super) async fn aside(
    work: impl FnOnce() -> Result<Value, Problem> + Send + 'static,
) -> Result<Value, Problem> {
    let died = |error| Err(Problem::new(Code::Internal, format!("the work did not end: {error}")));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(died)
}

pub(super) fn existing(data: PathBuf) -> Result<PathBuf, Problem> {
    if data.is_dir() {
        return Ok(data);
    }
    Err(Problem::new(Code::StoreNotFound, format!("there is no data directory \"{}\"", data.display()))
        .hint(format!("name another with --data, or make this one: everwhen init --data {}", data.display())))
}

impl Reach {
    /// Erases the content of events; how many had some.
    pub async fn erase(&self, positions: &[Position]) -> Result<u64, Problem> {
        match self {
            Reach::Local(local) => local.tenant.erase(positions).await,
            Reach::Remote(client) => {
                let answer: Value = client.post("/v1/erase", &json!({ "positions": positions })).await?;
                Ok(answer["erased"].as_u64().unwrap_or_default())
            }
        }
    }

    /// Copies the whole directory while it is in use. A server writes to its own machine's disk; a path of this machine means
    /// nothing to one that is `far`.
    pub async fn backup(&self, to: &Path, far: bool) -> Result<Value, Problem> {
        let wrong = |error| Problem::new(Code::UsageInvalid, format!("\"{}\": {error}", to.display()));
        let to = if far { to.to_owned() } else { std::path::absolute(to).map_err(wrong)? };
        match self {
            Reach::Local(local) => Ok(maintain::backup(&local.engine, &to).await?.to_json()),
            Reach::Remote(client) => client.post("/v1/backup", &json!({ "to": to })).await,
        }
    }

    /// Takes the lines of an export; the answer is `{"imported","duplicates"}`. `again` stores also what is here.
    pub async fn import(
        &self,
        mut lines: mpsc::Receiver<Bytes>,
        again: bool,
        session: &Session,
    ) -> Result<Value, Problem> {
        let bar = session.out.progress("lines", 0);
        match self {
            Reach::Remote(client) => {
                let path = if again { "/v1/import?again=true" } else { "/v1/import" };
                read_json(client.send(Method::POST, path, Sent::Lines(lines)).await?).await
            }
            Reach::Local(local) => {
                let importer = Importer::new(local.tenant.clone());
                let mut importer = if again { importer.again() } else { importer };
                while let Some(line) = lines.recv().await {
                    importer.line(&line).await?;
                    bar.inc(1);
                }
                bar.finish_and_clear();
                Ok(importer.finish().await?.to_json())
            }
        }
    }

    /// Prints every record from a position on, `{"position","time","k","v"}` and its data, gapless.
    pub async fn records(&self, from: Position, session: &Session) -> Result<(), Stop> {
        match self {
            Reach::Local(local) => maintain::records(&local.tenant, from, |record| session.out.line(record))?,
            Reach::Remote(client) => {
                let path = format!("/v1/records?from={from}");
                let mut lines = Lines::new(client.send(Method::GET, &path, Sent::Nothing).await?);
                while let Some(line) = lines.next().await? {
                    session.out.line(&line)?;
                }
            }
        }
        session.out.flush()
    }
}
