//! `everwhen db`: a fresh copy of the derived state for SQL tools, so that nobody reads the live file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::{Code, Problem};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};
use serde_json::{Map, Value, json};

use super::show;
use crate::output::Stop;
use crate::session::Session;

/// Copy the derived state for SQL tools, or query the copy
///
/// Prints the path of a fresh copy of state.db; the live file is not for foreign readers. With --sql the query runs
/// on the copy, read-only, and the copy is removed. The tables are the engine's own and change with its versions.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  sqlite3 $(everwhen db)
  everwhen db --sql 'select name from sqlite_schema'")]
pub struct Args {
    /// Run this query on the copy
    #[arg(long, value_name = "SQL")]
    sql: Option<String>,
    /// Where the copy goes, a file that is not there yet [default: the folder for temporary files]
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    to: Option<PathBuf>,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    let tenant = session.served_tenant()?;
    let live = session.data()?.join("tenants").join(&tenant).join("state.db");
    if !live.exists() {
        return Err(Problem::new(Code::StoreNotFound, format!("there is no \"{}\"", live.display()))
            .hint("name the directory with --data; the file is made when the tenant is first opened")
            .into());
    }
    let copy = args.to.clone().unwrap_or_else(|| passing(&tenant));
    claim(&copy)?;
    make_copy(&live, &copy).map_err(|error| {
        let _ = std::fs::remove_file(&copy);
        failed(&error)
    })?;
    let Some(sql) = &args.sql else {
        return session.out.result(&json!({ "path": copy }), || copy.display().to_string());
    };
    let rows = query(&copy, sql);
    let _ = std::fs::remove_file(&copy);
    print(&rows.map_err(|error| refused(&error))?, session)
}

/// A name among the temporary files. What an earlier process of the same number left there was a copy, too.
fn passing(tenant: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("everwhen-{tenant}-{}.db", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Makes the file that the copy goes into: one that is there, say a ledger, is never written over.
fn claim(copy: &Path) -> Result<(), Problem> {
    let made = std::fs::File::options().write(true).create_new(true).open(copy);
    let Err(error) = made else { return Ok(()) };
    let name = copy.display();
    Err(match error.kind() {
        ErrorKind::AlreadyExists => Problem::new(Code::StoreExists, format!("\"{name}\" is there already"))
            .hint("name a file that does not exist yet"),
        kind => {
            let code = match kind {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::StorageFull,
                _ => Code::StorageReadOnly,
            };
            Problem::new(code, format!("\"{name}\" cannot be made: {error}"))
                .hint("name a file in a folder that is there and that you may write")
        }
    })
}

/// SQLite's own backup sees one consistent state, also while a server writes.
fn make_copy(live: &Path, copy: &Path) -> rusqlite::Result<()> {
    let from = Connection::open_with_flags(
        live,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    from.busy_timeout(Duration::from_secs(5))?;
    let mut to = Connection::open(copy)?;
    rusqlite::backup::Backup::new(&from, &mut to)?.run_to_completion(
        1_000,
        Duration::from_millis(1),
        None,
    )?;
    to.pragma_update(None, "journal_mode", "delete")
}

/// Column names and rows.
struct Rows {
    names: Vec<String>,
    rows: Vec<Vec<Value>>,
}

fn query(copy: &Path, sql: &str) -> rusqlite::Result<Rows> {
    let connection = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut statement = connection.prepare(sql)?;
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let read = |row: &Row<'_>| (0..names.len()).map(|i| row.get_ref(i).map(to_json)).collect();
    let rows = statement.query_map([], read)?.collect::<rusqlite::Result<_>>()?;
    Ok(Rows { names, rows })
}

fn to_json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => json!(n),
        ValueRef::Real(n) => json!(n),
        ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => json!(model::id::hex(bytes)),
        },
    }
}

fn print(Rows { names, rows }: &Rows, session: &Session) -> Result<(), Stop> {
    if session.out.json {
        for row in rows {
            let object: Map<String, Value> = names.iter().cloned().zip(row.iter().cloned()).collect();
            session.out.line(&Value::Object(object).to_string())?;
        }
        return session.out.flush();
    }
    let heading: Vec<&str> = names.iter().map(String::as_str).collect();
    let cells = rows.iter().map(|row| row.iter().map(show::cell).collect()).collect();
    show::table(&session.out, &heading, cells, "no rows")
}

/// Only what SQLite finds wrong with the data itself is damage.
fn failed(error: &rusqlite::Error) -> Problem {
    let code = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Code::StorageFull,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            Code::StorageReadOnly
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Code::StoreLocked,
        _ => Code::StorageFailed,
    };
    Problem::new(code, format!("the copy failed: {error}"))
}

fn refused(error: &rusqlite::Error) -> Problem {
    Problem::new(Code::UsageInvalid, format!("the query failed: {error}"))
        .hint("everwhen db --sql 'select name from sqlite_schema' lists the tables")
}
