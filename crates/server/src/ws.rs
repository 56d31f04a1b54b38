//! `/v1/ws`: one WebSocket that carries seed 000's frames and seed 004's messages (contracts §13, §14; docs/streams.md).
//!
//! ```text
//!   client ─▶ {"message_id","payload":{"subscribe"|"unsubscribe"|"consume"|"credit"|"ack"|"nack"|"extend"|"reject":…}}
//!   server ─▶ {"message_id", "payload":{"ok"|"error":…}}               the answer to each, in order
//!   server ─▶ {"message_id":"evt-…","payload":{"event"|"delivery":…}}  what is heard
//!   client ─▶ {"type":"list_automations"}     server ─▶ {"type":"automation_list", …}
//! ```

mod automations;
mod frames;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::SinkExt;
use model::{Code, Problem};
use serde_json::json;
use tokio::time::timeout;

use crate::caller::Call;
use crate::connection::Held;
use crate::problem::Answer;
use crate::session::Session;
use crate::session::outbox::Taken;
use crate::stream::RECONNECT_AFTER_MS;
use crate::{Doors, aside};
use frames::Frames;

/// The name that browsers must offer when they offer their token beside it.
const PROTOCOL: &str = "everwhen.v1";
/// Largest message, and largest of the frames it comes in.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// What a connection that says nothing holds.
const READ_BYTES: usize = 2 << 10;
/// Frames that leave with one write.
const FRAMES_AT_ONCE: usize = 64;
/// Signs of life that may stay unanswered.
const SILENCE_MAX: u32 = 3;
/// How long a client may take to say goodbye, too.
const GOODBYE: std::time::Duration = std::time::Duration::from_secs(1);

/// Why a session ends, in the numbers of RFC 6455.
mod ends {
    pub const GOING_AWAY: u16 = 1001;
    pub const PROTOCOL: u16 = 1002;
    pub const NOT_UTF8: u16 = 1007;
    pub const POLICY: u16 = 1008;
    pub const TOO_LARGE: u16 = 1009;
    pub const TOO_SLOW: u16 = 1013;
}

pub async fn open(mut call: Call) -> Answer {
    call.params(&[])?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut call.head, &()).await.map_err(|_| {
        Problem::new(Code::RequestInvalid, "this path speaks WebSocket")
            .hint("ask with \"upgrade: websocket\"; docs/streams.md shows how")
    })?;
    let held = call.head.extensions.get::<Held>().cloned();
    let session = Session::open(&call, Frames);
    let upgrade = upgrade
        .protocols([PROTOCOL])
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0);
    Ok(upgrade.on_upgrade(move |socket| async move {
        serve(socket, session).await;
        drop(held);
    }))
}

/// Until either side ends it.
async fn serve(mut socket: WebSocket, mut session: Session<Frames>) {
    let (doors, out) = (session.doors.clone(), session.out.clone());
    // Both wait through all turns: an event for a thousand clients is no time to sign in at one place a thousand times.
    let (mut closing, mut over) = (std::pin::pin!(doors.closing()), std::pin::pin!(session.over()));
    let mut silence = 0;
    loop {
        let turn = timeout(doors.patience.ping, async {
            tokio::select! {
                () = &mut closing => Turn::Closing,
                why = &mut over => Turn::Send(Taken::Over(why)),
                said = socket.recv() => Turn::Said(said),
                taken = out.next() => Turn::Send(taken),
            }
        });
        let sent = match turn.await.unwrap_or(Turn::Quiet) {
            Turn::Closing => return farewell(&mut socket, &doors, shutdown()).await,
            Turn::Said(Some(Ok(said))) => {
                silence = 0;
                match said {
                    Message::Text(text) => answer(&mut socket, &mut session, text.as_bytes()).await,
                    Message::Binary(bytes) => answer(&mut socket, &mut session, &bytes).await,
                    Message::Close(_) => return goodbye(&mut socket).await,
                    Message::Ping(_) | Message::Pong(_) => Ok(()),
                }
            }
            Turn::Said(Some(Err(error))) => return refuse(&mut socket, fault(&error)).await,
            // Cut off.
            Turn::Said(None) => return,
            Turn::Send(Taken::Frame(first)) => send(&mut socket, &session, first).await,
            Turn::Send(Taken::Over(why)) => Err(End::Because(why)),
            Turn::Quiet if silence == SILENCE_MAX => return,
            Turn::Quiet => {
                silence += 1;
                live(&mut socket, &session).await
            }
        };
        match sent {
            Ok(()) => {}
            Err(End::Gone) => return,
            Err(End::Because(why)) => return farewell(&mut socket, &doors, because(&why)).await,
        }
    }
}

enum Turn {
    Closing,
    Said(Option<Result<Message, axum::Error>>),
    Send(Taken<String>),
    Quiet,
}

enum End {
    Gone,
    Because(Problem),
}

/// The answer stands before everything that is heard because of the request.
async fn answer(socket: &mut WebSocket, session: &mut Session<Frames>, said: &[u8]) -> Result<(), End> {
    let answer = frames::answer(session, said).await;
    within(session, socket.send(text(answer))).await
}

/// As much as is there, with one write. A token that is no more hears nothing more.
async fn send(socket: &mut WebSocket, session: &Session<Frames>, first: String) -> Result<(), End> {
    session.is_known().map_err(End::Because)?;
    let rest = std::iter::from_fn(|| session.out.try_next()).take(FRAMES_AT_ONCE - 1);
    let frames: Vec<Message> = std::iter::once(first).chain(rest).map(text).collect();
    within(session, async {
        for frame in frames {
            socket.feed(frame).await?;
        }
        socket.flush().await
    })
    .await
}

