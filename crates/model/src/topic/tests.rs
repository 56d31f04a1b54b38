//! Topics, patterns and the trie: tables that state the rules, and a comparison of the two matchers.

use proptest::prelude::*;

use super::trie::Trie;
use super::*;

#[test]
fn a_pattern_matches_by_words() {
    let table = [
        ("a.b", "a.b", true),
        ("a.b", "a.B", false),
        ("a.*", "a.b", true),
        ("a.*", "a", false),
        ("a.*", "a.b.c", false),
        ("a.#", "a", true),
        ("a.#", "a.b.c", true),
        ("#", "a", true),
        ("#.c", "c", true),
        ("#.c", "a.b.c", true),
        ("#.c", "a.c.b", false),
        ("a.#.z", "a.z", true),
        ("a.#.b.#.z", "a.x.b.b.z", true),
        ("a.#.*", "a", false),
        ("a.#.*", "a.b", true),
        ("#.*.#", "a", true),
        ("v1:cognition:*", "v1:cognition:space", true),
        ("v1:cognition:*", "v1:cognition:", true),
        ("v1:cognition:*", "v1:other:space", false),
        ("a*b", "ab", true),
        ("a*b", "a.b", false),
        ("a*b*c", "a1b2c", true),
        ("a*ba", "aba", true),
        ("ab*ba", "aba", false),
        ("*ö*", "schön", true),
        ("**", "word", true),
    ];
    for (pattern, topic, want) in table {
        assert_eq!(Pattern::parse(pattern).unwrap().matches(topic), want, "{pattern} against {topic}");
    }
}

#[test]
fn the_bare_matcher_takes_anything_and_never_errs() {
    let table = [
        ("", "", true),
        ("#", "", true),
        ("*", "", false),
        ("", "a", false),
        ("#", "a..b", false),
        ("#", ".a", false),
        ("a..b", "a..b", false),
        ("a.#b", "a.#b", true),
        ("#", ".", false),
    ];
    for (pattern, topic, want) in table {
        let pattern = Pattern::lenient(pattern);
        assert_eq!(pattern.matches(topic), want, "{pattern} against {topic}");
        assert_eq!(by_trie(&pattern, topic), want, "{pattern} against {topic} in the trie");
    }
}

#[test]
fn what_the_engine_says_about_itself_reaches_only_patterns_that_name_it() {
    let receives = |pattern: &str, topic: &str| {
        let pattern = Pattern::parse(pattern).unwrap();
        let mut trie = Trie::new();
        trie.insert(&pattern, 7);
        let mut found = Vec::new();
        trie.receivers(topic, &mut found);
        assert_eq!(!found.is_empty(), pattern.receives(topic), "{pattern} against {topic}");
        pattern.receives(topic)
    };
    for topic in ["engine.group.lost", "automation.disabled", "workflow.dispatch_failed"] {
        assert!(!receives("#", topic) && !receives("*.#", topic) && !receives("#.lost", topic), "{topic}");
        let first = topic.split('.').next().unwrap();
        assert!(receives(&format!("{first}.#"), topic) && receives(topic, topic), "{topic}");
        assert!(!receives(&format!("{}*.#", &first[..3]), topic), "a glob is no name: {topic}");
    }
    for topic in ["graph.node.created.v1:a:b", "workflow.done", "engines.started", "order.engine"] {
        assert!(receives("#", topic), "{topic}");
    }
}

#[test]
fn reserved_topics_are_known_by_their_first_word() {
    assert!(["graph.x", "automation", "engine.a.b"].into_iter().all(is_reserved));
    assert!(!["graphs.x", "a.graph", "workflow.dispatch_failed"].into_iter().any(is_reserved));
}

#[test]
fn a_bad_topic_is_told_what_and_where() {
    let long = "x".repeat(513);
    let table = [
        ("", "topic \"\" is empty", 0),
        ("a..b", "topic \"a..b\" has an empty word at byte 2 (word 2)", 2),
        ("a.", "topic \"a.\" has an empty word at byte 2 (word 2)", 2),
        ("a.*", "topic \"a.*\" has a wildcard '*' at byte 2", 2),
        ("ä.b c", "topic \"ä.b c\" has whitespace ' ' at byte 4", 4),
        ("a\0", "topic \"a\\0\" has a control character '\\0' at byte 1", 1),
    ];
    for (topic, detail, offset) in table {
        let problem = check_topic(topic).unwrap_err();
        assert_eq!((problem.code(), problem.detail()), (Code::EventTopicInvalid, detail));
        assert_eq!(problem.extra()["offset"], offset);
        assert!(problem.hint_text().is_some());
    }
    let problem = check_topic(&long).unwrap_err();
    assert!(problem.detail().ends_with("…\" has 513 bytes, more than 512"), "{problem}");
    assert!(check_topic(&long[1..]).is_ok() && check_topic("v1:ö.🏠").is_ok());
}

#[test]
fn a_bad_pattern_is_told_what_and_where() {
    let table = [
        ("", "pattern \"\" is empty"),
        ("a.#b", "pattern \"a.#b\" has a \"#\" inside a word at byte 2"),
        ("a.##", "pattern \"a.##\" has a \"#\" inside a word at byte 2"),
        (".a", "pattern \".a\" has an empty word at byte 0 (word 1)"),
        ("a b", "pattern \"a b\" has whitespace ' ' at byte 1"),
    ];
    for (pattern, detail) in table {
        let problem = Pattern::parse(pattern).unwrap_err();
        assert_eq!((problem.code(), problem.detail()), (Code::PatternInvalid, detail));
    }
}

