//! The `date` of an answer, written once a second.

use model::Timestamp;
use model::time::date_of;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The second that was written last, and how it reads.
#[derive(Default)]
pub struct Date {
    second: i64,
    text: String,
}

impl Date {
    pub fn write(&mut self, now: Timestamp, out: &mut String) {
        let second = now.millis().div_euclid(1_000);
        if self.second != second || self.text.is_empty() {
            *self = Date { second, text: text(second) };
        }
        out.push_str(&self.text);
    }
}

/// `Tue, 17 Nov 2026 11:08:27 GMT`, as HTTP has it.
fn text(second: i64) -> String {
    let (days, rest) = (second.div_euclid(86_400), second.rem_euclid(86_400));
    let (year, month, day) = date_of(days);
    let weekday = DAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[(month - 1).rem_euclid(12) as usize];
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_as_http_has_them() {
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(1_709_251_199), "Thu, 29 Feb 2024 23:59:59 GMT");
    }

    #[test]
    fn the_next_second_reads_otherwise() {
        let (mut date, mut out) = (Date::default(), String::new());
        for at in [0, 999, 1_000] {
            date.write(Timestamp::from_millis(at), &mut out);
        }
        assert_eq!(out.matches("00:00:00").count(), 2);
        assert_eq!(out.matches("00:00:01").count(), 1);
    }
}
