//! Server reflection: clients ask which methods there are and what their messages look like.
//!
//! The descriptors are `proto/everwhen/v1/everwhen.binpb`, made from the proto file by any protoc (`--descriptor_set_out`).

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

const DESCRIPTORS: &[u8] = include_bytes!("../../../../proto/everwhen/v1/everwhen.binpb");
pub const SERVICES: [&str; 3] =
    ["everwhen.v1.EverwhenService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
const OWN: &str = "everwhen/v1/everwhen.proto";
const PACKAGE: &str = "everwhen.v1.";
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
            3 => described(
                &mut answer,
                files()?.into_iter().filter(|(name, _)| field.text() == Ok(*name)).collect(),
            ),
            4 => {
                let own = field.text()?.starts_with(PACKAGE);
                described(
                    &mut answer,
                    files()?.into_iter().filter(|(name, _)| own && *name == OWN).collect(),
                );
            }
            7 => answer.message(6, |list| {
                SERVICES.iter().for_each(|service| list.message(1, |message| message.text(1, service)));
            }),
            1 => {}
            _ => described(&mut answer, Vec::new()),
        }
    }
    Ok(answer)
}

/// The file that was asked for; what it imports is asked for by name.
fn described(answer: &mut Message, files: Vec<(&str, &[u8])>) {
    if files.is_empty() {
        answer.message(7, |error| {
            error.number(1, NOT_FOUND);
            error.text(2, "there is nothing of that name");
        });
        return;
    }
    answer.message(4, |message| files.iter().for_each(|(_, bytes)| message.bytes(1, bytes)));
}

/// Every file of the set, by name.
fn files() -> Result<Vec<(&'static str, &'static [u8])>, Problem> {
    let mut files = Vec::new();
    for (_, file) in fields(DESCRIPTORS)? {
        let bytes = file.bytes()?;
        let name = fields(bytes)?.into_iter().find(|(number, _)| *number == 1);
        files.push((name.map_or(Ok(""), |(_, name)| name.text())?, bytes));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_hold_our_file_and_what_it_imports() {
        let names: Vec<&str> = files().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["google/protobuf/struct.proto", "google/protobuf/timestamp.proto", OWN]);
    }
}
