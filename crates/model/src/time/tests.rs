//! What instants and durations may look like, and that they come back as they were.

use super::*;

#[test]
fn durations_are_read_in_every_written_form() {
    let table = [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("PT5M", 300_000),
        ("P1DT1H", 90_000_000),
        ("1.5", 1_500),
        ("0", 0),
    ];
    for (text, millis) in table {
        assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "m", "5", "5x", "-5s", "5 m", "P", "PT", "1e999", "NaN", "h5"] {
        let want = (text == "5").then(|| Duration::from_secs(5));
        assert_eq!(parse_duration(text), want, "{text:?}");
    }
}

#[test]
fn an_instant_is_written_in_utc_with_digits_only_when_needed() {
    let written = |text: &str| Timestamp::parse(text).unwrap().to_string();
    assert_eq!(written("2026-01-01T02:00:00+02:00"), "2026-01-01T00:00:00Z");
    assert_eq!(written("2026-01-01T00:00:00.120Z"), "2026-01-01T00:00:00.12Z");
    assert_eq!(written("2016-12-31T23:59:60.5Z"), "2016-12-31T23:59:59.5Z");
    assert_eq!(written("2024-02-29t12:00:00z"), "2024-02-29T12:00:00Z");
    assert_eq!(written("2026-01-01T00:00:00.12345678999Z"), "2026-01-01T00:00:00.123456789Z");
}

#[test]
fn what_is_not_rfc_3339_is_refused() {
    let table = [
        "",
        "yesterday",
        "2026-01-01",
        "2026-01-01 00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-32T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01T00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+0200",
        "2026-01-01T00:00:00Z[UTC]",
        "+2026-01-01T00:00:00Z",
        "9999-12-31T23:59:59-00:01",
        "0000-01-01T00:00:00+00:01",
    ];
    for bad in table {
        assert!(Timestamp::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn every_year_that_can_be_written_is_read_and_comes_back() {
    let table = [
        (Timestamp::MIN, "0000-01-01T00:00:00Z"),
        (Timestamp::MAX, "9999-12-31T23:59:59.999999999Z"),
        (Timestamp::EPOCH, "1970-01-01T00:00:00Z"),
        (Timestamp::from_millis(-1), "1969-12-31T23:59:59.999Z"),
        (Timestamp::from_millis(951_782_400_001), "2000-02-29T00:00:00.001Z"),
    ];
    for (instant, text) in table {
        assert_eq!(instant.to_string(), text);
        assert_eq!(Timestamp::parse(text).unwrap(), instant, "{text}");
    }
    assert_eq!(Timestamp::from_nanos(i128::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::MIN.minus(Duration::from_nanos(1)), Timestamp::MIN);
    // Each day of 400 years and a bit, which is where the calendar repeats.
    let mut before = Timestamp::parse("1999-12-31T00:00:00Z").unwrap().to_string();
    for day in 0..146_500 {
        let instant = Timestamp::from_millis(946_684_800_000 + day * 86_400_000);
        let text = instant.to_string();
        assert_eq!(Timestamp::parse(&text).unwrap(), instant);
        assert!(text > before && text.ends_with("T00:00:00Z"), "{before} {text}");
        before = text;
    }
}
