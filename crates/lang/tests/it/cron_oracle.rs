//! Schedules against a brute force that walks every minute of a year and asks a person's predicate.
//!
//! `CRON_YEARS=1990-2035 cargo test -p everwhen-lang --test it oracle` walks all zones through all those years.

use std::collections::HashSet;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp as Instant};
use lang::cron::{Calendar, Cron, Zone};
use model::Timestamp;

use crate::chance::Chance;

/// A minute as the clock on the wall shows it.
#[derive(Clone, Copy)]
struct Wall {
    month: i8,
    day: i8,
    /// Sunday is 0.
    weekday: i8,
    hour: i8,
    minute: i8,
    /// Of its month.
    last: i8,
}

impl Wall {
    fn of(at: DateTime) -> Wall {
        Wall {
            month: at.month(),
            day: at.day(),
            weekday: at.weekday().to_sunday_zero_offset(),
            hour: at.hour(),
            minute: at.minute(),
            last: at.days_in_month(),
        }
    }

    fn at(&self, hour: i8, minute: i8) -> bool {
        self.hour == hour && self.minute == minute
    }

    fn weekday_of(&self, day: i8) -> i8 {
        (self.weekday + (day - self.day)).rem_euclid(7)
    }
}

type Predicate = Box<dyn Fn(Wall) -> bool>;

struct Case {
    expr: String,
    /// Only in the first pass of a repeated hour.
    once: bool,
    fires: Predicate,
}

fn case(expr: &str, once: bool, fires: impl Fn(Wall) -> bool + 'static) -> Case {
    Case { expr: expr.to_owned(), once, fires: Box::new(fires) }
}

fn by_hand() -> Vec<Case> {
    vec![
        case("* * * * *", false, |_| true),
        case("*/15 * * * *", false, |w| w.minute % 15 == 0),
        case("@hourly", false, |w| w.minute == 0),
        case("37 * * * *", false, |w| w.minute == 37),
        case("30 2 * * *", true, |w| w.at(2, 30)),
        case("@daily", true, |w| w.at(0, 0)),
        case("45 23 * * *", true, |w| w.at(23, 45)),
        case("0,30 0,1,2,3 * * *", true, |w| w.hour <= 3 && w.minute % 30 == 0),
        case("15 1-3 * * *", false, |w| (1..=3).contains(&w.hour) && w.minute == 15),
        case("*/20 2 * * *", false, |w| w.hour == 2 && w.minute % 20 == 0),
        case("10/25 22-2 * * *", false, |w| (w.hour >= 22 || w.hour <= 2) && matches!(w.minute, 10 | 35)),
        case("0 3 * * 7", true, |w| w.at(3, 0) && w.weekday == 0),
        case("0 0 30 * *", true, |w| w.at(0, 0) && w.day == 30),
        case("0 0 L * *", true, |w| w.at(0, 0) && w.day == w.last),
        case("20 1 L-2 * ?", true, |w| w.at(1, 20) && w.day == w.last - 2),
        case("0 12 * mar,oct 0L", true, |w| {
            w.at(12, 0) && matches!(w.month, 3 | 10) && w.weekday == 0 && w.day + 7 > w.last
        }),
        case("30 0 * * sat#1,wed#5", true, |w| {
            let nth = (w.day - 1) / 7 + 1;
            w.at(0, 30) && ((w.weekday == 6 && nth == 1) || (w.weekday == 3 && nth == 5))
        }),
        case("5 0 13 * fri", true, |w| w.at(0, 5) && (w.day == 13 || w.weekday == 5)),
        case("0 2 */2 * mon", true, |w| w.at(2, 0) && (w.day % 2 == 1 || w.weekday == 1)),
        case("0 2 */1 * sat-mon", true, |w| w.at(2, 0) && matches!(w.weekday, 6 | 0 | 1)),
        case("45 1 15W * *", true, |w| {
            let to = match w.weekday_of(15) {
                6 => 14,
                0 => 16,
                _ => 15,
            };
            w.at(1, 45) && w.day == to
        }),
        case("0 4 1W * *", true, |w| {
            let to = match w.weekday_of(1) {
                6 => 3,
                0 => 2,
                _ => 1,
            };
            w.at(4, 0) && w.day == to
        }),
        case("0 4 LW * *", true, |w| {
            let to = match w.weekday_of(w.last) {
                6 => w.last - 1,
                0 => w.last - 2,
                _ => w.last,
            };
            w.at(4, 0) && w.day == to
        }),
        case("0 0 29 2 *", true, |w| w.at(0, 0) && w.month == 2 && w.day == 29),
    ]
}

