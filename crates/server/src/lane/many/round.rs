//! The rounds of the thread that serves many: who is heard, what is posted, who is answered, and whom nobody waits for any more.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use engine::authority::Grant;
use engine::tray::{Laid, Tray};
use engine::{Caller, Outcome, Post, Posted, Tenant};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use model::{Code, Problem, Timestamp};
use tokio::sync::watch;

use super::guest::{Came, Doing, Guest};
use super::lone::Lone;
use super::shown::Shown;
use super::{BELL, Entrance};
use crate::lane::head::{self, Begun, Plain};
use crate::lane::{Asked, BYTES_MAX, LAST_WORD, Read, Seen, asked_by, is_foreign, patience, write};
use crate::{Doors, Phase, caller, guard, rights};

/// Heard of in one round.
const EVENTS_MAX: usize = 1_024;
const SCRATCH_BYTES: usize = 16 * 1_024;
/// How often in one round those are answered who have sent several requests at once.
const TURNS_MAX: usize = 4;
/// How long at most is read on before a commit, while more comes. Less than a sync takes, and nobody is waited for.
const GATHER_MAX: Duration = Duration::from_micros(100);
/// How long who is over its quota waits for that answer: one that asks again at once must not cost its neighbours the processor.
const HELD_FOR: Duration = Duration::from_millis(20);

pub struct Thread {
    poll: Poll,
    entrance: Arc<Entrance>,
    doors: Arc<Doors>,
    guests: Vec<Option<Guest>>,
    /// Places among the guests that nobody has.
    free: Vec<usize>,
    tray: Arc<Tray>,
    /// Those who may have more to ask, after their answer.
    again: Vec<usize>,
    /// Which request the last one was.
    serial: u32,
    /// Whose writers have to be told of posts.
    posted: Vec<Tenant>,
    /// How many posts are not answered yet, and how many of them writers have been told of.
    asked: usize,
    sent: usize,
    /// Batches are committed on this thread, too.
    commits: bool,
    lone: Lone,
    /// When to look who has taken too long.
    look_at: Duration,
    now: Duration,
    /// The same moment by the clock.
    at: Timestamp,
    scratch: Vec<u8>,
    answer: String,
    laid: Vec<Laid>,
    /// Changes when a token may have lost its effect; how often it did.
    revoked: watch::Receiver<()>,
    revocations: u64,
    closing: bool,
}

/// What to do with the beginning of what was read.
enum Step {
    /// So much of it is with the writer.
    Posted(usize, Post),
    /// So much of it is answered already.
    Known(usize, Tenant, Result<Outcome, Problem>),
    /// The rest must come in so long.
    Wait(Duration),
    /// It is not for here; or, false, nothing more will come of it.
    Back(bool),
}

impl Step {
    /// How much of what was read is dealt with.
    fn taken(&self) -> usize {
        match self {
            Step::Posted(length, _) | Step::Known(length, ..) => *length,
            Step::Wait(_) | Step::Back(_) => 0,
        }
    }
}

impl Thread {
    /// `commits`: there is no core to spare for a writer beside this thread.
    pub fn new(poll: Poll, entrance: Arc<Entrance>, doors: Arc<Doors>, commits: bool) -> Thread {
        let bell = entrance.clone();
        let revoked = doors.engine.authority().changes();
        Thread {
            poll,
            entrance,
            doors,
            guests: Vec::new(),
            free: Vec::new(),
            tray: Tray::new(move || bell.ring()),
            again: Vec::new(),
            serial: 0,
            posted: Vec::new(),
            asked: 0,
            sent: 0,
            commits,
            lone: Lone::default(),
            look_at: Duration::MAX,
            now: Duration::ZERO,
            at: Timestamp::EPOCH,
            scratch: vec![0; SCRATCH_BYTES],
            answer: String::new(),
            laid: Vec::new(),
            revoked,
            revocations: 0,
            closing: false,
        }
    }

