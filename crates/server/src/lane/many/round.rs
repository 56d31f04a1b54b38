//! The rounds of the thread that serves many: who is heard, what is posted, who is answered, and whom nobody waits for any more.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use engine::telemetry::passed_on;
use engine::tray::{Laid, Tray};
use engine::{Caller, Draft, Outcome, Post, Posted, Tenant};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use model::{Code, Problem, Timestamp};
use tokio::sync::watch;

use super::guest::{Came, Doing, Guest};
use super::lone::Lone;
use super::pile::{Incoming, Outgoing};
use super::shown::{Shown, Who};
use super::{BELL, Entrance};
use crate::lane::head::{self, Begun, Plain};
use crate::lane::write::{Pen, Said};
use crate::lane::{BYTES_MAX, LAST_WORD, Read, Seen, is_foreign, patience};
use crate::{Doors, Phase, caller, guard, rights};

/// Heard of in one round.
const EVENTS_MAX: usize = 1_024;
/// So many rounds in a row may be too full to hear everybody before it is looked who is late all the same: all who have something to
/// say have had their turn by then.
const FULL_ROUNDS_MAX: u32 = 64;
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
    /// How many rounds in a row were as full as one can be.
    full_rounds: u32,
    /// When to look who has taken too long.
    look_at: Duration,
    now: Duration,
    /// The same moment by the clock.
    at: Timestamp,
    /// The server goes on after this round.
    open: bool,
    incoming: Incoming,
    outgoing: Outgoing,
    pen: Pen,
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
            full_rounds: 0,
            look_at: Duration::MAX,
            now: Duration::ZERO,
            at: Timestamp::EPOCH,
            open: true,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            pen: Pen::default(),
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
            self.look_up();
            // Who is late is judged by this moment: what came during a commit of this round has not been read yet.
            let heard_at = self.now;
            let full = events.iter().count() >= EVENTS_MAX;
            self.full_rounds = if full { self.full_rounds.saturating_add(1) } else { 0 };
            self.hear(&events);
            self.let_in();
            self.gather(&mut events);
            self.answer_all();
            if self.has_heard_all() && heard_at >= self.look_at {
                self.look(heard_at);
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

    /// Whether nobody is called late who has asked already: a round that is full may have left some out.
    fn has_heard_all(&self) -> bool {
        self.full_rounds == 0 || self.full_rounds > FULL_ROUNDS_MAX
    }

    /// What time it is, and whether the server goes on: asked once for all that is done after.
    fn look_up(&mut self) {
        (self.now, self.at) = (self.doors.engine.real(), self.doors.engine.now());
        self.open = *self.doors.phase.borrow() == Phase::Open;
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
            self.wait_for(number, self.doors.patience.head);
            match known {
                Ok(()) => self.again.push(number),
                Err(_) => self.go(number, true),
            }
        }
    }

    fn hear(&mut self, events: &Events) {
        let mut incoming = mem::take(&mut self.incoming);
        for event in events.iter().filter(|event| event.token() != BELL) {
            let Token(number) = event.token();
            if self.heard(number, event) {
                self.read(number, &mut incoming);
            }
        }
        self.serve(&mut incoming);
        self.incoming = incoming;
    }

    /// As [`Thread::hear`], of those who may have more to ask.
    fn hear_again(&mut self) {
        let (mut incoming, again) = (mem::take(&mut self.incoming), mem::take(&mut self.again));
        again.into_iter().for_each(|number| self.read(number, &mut incoming));
        self.serve(&mut incoming);
        self.incoming = incoming;
    }

    /// Reads on as long as something comes, before a commit here: what is committed together costs one sync, and while it lasts
    /// nobody reads.
    fn gather(&mut self, events: &mut Events) {
        let until = self.now + GATHER_MAX;
        let all = self.guests.len() - self.free.len();
        while self.commits_here() && self.asked < all && self.doors.engine.real() < until {
            let heard = self.poll.poll(events, Some(Duration::ZERO));
            if heard.is_err() || events.is_empty() {
                return;
            }
            self.hear(events);
        }
    }

    /// True: there may be something to be read of them.
    fn heard(&mut self, number: usize, event: &Event) -> bool {
        let Some(guest) = self.guests.get_mut(number).and_then(Option::as_mut) else { return false };
        guest.ends |= event.is_read_closed() || event.is_error();
        guest.readable |= event.is_readable() || guest.ends;
        if event.is_writable()
            && let Doing::Hears(rest) = &mut guest.doing
        {
            let rest = mem::take(rest);
            self.say(number, &rest);
            return false;
        }
        guest.readable
    }

    /// Reads what is there of one who is waited for; it is looked at in [`Thread::serve`].
    fn read(&mut self, number: usize, incoming: &mut Incoming) {
        if incoming.is_full() {
            self.serve(incoming);
        }
        let guest = self.guests[number].as_mut().filter(|guest| matches!(guest.doing, Doing::Reads));
        let Some(guest) = guest else { return };
        guest.doing = Doing::Read;
        let came = if guest.readable { guest.fill(incoming.room(), BYTES_MAX) } else { Came::More };
        incoming.put(number, came);
    }

    /// Takes the next request of each who was read, as far as it is there.
    fn serve(&mut self, incoming: &mut Incoming) {
        for (number, came, bytes) in incoming.each() {
            if let Some(step) = self.next(number, came, bytes) {
                self.follow(number, step);
            }
        }
        incoming.clear();
    }

    fn next(&mut self, number: usize, came: Came, bytes: &[u8]) -> Option<Step> {
        let guest = self.guests[number].as_mut()?;
        guest.doing = Doing::Reads;
        let mut read = mem::take(&mut guest.read);
        self.serial = self.serial.wrapping_add(1);
        guest.ticket = ticket(self.serial, number);
        let ticket = guest.ticket;
        let (step, rest) = match came {
            Came::End => (Step::Back(false), read.bytes),
            // What comes whole is not even copied, and who waits for long takes no memory.
            Came::Whole(length) => {
                let step = self.step(&bytes[..length], &mut read.seen, ticket);
                let rest = bytes[step.taken()..length].to_vec();
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
        let Some((who, tenant)) = self.who(number_of(ticket), &plain) else { return Step::Back(true) };
        let Ok(draft) = Draft::parse(plain.body, &tenant.limits()) else { return Step::Back(true) };
        let posted =
            catch_unwind(AssertUnwindSafe(|| tenant.post(who.caller(), draft, (&self.tray, ticket))));
        self.remember(number_of(ticket), who);
        match posted {
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

    /// As in [`crate::lane::asked`], of a tenant that is open; one who shows the same token again is known.
    fn who(&mut self, number: usize, plain: &Plain<'_>) -> Option<(Who, Tenant)> {
        if is_foreign(plain, &self.doors) {
            return None;
        }
        let now = (self.now, self.changes());
        let shown = self.guests[number].as_mut()?.shown.take();
        let holds = |shown: &Shown| shown.holds(plain.authorization.unwrap_or_default(), now, self.at);
        let mut who = match shown.filter(|shown| holds(shown)) {
            Some(shown) => Who::Shown(shown),
            None => match (plain.authorization, rights::may_publish(plain.authorization, &self.doors)?) {
                (Some(shown), Some(grant)) => Who::Shown(Box::new(Shown::new(shown, grant, now.0, now.1))),
                // Nobody is asked, or it is the token of who holds the directory.
                _ => Who::Local(Caller::local()),
            },
        };
        let tenant = caller::tenant_now(who.tenant(), &self.doors)?;
        who.set_trace(passed_on(plain.traceparent));
        Some((who, tenant))
    }

    fn remember(&mut self, number: usize, who: Who) {
        if let (Who::Shown(shown), Some(guest)) = (who, self.guests[number].as_mut()) {
            guest.shown = Some(shown);
        }
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
            self.hear_again();
            self.say_all();
            self.send();
            let mut laid = mem::take(&mut self.laid);
            self.tray.take(&mut laid);
            let over = laid.is_empty() && self.again.is_empty();
            laid.drain(..).for_each(|laid| self.answered(laid));
            self.laid = laid;
            self.say_all();
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
            if self.commits {
                self.entrance.takes(tenant.commit_time());
            }
        }
        self.sent = self.asked;
        if here {
            self.look_up();
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

    /// Its answer goes out with those of others, in [`Thread::say_all`].
    fn tell(&mut self, number: usize, tenant: &Tenant, outcome: Result<Outcome, Problem>) {
        let held = matches!(&outcome, Err(problem) if problem.code() == Code::QuotaExceeded);
        let said = Said { tenant, now: self.at, last: !self.open };
        let (pen, outgoing) = (&mut self.pen, &mut self.outgoing);
        if held && !self.closing {
            let mut answer = String::new();
            pen.answer(outcome, &said, &mut answer);
            return self.hold(number, answer.into_bytes());
        }
        outgoing.write(number, |out| pen.answer(outcome, &said, out));
        if let Some(guest) = self.guests[number].as_mut() {
            guest.doing = Doing::Told;
        }
    }

    /// Sends what was written for each.
    fn say_all(&mut self) {
        let mut outgoing = mem::take(&mut self.outgoing);
        outgoing.each().for_each(|(number, answer)| self.say(number, answer));
        outgoing.clear();
        self.outgoing = outgoing;
    }

    fn hold(&mut self, number: usize, answer: Vec<u8>) {
        if let Some(guest) = self.guests[number].as_mut() {
            guest.doing = Doing::Held(answer);
        }
        self.wait_for(number, HELD_FOR);
    }

    /// Writes, and goes on with what came after the request.
    fn say(&mut self, number: usize, answer: &[u8]) {
        let open = self.open;
        let Some(guest) = self.guests[number].as_mut() else { return };
        if !guest.say(answer) {
            return self.forget(number);
        }
        match guest.doing {
            Doing::Reads if !open => self.forget(number),
            Doing::Reads => {
                if guest.readable || !guest.read.bytes.is_empty() {
                    self.again.push(number);
                }
                self.wait_for(number, self.doors.patience.head);
            }
            _ => self.wait_for(number, if open { self.doors.patience.answer } else { LAST_WORD }),
        }
    }

    fn wait_for(&mut self, number: usize, patience: Duration) {
        if let Some(guest) = self.guests[number].as_mut() {
            guest.due = self.now + patience;
            self.look_at = self.look_at.min(guest.due);
        }
    }

    /// Looks for those who had taken too long by then, and when to look again.
    fn look(&mut self, then: Duration) {
        self.look_at = Duration::MAX;
        for number in 0..self.guests.len() {
            let Some(guest) = self.guests[number].as_mut() else { continue };
            if guest.due > then {
                self.look_at = self.look_at.min(guest.due);
                continue;
            }
            match mem::replace(&mut guest.doing, Doing::Reads) {
                Doing::Reads | Doing::Read | Doing::Told => self.go(number, false),
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
        self.say_all();
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