fn below(chance: &mut Chance, n: i8) -> i8 {
    chance.below(n as usize) as i8
}

/// Text, the values it means as bits, and whether it is more than a list of values.
fn field(chance: &mut Chance, min: i8, max: i8) -> (String, u64, bool) {
    let size = max - min + 1;
    let value = |chance: &mut Chance| min + below(chance, size);
    let bits = |fits: &dyn Fn(i8) -> bool| (min..=max).filter(|v| fits(*v)).fold(0, |bits, v| bits | 1 << v);
    match below(chance, 5) {
        0 => ("*".to_owned(), bits(&|_| true), true),
        1 => {
            let step = 1 + below(chance, size - 1);
            (format!("*/{step}"), bits(&|v| (v - min) % step == 0), true)
        }
        2 => {
            let (from, to) = (value(chance), value(chance));
            let within = |v| if from <= to { from <= v && v <= to } else { v >= from || v <= to };
            (format!("{from}-{to}"), bits(&within), true)
        }
        3 => {
            let (from, step) = (value(chance), 1 + below(chance, size - 1));
            (format!("{from}/{step}"), bits(&|v| v >= from && (v - from) % step == 0), true)
        }
        _ => {
            let values: Vec<i8> = (0..=below(chance, 4)).map(|_| value(chance)).collect();
            let text: Vec<String> = values.iter().map(i8::to_string).collect();
            (text.join(","), bits(&|v| values.contains(&v)), false)
        }
    }
}

fn by_chance(chance: &mut Chance) -> Case {
    let ((minute, minutes, many), (hour, hours, more)) = (field(chance, 0, 59), field(chance, 0, 23));
    let (day, days, _) = field(chance, 1, 31);
    let (month, months, _) = field(chance, 1, 12);
    let (weekday, weekdays, _) = field(chance, 0, 6);
    let expr = format!("{minute} {hour} {day} {month} {weekday}");
    let says_nothing = |text: &str| text == "*" || text == "*/1";
    let (any_day, any_weekday) = (says_nothing(&day), says_nothing(&weekday));
    let fires = move |w: Wall| {
        let has = |bits: u64, value: i8| bits & (1 << value) != 0;
        let (day, weekday) = (has(days, w.day), has(weekdays, w.weekday));
        let both_said = !any_day && !any_weekday;
        let fits = if both_said { day || weekday } else { day && weekday };
        fits && has(months, w.month) && has(hours, w.hour) && has(minutes, w.minute)
    };
    Case { expr, once: !many && !more, fires: Box::new(fires) }
}

/// Every minute of a year and two days before it: the instant, what the wall shows, and what it leapt over to get there.
struct Year {
    minutes: Vec<Minute>,
    from: i64,
    until: i64,
}

struct Minute {
    at: i64,
    wall: Wall,
    seen_before: bool,
    leapt_over: Vec<Wall>,
}

fn walk(zone: &TimeZone, year: i16) -> Year {
    let start =
        |year| Date::new(year, 1, 1).unwrap().to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
    let (from, until) = (start(year), start(year + 1));
    let mut seen = HashSet::new();
    let mut last: Option<DateTime> = None;
    let mut minutes = Vec::new();
    for at in (from - 2 * 86_400..until).step_by(60) {
        let now = zone.to_datetime(Instant::from_second(at).unwrap());
        let mut leapt_over = Vec::new();
        if let Some(last) = last {
            let mut missed = last + SignedDuration::from_mins(1);
            while missed < now {
                leapt_over.push(Wall::of(missed));
                missed += SignedDuration::from_mins(1);
            }
        }
        minutes.push(Minute { at, wall: Wall::of(now), seen_before: !seen.insert(now), leapt_over });
        last = Some(now);
    }
    Year { minutes, from, until }
}

