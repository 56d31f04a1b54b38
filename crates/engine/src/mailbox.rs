//! Where commands wait for their tenant's writer, and how it takes a batch of them: whatever queued during the last sync.

use std::collections::VecDeque;
use std::sync::Mutex;

use model::Problem;
use tokio::sync::oneshot;

use crate::command::{Answer, Command};
use crate::deliver::lock;
use crate::writer::{BATCH_BYTES_MAX, BATCH_COMMANDS_MAX};

pub type Reply = oneshot::Sender<Result<Answer, Problem>>;
pub type Pending = oneshot::Receiver<Result<Answer, Problem>>;

#[derive(Default)]
pub struct Mailbox {
    queue: Mutex<VecDeque<(Command, Reply)>>,
}

impl Mailbox {
    pub fn push(&self, command: Command) -> Pending {
        let (reply, pending) = oneshot::channel();
        lock(&self.queue).push_back((command, reply));
        pending
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }

    /// The next batch, in order of arrival, within the limits of R5.
    pub fn take(&self) -> (Vec<Command>, Vec<Reply>) {
        let mut queue = lock(&self.queue);
        let mut bytes = 0;
        let mut count = 0;
        for (command, _) in queue.iter().take(BATCH_COMMANDS_MAX) {
            bytes += size(command);
            if count > 0 && bytes > BATCH_BYTES_MAX {
                break;
            }
            count += 1;
        }
        queue.drain(..count).unzip()
    }
}

fn size(command: &Command) -> usize {
    match command {
        Command::Publish { events, .. } => events
            .iter()
            .map(|event| {
                event.record.data.len() + event.record.body.as_ref().map_or(0, |body| body.json.len())
            })
            .sum(),
        _ => 256,
    }
}
