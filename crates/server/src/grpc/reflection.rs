//! Server reflection: clients ask which methods there are and what their messages look like.
//!
//! The descriptors are `proto/everwhen/v1/everwhen.binpb`, made from the proto file by any protoc (`--include_imports
//! --descriptor_set_out`), and `proto/grpc/standard.binpb`: health and reflection as gRPC itself declares them.

use axum::body::Body;
use axum::response::Response;
use hyper::body::Frame;
use model::Problem;
use tokio::sync::mpsc;

use super::proto::{Message, fields};
use super::{FRAMES_AHEAD, Incoming, framed, streamed, trailers};
use crate::aside;

pub const V1: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
pub const V1_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

const DESCRIPTORS: [&[u8]; 2] = [
    include_bytes!("../../../../proto/everwhen/v1/everwhen.binpb"),
    include_bytes!("../../../../proto/grpc/standard.binpb"),
];
pub const SERVICES: [&str; 3] =
    ["everwhen.v1.EverwhenService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
/// gRPC's number for what is not there.
const NOT_FOUND: u64 = 5;

/// The two versions have the same fields.
pub fn open(body: Body) -> Response {
    let (frames, outgoing) = mpsc::channel(FRAMES_AHEAD);
    aside::spawn(async move {
        let mut incoming = Incoming::of(body);
        let ended = loop {
            match incoming.next().await {
                Ok(Some(asked)) => match answer(&asked) {
                    Ok(answer) if frames.send(Frame::data(framed(&answer))).await.is_ok() => {}
                    Ok(_) => return,
                    Err(problem) => break Some(problem),
                },
                Ok(None) => break None,
                Err(problem) => break Some(problem),
            }
        };
        let _ = frames.send(Frame::trailers(trailers(ended.as_ref()))).await;
    });
    streamed(outgoing)
}

fn answer(asked: &[u8]) -> Result<Message, Problem> {
    let mut answer = Message::default();
    answer.bytes(2, asked);
    for (number, field) in fields(asked)? {
        match number {
            3 => {
                let name = field.text()?;
                described(&mut answer, files()?.into_iter().find(|file| file.name == name));
            }
            4 => {
                let symbol = field.text()?;
                described(&mut answer, files()?.into_iter().find(|file| file.declares(symbol)));
            }
            7 => answer.message(6, |list| {
                SERVICES.iter().for_each(|service| list.message(1, |message| message.text(1, service)));
            }),
            1 => {}
            _ => described(&mut answer, None),
        }
    }
    Ok(answer)
}

/// The file that was asked for; what it imports is asked for by name.
fn described(answer: &mut Message, file: Option<File>) {
    match file {
        Some(file) => answer.message(4, |message| message.bytes(1, file.bytes)),
        None => answer.message(7, |error| {
            error.number(1, NOT_FOUND);
            error.text(2, "there is nothing of that name");
        }),
    }
}

/// A file as its descriptor tells it.
struct File {
    name: &'static str,
    bytes: &'static [u8],
    /// What is declared in it, by whole names: messages, enums, services and methods.
    symbols: Vec<String>,
}

impl File {
    fn declares(&self, symbol: &str) -> bool {
        self.symbols.iter().any(|declared| declared == symbol.trim_start_matches('.'))
    }
}

/// Every file of the sets.
fn files() -> Result<Vec<File>, Problem> {
    let mut files = Vec::new();
    for set in DESCRIPTORS {
        for (_, file) in fields(set)? {
            let (bytes, mut symbols) = (file.bytes()?, Vec::new());
            collect(Kind::File, bytes, text(bytes, 2)?, &mut symbols)?;
            files.push(File { name: text(bytes, 1)?, bytes, symbols });
        }
    }
    Ok(files)
}

fn text(bytes: &'static [u8], number: u32) -> Result<&'static str, Problem> {
    let found = fields(bytes)?.into_iter().find(|(of, _)| *of == number);
    found.map_or(Ok(""), |(_, field)| field.text())
}

#[derive(Clone, Copy)]
enum Kind {
    File,
    Message,
    Service,
    /// Holds nothing that is asked for by name.
    Leaf,
}

/// The numbers are those of `google/protobuf/descriptor.proto`.
fn collect(kind: Kind, bytes: &'static [u8], scope: &str, symbols: &mut Vec<String>) -> Result<(), Problem> {
    for (number, field) in fields(bytes)? {
        let inner = match (kind, number) {
            (Kind::File, 4) | (Kind::Message, 3) => Kind::Message,
            (Kind::File, 6) => Kind::Service,
            (Kind::File, 5) | (Kind::Message, 2 | 4) | (Kind::Service, 2) => Kind::Leaf,
            _ => continue,
        };
        let name = format!("{scope}.{}", text(field.bytes()?, 1)?);
        collect(inner, field.bytes()?, &name, symbols)?;
        symbols.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_and_whatever_its_messages_name_is_described() {
        let files = files().unwrap();
        let found = |symbol: &str| files.iter().find(|file| file.declares(symbol)).map(|file| file.name);
        for service in SERVICES {
            assert!(found(service).is_some(), "{service}");
        }
        let cases = [
            ("everwhen.v1.EverwhenService.Publish", Some("everwhen/v1/everwhen.proto")),
            ("everwhen.v1.Subject", Some("everwhen/v1/everwhen.proto")),
            ("grpc.health.v1.Health", Some("grpc/health/v1/health.proto")),
            ("grpc.health.v1.HealthCheckResponse.ServingStatus", Some("grpc/health/v1/health.proto")),
            ("grpc.reflection.v1alpha.ServerReflection", Some("grpc/reflection/v1alpha/reflection.proto")),
            ("google.protobuf.Struct", Some("google/protobuf/struct.proto")),
            ("google.protobuf.Timestamp", Some("google/protobuf/timestamp.proto")),
            ("everwhen.v1.Nothing", None),
            ("everwhen.v1", None),
            ("", None),
        ];
        for (symbol, file) in cases {
            assert_eq!(found(symbol), file, "{symbol}");
        }
        for file in &files {
            for (_, imported) in fields(file.bytes).unwrap().into_iter().filter(|(number, _)| *number == 3) {
                let imported = imported.text().unwrap();
                assert!(files.iter().any(|file| file.name == imported), "{imported}");
            }
        }
    }
}