impl Year {
    fn firings(&self, case: &Case) -> Vec<i64> {
        let fires = |minute: &&Minute| {
            let shown = (case.fires)(minute.wall) && !(case.once && minute.seen_before);
            minute.at >= self.from && (shown || minute.leapt_over.iter().any(|wall| (case.fires)(*wall)))
        };
        self.minutes.iter().filter(fires).map(|minute| minute.at).collect()
    }
}

fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn scheduled(cron: &Cron, zone: &Zone, year: &Year) -> Vec<i64> {
    let all = cron.firings(instant(year.from), zone).map(|at| at.millis() / 1_000);
    let all: Vec<i64> = all.take_while(|at| *at < year.until).collect();
    for pair in all.windows(2).step_by(all.len() / 50 + 1) {
        assert_eq!(cron.next_after(instant(pair[0]), zone), Some(instant(pair[1])), "{}", cron.text());
        assert!(cron.fires_at(instant(pair[0]), zone));
    }
    all
}

fn compare(zone_name: &str, year_number: i16, cases: &[Case]) {
    let (zone, year) =
        (Zone::parse(zone_name).unwrap(), walk(&TimeZone::get(zone_name).unwrap(), year_number));
    for case in cases {
        let cron = Cron::read(&case.expr).unwrap();
        let (want, got) = (year.firings(case), scheduled(&cron, &zone, &year));
        if want != got {
            let lost: Vec<_> = want.iter().filter(|at| !got.contains(at)).take(3).collect();
            let extra: Vec<_> = got.iter().filter(|at| !want.contains(at)).take(3).collect();
            panic!("{:?} in {zone_name} {year_number}: lost {lost:?}, extra {extra:?}", case.expr);
        }
        let (after, until) = (instant(year.from - 1), instant(year.until - 1));
        assert_eq!(cron.count(after, until, &zone), got.len() as u64, "{:?} in {zone_name}", case.expr);
        let calendar = Calendar::Cron { cron, zone: zone.clone() };
        assert_eq!(calendar.latest(after, until), got.last().map(|at| instant(*at)), "{:?}", case.expr);
    }
}

/// A zone, and the year in which it is most awkward.
const AWKWARD: [(&str, i16); 13] = [
    ("UTC", 2028),
    ("Europe/Berlin", 2026),
    ("America/New_York", 2025),
    // Half an hour.
    ("Australia/Lord_Howe", 2026),
    // Back for Ramadan, forward again.
    ("Africa/Casablanca", 2026),
    // At midnight.
    ("America/Sao_Paulo", 2018),
    ("Africa/Cairo", 2024),
    // A quarter of an hour, at the beginning of the year.
    ("Asia/Kathmandu", 1986),
    // A day that was not.
    ("Pacific/Apia", 2011),
    // Two hours.
    ("Antarctica/Troll", 2026),
    // Winter time is the exception.
    ("Europe/Dublin", 2026),
    ("Asia/Gaza", 2023),
    // Half an hour back, years later half an hour forward.
    ("Asia/Pyongyang", 2018),
];

#[test]
fn a_year_of_every_awkward_zone_is_what_the_oracle_says() {
    let mut cases = by_hand();
    let seed = 20_261_116;
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    cases.extend((0..12).map(|_| by_chance(&mut chance)));
    for (zone, year) in AWKWARD {
        let years = match std::env::var("CRON_YEARS") {
            Ok(said) => {
                let (from, to) = said.split_once('-').unwrap();
                from.parse().unwrap()..=to.parse().unwrap()
            }
            Err(_) => year..=year,
        };
        years.for_each(|year| compare(zone, year, &cases));
    }
}
