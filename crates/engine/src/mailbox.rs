//! Where commands wait for their tenant's writer, and how it takes a batch of them: whatever queued during the last sync.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use model::Problem;
use tokio::sync::oneshot;

use crate::command::{Answer, Command};
use crate::deliver::lock;
use crate::tray::{Place, Tray};
use crate::writer::{BATCH_BYTES_MAX, BATCH_COMMANDS_MAX};

/// Who hears the answer.
pub enum Reply {
    Caller(oneshot::Sender<Result<Answer, Problem>>),
    Tray(Place),
}

pub type Pending = oneshot::Receiver<Result<Answer, Problem>>;

#[derive(Default)]
pub struct Mailbox {
    queue: Mutex<VecDeque<Letter>>,
}

struct Letter {
    command: Command,
    reply: Reply,
    /// Who sent it, as far as fairness goes.
    source: u64,
}

impl Mailbox {
    pub fn push(&self, command: Command) -> Pending {
        let (reply, pending) = oneshot::channel();
        self.post(command, Reply::Caller(reply));
        pending
    }

    pub fn post(&self, command: Command, reply: Reply) {
        let source = source_of(&command);
        lock(&self.queue).push_back(Letter { command, reply, source });
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }

    /// The next batch, in order of arrival, within the limits of R5. While others wait, one source gets at most half of
    /// it; the rest of its letters keep their place for the next.
    pub fn take(&self) -> (Vec<Command>, Vec<Reply>) {
        let mut queue = lock(&self.queue);
        let crowded = queue.len() > BATCH_COMMANDS_MAX / 2;
        let alone = !crowded || queue.iter().all(|letter| letter.source == queue[0].source);
        let mut share: HashMap<u64, usize> = HashMap::new();
        let many = queue.len().min(BATCH_COMMANDS_MAX);
        let (mut commands, mut replies) = (Vec::with_capacity(many), Vec::with_capacity(many));
        let mut left = VecDeque::new();
        let mut bytes = 0;
        while let Some(letter) = queue.pop_front() {
            bytes += size(&letter.command);
            if !commands.is_empty() && bytes > BATCH_BYTES_MAX || commands.len() == BATCH_COMMANDS_MAX {
                left.push_back(letter);
                break;
            }
            if !alone && over_half(&mut share, letter.source) {
                left.push_back(letter);
                continue;
            }
            commands.push(letter.command);
            replies.push(letter.reply);
        }
        left.into_iter().rev().for_each(|letter| queue.push_front(letter));
        (commands, replies)
    }
}

/// Answers all of a batch. Who looks for many answers together is told after the last.
pub fn answer(replies: Vec<Reply>, answers: impl Iterator<Item = Result<Answer, Problem>>) {
    let mut trays: Vec<Arc<Tray>> = Vec::new();
    for (reply, answer) in replies.into_iter().zip(answers) {
        match reply {
            // Whoever asked may be gone.
            Reply::Caller(reply) => _ = reply.send(answer),
            Reply::Tray(place) => {
                let known = |tray: &Arc<Tray>| trays.iter().any(|other| Arc::ptr_eq(other, tray));
                let tray = place.fill(answer).filter(|tray| !known(tray));
                trays.extend(tray);
            }
        }
    }
    trays.iter().for_each(|tray| tray.ring());
}

/// Publishes and writes are told apart by their actor; everything else keeps the engine going and counts as one.
fn source_of(command: &Command) -> u64 {
    let actor = match command {
        Command::Publish { events } => events.first().map(|event| event.event.envelope.actor.as_str()),
        Command::Write { writes } => writes.first().map(|write| write.actor.as_str()),
        _ => None,
    };
    // FNV-1a: quick, and two that share a half batch by chance do no harm.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    actor.unwrap_or_default().bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn over_half(share: &mut HashMap<u64, usize>, source: u64) -> bool {
    let count = share.entry(source).or_default();
    *count += 1;
    *count > BATCH_COMMANDS_MAX / 2
}

fn size(command: &Command) -> usize {
    match command {
        Command::Publish { events } => events
            .iter()
            .map(|event| {
                event.record.data.len() + event.record.body.as_ref().map_or(0, |body| body.json.len())
            })
            .sum(),
        // The event of a change carries the row several times.
        Command::Write { writes } => writes.len() * 2_048,
        _ => 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(mailbox: &Mailbox, source: u64) {
        // What a command is does not matter here, only who sent it.
        let (reply, _) = oneshot::channel();
        let (command, reply) = (Command::Unhalt { name: source.to_string() }, Reply::Caller(reply));
        lock(&mailbox.queue).push_back(Letter { command, reply, source });
    }

    fn sources(mailbox: &Mailbox) -> Vec<String> {
        let name = |command: &Command| match command {
            Command::Unhalt { name } => name.clone(),
            _ => String::new(),
        };
        mailbox.take().0.iter().map(name).collect()
    }

    #[test]
    fn one_source_gets_half_a_batch_while_another_waits_and_all_of_it_alone() {
        let mailbox = Mailbox::default();
        (0..3 * BATCH_COMMANDS_MAX).for_each(|_| letter(&mailbox, 1));
        letter(&mailbox, 2);
        let first = sources(&mailbox);
        assert_eq!(first.iter().filter(|s| *s == "1").count(), BATCH_COMMANDS_MAX / 2);
        assert_eq!(first.last().map(String::as_str), Some("2"), "the late one does not wait for the flood");
        assert_eq!(sources(&mailbox).len(), BATCH_COMMANDS_MAX, "alone again");
    }
}