async fn live(socket: &mut WebSocket, session: &Session<Frames>) -> Result<(), End> {
    session.is_known().map_err(End::Because)?;
    within(session, socket.send(Message::Ping(Default::default()))).await
}

/// A client that reads nothing is not waited for any longer than others are.
async fn within(
    session: &Session<Frames>,
    sending: impl Future<Output = Result<(), axum::Error>>,
) -> Result<(), End> {
    tokio::select! {
        sent = timeout(session.doors.patience.farewell, sending) => {
            sent.ok().and_then(Result::ok).ok_or(End::Gone)
        }
        why = session.out.over() => Err(End::Because(why)),
    }
}

fn text(frame: String) -> Message {
    Message::Text(Utf8Bytes::from(frame))
}

/// What a client is told last, and the number and word of the end.
type Last = (String, u16, String);

fn because(why: &Problem) -> Last {
    let number = if why.code() == Code::StreamSlow { ends::TOO_SLOW } else { ends::POLICY };
    (frames::refused(why), number, why.code().as_str().to_owned())
}

/// What was wrong with what came, by the words of the library, which has no other way to tell; `None` when nobody is left to be
/// told.
fn fault(error: &axum::Error) -> Option<(u16, String)> {
    let said = error.to_string();
    let gone = ["Connection reset without closing handshake", "Remote sent after having closed"];
    if said.starts_with("Space limit exceeded") {
        Some((ends::TOO_LARGE, format!("a message has at most {MESSAGE_BYTES_MAX} bytes")))
    } else if said.starts_with("UTF-8 encoding error") {
        Some((ends::NOT_UTF8, "a text message is UTF-8".to_owned()))
    } else {
        let what = said.strip_prefix("WebSocket protocol error: ").filter(|what| !gone.contains(what))?;
        Some((ends::PROTOCOL, what.to_owned()))
    }
}

/// The rest of the message is not read, and what is closed over it is reset: there is time to hear why.
async fn refuse(socket: &mut WebSocket, fault: Option<(u16, String)>) {
    let Some((code, reason)) = fault else { return };
    let close = CloseFrame { code, reason: reason.into() };
    let _ = timeout(GOODBYE, socket.send(Message::Close(Some(close)))).await;
    let _ = timeout(GOODBYE, std::future::pending::<()>()).await;
}

/// Readable as either kind of message.
fn shutdown() -> Last {
    let after = json!({ "reconnect_after_ms": RECONNECT_AFTER_MS });
    let frame = json!({
        "type": "server.shutdown", "reconnect_after_ms": RECONNECT_AFTER_MS,
        "message_id": "server.shutdown", "payload": {"server.shutdown": after},
    });
    (frame.to_string(), ends::GOING_AWAY, "server.shutdown".to_owned())
}

async fn farewell(socket: &mut WebSocket, doors: &Doors, (frame, code, reason): Last) {
    let close = CloseFrame { code, reason: reason.into() };
    let told = async {
        socket.send(text(frame)).await?;
        socket.send(Message::Close(Some(close))).await
    };
    if matches!(timeout(doors.patience.farewell, told).await, Ok(Ok(()))) {
        goodbye(socket).await;
    }
}

/// Reads until the other side has closed, so that what it was told is not lost with the connection.
async fn goodbye(socket: &mut WebSocket) {
    let rest = async { while let Some(Ok(_)) = socket.recv().await {} };
    let _ = timeout(GOODBYE, rest).await;
}

/// Tells the sessions of a tenant what was done to an automation.
#[derive(Clone)]
pub struct Told {
    pub tenant: String,
    pub message: serde_json::Value,
    /// The session that did it and has its answer, if it was one.
    pub by: Option<u64>,
}

/// Those who said `subscribe_automations` hear it; nobody may.
pub type Automations = tokio::sync::broadcast::Sender<Arc<Told>>;

pub fn channel() -> Automations {
    tokio::sync::broadcast::channel(256).0
}

/// After a plan was applied: one message for each automation in it.
pub async fn told_of(doors: &Arc<Doors>, tenant: &engine::Tenant, plan: &engine::Plan) {
    let kinds = [("automation_created", &plan.added), ("automation_updated", &plan.changed)];
    if doors.automations.receiver_count() == 0 {
        return;
    }
    let tell = |message| {
        drop(doors.automations.send(Arc::new(Told { tenant: tenant.name().to_owned(), message, by: None })))
    };
    for (kind, names) in kinds {
        for name in names.iter().filter_map(|name| name.strip_prefix("automation ")) {
            let (tenant, name) = (tenant.clone(), name.to_owned());
            if let Ok(automation) = aside::blocking(move || tenant.automation(&name)).await {
                tell(automations::shown(kind, automation));
            }
        }
    }
    for name in plan.removed.iter().filter_map(|name| name.strip_prefix("automation ")) {
        tell(json!({"type": "automation_deleted", "automationId": name}));
    }
}

/// After one automation was made or changed.
pub fn told_one(doors: &Doors, tenant: &engine::Tenant, kind: &str, automation: &serde_json::Value) {
    let message = automations::shown(kind, automation.clone());
    let _ = doors.automations.send(Arc::new(Told { tenant: tenant.name().to_owned(), message, by: None }));
}
