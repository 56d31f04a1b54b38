//! The bidirectional `Session`: seed 000's SubscribeMsg and EventNotification over gRPC, and deliveries of groups.

use axum::response::Response;
use bytes::Bytes;
use engine::Delivery;
use hyper::body::Frame;
use model::Problem;
use model::event::Event;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{FRAMES_AHEAD, Incoming, framed, messages, streamed, trailers};
use crate::aside;
use crate::caller::Call;
use crate::session::outbox::Taken;
use crate::session::{Session, Wire, requests};
use crate::stream::RECONNECT_AFTER_MS;

pub struct Notifications;

impl Wire for Notifications {
    type Frame = Bytes;

    fn event(&self, subscription: &str, event: &Event) -> (Bytes, usize) {
        sized(framed(&messages::notification(subscription, event)))
    }

    fn delivery(&self, subscription: &str, delivery: &Delivery) -> (Bytes, usize) {
        sized(framed(&messages::delivered(subscription, delivery)))
    }

    fn problem(&self, _: &str, problem: &Problem) -> (Bytes, usize) {
        sized(framed(&messages::refused("", problem)))
    }
}

fn sized(frame: Bytes) -> (Bytes, usize) {
    let bytes = frame.len();
    (frame, bytes)
}

pub fn open(call: Call) -> Response {
    let session = Session::open(&call, Notifications);
    let (frames, body) = mpsc::channel(FRAMES_AHEAD);
    let incoming = Incoming::of(call.body);
    aside::spawn(async move {
        let ended = serve(session, incoming, &frames).await;
        let _ = frames.send(Frame::trailers(trailers(ended.err().as_ref()))).await;
    });
    streamed(body)
}

/// Until either side ends it. A client that has said all it wants to say may still listen.
async fn serve(
    mut session: Session<Notifications>,
    mut incoming: Incoming,
    frames: &mpsc::Sender<Frame<Bytes>>,
) -> Result<(), Problem> {
    let (doors, out) = (session.doors.clone(), session.out.clone());
    let (mut said_all, mut over) = (false, std::pin::pin!(session.over()));
    loop {
        let turn = timeout(doors.patience.ping, async {
            tokio::select! {
                () = doors.closing() => Turn::Closing,
                why = &mut over => Turn::Send(Taken::Over(why)),
                () = frames.closed() => Turn::Gone,
                said = incoming.next(), if !said_all => Turn::Said(said),
                taken = out.next() => Turn::Send(taken),
            }
        });
        let frame = match turn.await {
            Ok(Turn::Closing) => {
                let last = framed(&messages::shutdown(RECONNECT_AFTER_MS));
                let _ = timeout(doors.patience.farewell, frames.send(Frame::data(last))).await;
                return Ok(());
            }
            Ok(Turn::Gone) => return Ok(()),
            Ok(Turn::Said(Ok(Some(said)))) => answer(&mut session, &said).await,
            Ok(Turn::Said(Ok(None))) => {
                said_all = true;
                continue;
            }
            Ok(Turn::Said(Err(problem))) | Ok(Turn::Send(Taken::Over(problem))) => return Err(problem),
            Ok(Turn::Send(Taken::Frame(frame))) => {
                session.is_known()?;
                frame
            }
            Err(_) => {
                session.is_known()?;
                continue;
            }
        };
        tokio::select! {
            sent = frames.send(Frame::data(frame)) => if sent.is_err() { return Ok(()) },
            why = out.over() => return Err(why),
        }
    }
}

enum Turn {
    Closing,
    Gone,
    Said(Result<Option<Bytes>, Problem>),
    Send(Taken<Bytes>),
}

async fn answer(session: &mut Session<Notifications>, said: &[u8]) -> Bytes {
    let (id, answer) = match messages::request(said) {
        Ok((id, payload)) => (id, requests::request(session, payload).await),
        Err(problem) => (String::new(), Err(problem)),
    };
    framed(&messages::answer(&id, &answer))
}