#[test]
fn a_value_under_several_patterns_is_found_once_and_in_order() {
    let mut trie = Trie::new();
    for (pattern, value) in [("a.#", 2), ("#.b", 2), ("a.b", 1), ("#", 9), ("a.*", 1), ("x", 5)] {
        assert!(trie.insert(&Pattern::parse(pattern).unwrap(), value));
        assert!(!trie.insert(&Pattern::parse(pattern).unwrap(), value), "twice is once");
    }
    let mut found = vec![42];
    trie.matches("a.b", &mut found);
    assert_eq!(found, [42, 1, 2, 9], "what was in the vector stays");
}

#[test]
fn a_trie_that_lost_all_its_patterns_holds_nothing() {
    let patterns = ["a.b.c", "a.#", "a.*.c", "v1:*.x", "*", "#.z*"].map(|p| Pattern::parse(p).unwrap());
    let mut trie = Trie::new();
    for round in 0..3 {
        patterns.iter().for_each(|p| assert!(trie.insert(p, round)));
        patterns.iter().for_each(|p| assert!(trie.remove(p, round) && !trie.remove(p, round)));
        assert!(trie.is_empty());
    }
    for topic in ["a.b.c", "v1:.x", "zoo", "a"] {
        let mut found = Vec::new();
        trie.matches(topic, &mut found);
        assert!(found.is_empty(), "{topic}");
    }
}

#[test]
fn many_hashes_and_long_topics_stay_cheap() {
    let mut trie = Trie::new();
    let pattern = Pattern::parse(&["#.a"; 100].join(".")).unwrap();
    trie.insert(&pattern, 1);
    trie.insert(&Pattern::parse(&["#"; 250].join(".")).unwrap(), 2);
    let topic = ["a"; 256].join(".");
    let mut found = Vec::new();
    trie.matches(&topic, &mut found);
    assert_eq!(found, [1, 2]);
    assert!(pattern.matches(&topic) && !pattern.matches(&format!("{}.b", &topic[..509])));
}

fn by_trie(pattern: &Pattern, topic: &str) -> bool {
    let mut trie = Trie::new();
    trie.insert(pattern, ());
    let mut found = Vec::new();
    trie.matches(topic, &mut found);
    !found.is_empty()
}

/// Few letters and few words, so that patterns and topics often meet.
fn pattern_text() -> impl Strategy<Value = String> {
    prop::collection::vec("#|\\*|a|b|ab|a\\*|\\*b|a\\*b|\\*a\\*|b\\*b", 1..6)
        .prop_map(|words| words.join("."))
}

fn topic_text() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]{1,3}|engine|automation", 1..6).prop_map(|words| words.join("."))
}

/// The rule read aloud, at whatever cost: the oracle for both matchers.
fn plainly(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern, topic) {
        ([], []) => true,
        (["#", rest @ ..], _) => (0..=topic.len()).any(|taken| plainly(rest, &topic[taken..])),
        ([word, rest @ ..], [text, more @ ..]) => glob_plainly(word, text) && plainly(rest, more),
        _ => false,
    }
}

fn glob_plainly(word: &str, text: &str) -> bool {
    match word.chars().next() {
        None => text.is_empty(),
        Some('*') => (0..=text.len()).any(|taken| glob_plainly(&word[1..], &text[taken..])),
        Some(c) => text.starts_with(c) && glob_plainly(&word[1..], &text[1..]),
    }
}

proptest! {
    #[test]
    fn pattern_and_trie_agree_with_the_rule(
        patterns in prop::collection::vec(pattern_text(), 1..30),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        topics in prop::collection::vec(topic_text(), 1..20),
    ) {
        let parsed: Vec<Pattern> = patterns.iter().map(|p| Pattern::parse(p).unwrap()).collect();
        let mut filed = vec![true; parsed.len()];
        let mut trie = Trie::new();
        parsed.iter().enumerate().for_each(|(n, p)| { trie.insert(p, n); });
        for index in gone {
            let n = index.index(parsed.len());
            prop_assert_eq!(trie.remove(&parsed[n], n), std::mem::take(&mut filed[n]));
        }
        for topic in &topics {
            let words: Vec<&str> = topic.split('.').collect();
            for (text, pattern) in patterns.iter().zip(&parsed) {
                let rule = plainly(&text.split('.').collect::<Vec<_>>(), &words);
                prop_assert_eq!(pattern.matches(topic), rule, "{} against {}", text, topic);
            }
            let check = |found: Vec<usize>, test: &dyn Fn(&Pattern) -> bool| {
                let want: Vec<usize> = (0..parsed.len()).filter(|&n| filed[n] && test(&parsed[n])).collect();
                (found == want).then_some(()).ok_or_else(|| format!("{topic}: {found:?} is not {want:?}"))
            };
            let (mut bare, mut reached) = (Vec::new(), Vec::new());
            trie.matches(topic, &mut bare);
            trie.receivers(topic, &mut reached);
            check(bare, &|p| p.matches(topic)).map_err(TestCaseError::fail)?;
            check(reached, &|p| p.receives(topic)).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn no_text_makes_the_matchers_panic(pattern in ".{0,40}", topic in ".{0,40}") {
        let lenient = Pattern::lenient(&pattern);
        prop_assert_eq!(lenient.matches(&topic), by_trie(&lenient, &topic));
        let _ = (check_topic(&topic), Pattern::parse(&pattern));
    }
}