    /// Until the server stops and everybody here has been answered, or its grace is over.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let wait = self.wait();
            if let Err(error) = self.poll.poll(&mut events, wait)
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "connections that publish can be served no more by this thread");
                return;
            }
            self.tray.come_back();
            (self.now, self.at) = (self.doors.engine.real(), self.doors.engine.now());
            self.hear(&events);
            self.let_in();
            self.gather(&mut events);
            self.answer_all();
            if self.now >= self.look_at {
                self.look();
            }
            if self.is_over() {
                return;
            }
        }
    }

    /// How long nothing need be done.
    fn wait(&self) -> Option<Duration> {
        if !self.again.is_empty() || !self.tray.leave() {
            return Some(Duration::ZERO);
        }
        (self.look_at != Duration::MAX).then(|| self.look_at.saturating_sub(self.doors.engine.real()))
    }

    fn is_over(&mut self) -> bool {
        let phase = *self.doors.phase.borrow();
        if phase != Phase::Open && !mem::replace(&mut self.closing, true) {
            self.close();
        }
        phase == Phase::Cut || (self.closing && self.free.len() == self.guests.len())
    }

    /// Those who only wait go; the others hear their last word.
    fn close(&mut self) {
        for number in 0..self.guests.len() {
            match self.guests[number].as_mut().map(|guest| (&guest.doing, &mut guest.due)) {
                Some((Doing::Reads, _)) => self.go(number, false),
                Some((Doing::Hears(_), due)) => *due = self.now + LAST_WORD,
                Some((Doing::Held(_), due)) => *due = self.now,
                _ => {}
            }
        }
        self.look_at = self.now;
        self.entrance.close();
    }

    fn let_in(&mut self) {
        let came = mem::take(&mut self.entrance.waiting().guests);
        for mut guest in came {
            let number = self.free.pop().unwrap_or(self.guests.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            let known = self.poll.registry().register(&mut guest.socket, Token(number), interest);
            if number == self.guests.len() {
                self.guests.push(None);
            }
            self.guests[number] = Some(guest);
            match known {
                Ok(()) => self.serve(number),
                Err(_) => self.go(number, true),
            }
        }
    }

    fn hear(&mut self, events: &Events) {
        for event in events.iter().filter(|event| event.token() != BELL) {
            let Token(number) = event.token();
            self.heard(number, event);
        }
    }

    /// Reads on as long as something comes, before a commit here: what is committed together costs one sync, and while it lasts
    /// nobody reads.
    fn gather(&mut self, events: &mut Events) {
        let until = self.now + GATHER_MAX;
        while self.commits_here() && self.doors.engine.real() < until {
            let heard = self.poll.poll(events, Some(Duration::ZERO));
            if heard.is_err() || events.is_empty() {
                return;
            }
            self.hear(events);
        }
    }

    fn heard(&mut self, number: usize, event: &Event) {
        let Some(guest) = self.guests.get_mut(number).and_then(Option::as_mut) else { return };
        guest.ends |= event.is_read_closed() || event.is_error();
        guest.readable |= event.is_readable() || guest.ends;
        if event.is_writable()
            && let Doing::Hears(rest) = &mut guest.doing
        {
            let rest = mem::take(rest);
            return self.say(number, &rest);
        }
        if guest.readable {
            self.serve(number);
        }
    }

    /// Takes the next request of one who is waited for, as far as it is there.
    fn serve(&mut self, number: usize) {
        let mut scratch = mem::take(&mut self.scratch);
        if let Some(step) = self.next(number, &mut scratch) {
            self.follow(number, step);
        }
        self.scratch = scratch;
    }

    /// `None`: there is nobody, or they are busy.
    fn next(&mut self, number: usize, scratch: &mut [u8]) -> Option<Step> {
        let guest = self.guests[number].as_mut().filter(|guest| matches!(guest.doing, Doing::Reads))?;
        let came = if guest.readable { guest.fill(scratch, BYTES_MAX) } else { Came::More };
        let mut read = mem::take(&mut guest.read);
        self.serial = self.serial.wrapping_add(1);
        guest.ticket = ticket(self.serial, number);
        let ticket = guest.ticket;
        let (step, rest) = match came {
            Came::End => (Step::Back(false), read.bytes),
            // What comes whole is not even copied, and who waits for long takes no memory.
            Came::Whole(length) => {
                let step = self.step(&scratch[..length], &mut read.seen, ticket);
                let rest = scratch[step.taken()..length].to_vec();
                (step, rest)
            }
            Came::More => {
                let step = self.step(&read.bytes, &mut read.seen, ticket);
                let rest = read.bytes.split_off(step.taken());
                (step, rest)
            }
        };
        let seen = if step.taken() > 0 { Seen::default() } else { read.seen };
        self.guests[number].as_mut()?.read = Read { bytes: rest, seen };
        Some(step)
    }

    fn follow(&mut self, number: usize, step: Step) {
        match step {
            Step::Posted(_, post) => {
                if let Some(guest) = self.guests[number].as_mut() {
                    guest.doing = Doing::Asks(post);
                }
                self.asked += 1;
                self.wait_for(number, self.doors.patience.answer);
            }
            Step::Known(_, tenant, outcome) => self.tell(number, &tenant, outcome),
            Step::Wait(patience) => {
                self.wait_for(number, patience);
                // One that has said all is read to its end: nothing will tell of it again.
                if self.guests[number].as_ref().is_some_and(|guest| guest.readable) {
                    self.again.push(number);
                }
            }
            Step::Back(more) => self.go(number, more),
        }
    }

    /// Decides about what was read. A panic is an answer like any other, and the thread goes on.
    fn step(&mut self, bytes: &[u8], seen: &mut Seen, ticket: u64) -> Step {
        let begun = head::read(bytes);
        let Begun::Plain(plain) = begun else {
            return patience(&begun, seen, bytes.len(), &self.doors).map_or(Step::Back(true), Step::Wait);
        };
        let Some(Asked { tenant, caller, draft }) = self.asked(number_of(ticket), &plain) else {
            return Step::Back(true);
        };
        match catch_unwind(AssertUnwindSafe(|| tenant.post(&caller, draft, (&self.tray, ticket)))) {
            Ok(Posted::Queued(post)) => {
                self.note(tenant);
                Step::Posted(plain.length, post)
            }
            Ok(Posted::Known(outcome)) => Step::Known(plain.length, tenant, outcome),
            Ok(Posted::Later) => Step::Back(true),
            Err(panic) => Step::Known(plain.length, tenant, Err(guard::bug(&*panic))),
        }
    }

    /// The writer of this tenant has to be told.
    fn note(&mut self, tenant: Tenant) {
        self.lone.note(tenant.name(), self.now);
        if !self.posted.iter().any(|known| known.name() == tenant.name()) {
            self.posted.push(tenant);
        }
    }

    /// As [`crate::lane::asked`], of a tenant that is open; one who shows the same token again is known.
    fn asked(&mut self, number: usize, plain: &Plain<'_>) -> Option<Asked> {
        if is_foreign(plain, &self.doors) {
            return None;
        }
        let Some(authorization) = plain.authorization else {
            return self.asked_as(Caller::local(), rights::may_publish(None, &self.doors)?.as_deref(), plain);
        };
        let now = (self.now, self.changes());
        let guest = self.guests[number].as_mut()?;
        let known = guest.shown.take().filter(|shown| shown.holds(authorization, now, self.at));
        let shown = match known {
            Some(known) => known,
            None => match rights::may_publish(Some(authorization), &self.doors)? {
                Some(grant) => Box::new(Shown::new(authorization, grant, now.0, now.1)),
                // Nobody is asked, or it is the token of who holds the directory.
                None => return self.asked_as(Caller::local(), None, plain),
            },
        };
        let asked = self.asked_as(shown.caller.clone(), Some(&shown.grant), plain);
        self.guests[number].as_mut()?.shown = Some(shown);
        asked
    }

    fn asked_as(&self, caller: Caller, grant: Option<&Grant>, plain: &Plain<'_>) -> Option<Asked> {
        let tenant = caller::tenant_now(grant.map(|grant| grant.tenant.as_str()), &self.doors)?;
        asked_by(caller, tenant, plain)
    }

    /// How often any token has lost its effect since this thread began.
    fn changes(&mut self) -> u64 {
        if self.revoked.has_changed().unwrap_or(true) {
            self.revoked.borrow_and_update();
            self.revocations += 1;
        }
        self.revocations
    }

    /// What was posted goes to its writers, and what they have answered to those who asked; they may have more to ask.
    fn answer_all(&mut self) {
        for _ in 0..TURNS_MAX {
            mem::take(&mut self.again).into_iter().for_each(|number| self.serve(number));
            self.send();
            let mut laid = mem::take(&mut self.laid);
            self.tray.take(&mut laid);
            let over = laid.is_empty() && self.again.is_empty();
            laid.drain(..).for_each(|laid| self.answered(laid));
            self.laid = laid;
            if over {
                return;
            }
        }
    }

    /// One request that nobody else waits behind is written here: two threads would only wake each other for it.
    fn send(&mut self) {
        if self.posted.is_empty() {
            return;
        }
        let here = self.asked == 1 || self.commits_here();
        for tenant in mem::take(&mut self.posted) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| tenant.send(here))) {
                guard::bug(&*panic);
            }
        }
        self.sent = self.asked;
        if here {
            self.now = self.doors.engine.real();
        }
    }

    /// Whether a batch is to be committed on this thread: no writer is at work for it, and nobody waits for what is not theirs.
    fn commits_here(&self) -> bool {
        self.commits && self.asked > 0 && self.sent == 0 && self.lone.is_alone(self.now)
    }

    /// One who was told that it took too long, or has gone, is not told again.
    fn answered(&mut self, laid: Laid) {
        self.asked = self.asked.saturating_sub(1);
        self.sent = self.sent.saturating_sub(1);
        let number = number_of(laid.ticket);
        let guest = self.guests.get_mut(number).and_then(Option::as_mut);
        let Some(guest) = guest.filter(|guest| guest.ticket == laid.ticket) else { return };
        if let Doing::Asks(mut post) = mem::replace(&mut guest.doing, Doing::Reads) {
            let outcome = catch_unwind(AssertUnwindSafe(|| post.finish(laid)));
            let outcome = outcome.unwrap_or_else(|panic| Err(guard::bug(&*panic)));
            self.tell(number, post.tenant(), outcome);
        }
    }

    fn tell(&mut self, number: usize, tenant: &Tenant, outcome: Result<Outcome, Problem>) {
        let held = matches!(&outcome, Err(problem) if problem.code() == Code::QuotaExceeded);
        let mut answer = mem::take(&mut self.answer);
        write::answer(outcome, (tenant, &self.doors, self.at), &mut answer);
        match held && !self.closing {
            true => self.hold(number, answer.as_bytes()),
            false => self.say(number, answer.as_bytes()),
        }
        self.answer = answer;
    }

    fn hold(&mut self, number: usize, answer: &[u8]) {
        if let Some(guest) = self.guests[number].as_mut() {
            guest.doing = Doing::Held(answer.to_vec());
        }
        self.wait_for(number, HELD_FOR);
    }

    /// Writes, and goes on with what came after the request.
    fn say(&mut self, number: usize, answer: &[u8]) {
        let open = *self.doors.phase.borrow() == Phase::Open;
        let Some(guest) = self.guests[number].as_mut() else { return };
        if !guest.say(answer) {
            return self.forget(number);
        }
        match guest.doing {
            Doing::Reads if !open => self.forget(number),
            Doing::Reads if guest.readable || !guest.read.bytes.is_empty() => self.again.push(number),
            Doing::Reads => self.wait_for(number, self.doors.patience.head),
            _ => self.wait_for(number, if open { self.doors.patience.answer } else { LAST_WORD }),
        }
    }

    fn wait_for(&mut self, number: usize, patience: Duration) {
        if let Some(guest) = self.guests[number].as_mut() {
            guest.due = self.now + patience;
            self.look_at = self.look_at.min(guest.due);
        }
    }

    /// Looks for those who have taken too long, and when to look again.
    fn look(&mut self) {
        self.look_at = Duration::MAX;
        for number in 0..self.guests.len() {
            let Some(guest) = self.guests[number].as_mut() else { continue };
            if guest.due > self.now {
                self.look_at = self.look_at.min(guest.due);
                continue;
            }
            match mem::replace(&mut guest.doing, Doing::Reads) {
                Doing::Reads => self.go(number, false),
                Doing::Hears(_) => self.forget(number),
                Doing::Held(answer) => self.say(number, &answer),
                Doing::Asks(post) => {
                    // Whatever the writer says to it now is not for the next request.
                    guest.ticket = 0;
                    let late = guard::too_long(self.doors.patience.answer);
                    self.tell(number, post.tenant(), Err(late));
                }
            }
        }
    }

    fn go(&mut self, number: usize, more: bool) {
        if let Some(mut guest) = self.taken(number) {
            let _ = self.poll.registry().deregister(&mut guest.socket);
            guest.leave(more);
        }
    }

    fn forget(&mut self, number: usize) {
        drop(self.taken(number));
    }

    fn taken(&mut self, number: usize) -> Option<Guest> {
        let guest = self.guests[number].take()?;
        self.free.push(number);
        self.entrance.left();
        Some(guest)
    }
}

/// Which request of which guest.
fn ticket(serial: u32, number: usize) -> u64 {
    u64::from(serial) << 32 | number as u64
}

fn number_of(ticket: u64) -> usize {
    (ticket & u64::from(u32::MAX)) as usize
}
