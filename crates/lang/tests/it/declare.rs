//! Declarations at their border: text in, definitions and findings out, as files that a person can read.
//!
//! `tests/golden/ok/X.ew` (or .yaml, .json) must check cleanly and give the definitions of `X.ew.json`;
//! `tests/golden/err/X.ew` must give the findings of `X.ew.txt`. A folder is a workspace of its own.
//! `EVERWHEN_GOLDEN=write` writes what is there instead of comparing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lang::declare::{Checked, check_workspace, format, is_source};

use crate::chance::{Chance, mutated};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn collect(dir: &Path, below: &str, files: &mut BTreeMap<String, String>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_str().unwrap();
        let inside = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        if path.is_dir() {
            collect(&path, &inside, files);
        } else if is_source(name) {
            files.insert(inside, fs::read_to_string(&path).unwrap());
        }
    }
}

/// A file alone, or a folder.
fn workspace(path: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    if path.is_dir() {
        collect(path, "", &mut files);
    } else {
        let name = path.file_name().unwrap().to_str().unwrap();
        files.insert(name.to_owned(), fs::read_to_string(path).unwrap());
    }
    files
}

fn rendered(checked: &Checked, files: &BTreeMap<String, String>) -> String {
    checked.findings.iter().map(|finding| finding.render(&files[&finding.file])).collect()
}

fn definitions(checked: &Checked) -> String {
    let one = |definition: &model::definition::Definition| {
        let value: serde_json::Value = serde_json::from_str(&definition.to_json()).unwrap();
        format!("// {} {}\n{value:#}\n", definition.kind(), definition.key())
    };
    checked.definitions.iter().map(one).collect()
}

/// The cases of a folder: files that are sources and folders, without what is expected of them.
fn cases(kind: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(kind);
    let mut cases: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.is_dir() || (is_source(name) && name.matches('.').count() == 1)
    });
    cases.sort();
    cases
}

fn compare(case: &Path, ending: &str, found: &str, wrong: &mut Vec<String>) {
    let mut name = case.as_os_str().to_owned();
    name.push(ending);
    let golden = PathBuf::from(name);
    if std::env::var("EVERWHEN_GOLDEN").is_ok_and(|how| how == "write") {
        fs::write(&golden, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    if expected != found {
        wrong.push(format!("{}\n--- expected\n{expected}\n--- found\n{found}", golden.display()));
    }
}

#[test]
fn good_declarations_check_cleanly_and_give_these_definitions() {
    let mut wrong = Vec::new();
    for case in cases("ok") {
        let files = workspace(&case);
        let checked = check_workspace(&files);
        assert!(checked.findings.is_empty(), "{}\n{}", case.display(), rendered(&checked, &files));
        assert!(!checked.definitions.is_empty(), "{} declares nothing", case.display());
        compare(&case, ".txt", &definitions(&checked), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn faulty_declarations_say_what_where_and_what_instead() {
    let mut wrong = Vec::new();
    for case in cases("err") {
        let files = workspace(&case);
        let checked = check_workspace(&files);
        assert!(!checked.findings.is_empty(), "{} has no findings", case.display());
        compare(&case, ".txt", &rendered(&checked, &files), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_examples_check_cleanly() {
    let dir = root().join("examples/cognition");
    let files = workspace(&dir);
    let checked = check_workspace(&files);
    assert_eq!(rendered(&checked, &files), "");
    let names: Vec<&str> = checked.definitions.iter().map(|definition| definition.key()).collect();
    for name in ["autoJoinSI", "bootstrapSession", "purgeExpiredArchivedSpaces", "rolloverDailySpace"] {
        assert!(names.contains(&name), "{name} is missing among {names:?}");
    }
}

#[test]
fn layout_comments_and_aliases_do_not_change_a_definition() {
    let dir = root().join("examples/cognition");
    let files = workspace(&dir);
    let before = check_workspace(&files);
    let mut moved = files.clone();
    for (_, text) in moved.iter_mut().filter(|(name, _)| name.ends_with(".ew")) {
        *text = format!("// moved down\n\n\n{}", text.replace("  ", "\t"));
    }
    let logic = moved.get_mut("cognition/logic.ew").unwrap();
    *logic = logic
        .replace(
            "use identity.queries.{ queryActiveUsers,",
            "use identity.queries.{ queryActiveUsers as everyone,",
        )
        .replace("queryActiveUsers()", "everyone()");
    let after = check_workspace(&moved);
    assert_eq!(rendered(&after, &moved), "");
    let hashes = |checked: &Checked| checked.definitions.iter().map(|d| d.hash()).collect::<Vec<_>>();
    assert_eq!(hashes(&before), hashes(&after));
}

fn sources_of_goldens_and_examples() -> Vec<(String, String)> {
    let mut files = BTreeMap::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), "golden", &mut files);
    collect(&root().join("examples/cognition"), "cognition", &mut files);
    files.into_iter().collect()
}

#[test]
fn the_layout_of_examples_is_the_one_that_fmt_makes() {
    for (path, text) in sources_of_goldens_and_examples() {
        if path.ends_with(".ew") && !path.starts_with("golden/err") {
            assert_eq!(format(&text).unwrap(), text, "{path}: run everwhen fmt");
        }
    }
}

#[test]
fn formatting_twice_is_formatting_once_and_keeps_definitions_and_comments() {
    let untidy = "@large   concept   order{// why\n\n\n\n  a   string!   @default( \"x\" )\n b []string /* in */\n\n}\n\
                  query order  q{ filter  a==\"x\"&&b.size()>-1\n&&  !(a in[\"y\"])\n}\n\
                  logic l{x:=cond( a ,{b:1,c:[ 1,2 ]},-3)\nreturn x?1:2}\n";
    let once = format(untidy).unwrap();
    assert_eq!(
        once,
        "@large concept order { // why\n\n  a string! @default(\"x\")\n  b []string /* in */\n}\n\
         query order q { filter a == \"x\" && b.size() > -1\n    && !(a in [\"y\"])\n}\n\
         logic l { x := cond(a, { b: 1, c: [1, 2] }, -3)\n  return x ? 1 : 2 }\n"
    );
    assert_eq!(format(&once).unwrap(), once);
    let kept = format!("// fmt: off\n{untidy}");
    assert_eq!(format(&kept).unwrap(), kept);
    for (path, text) in sources_of_goldens_and_examples() {
        let Ok(once) = format(&text) else { continue };
        assert_eq!(format(&once).unwrap(), once, "{path}");
    }
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let checked = |text: &str| check_workspace(&BTreeMap::from([("a.ew".to_owned(), text.to_owned())]));
    assert!(checked("\u{feff}concept item { n int }\n").findings.is_empty());
    let wrong = "\u{feff}concept item { n itn }\n";
    let found = checked(wrong).findings;
    assert_eq!((found[0].line, found[0].col), (1, 18));
    assert!(found[0].render(wrong).contains("\n  1 | concept item { n itn }\n    |                  ^^^\n"));
    assert_eq!(format("\u{feff}concept  item { n int }\n").unwrap(), "concept item { n int }\n");
}

#[test]
fn what_cannot_be_laid_out_is_named_by_its_line() {
    let problem = format("concept item {\n  n int\n  m )\n}\n").unwrap_err();
    assert!(problem.detail().ends_with(", at line 3, column 5"), "{}", problem.detail());
}

#[test]
fn no_text_makes_the_checker_or_the_formatter_panic() {
    let sources = sources_of_goldens_and_examples();
    for seed in 1..=1_500_u64 {
        let mut chance = Chance::new(seed);
        let (path, text) = &sources[chance.below(sources.len())];
        let text = mutated(text, &sources[chance.below(sources.len())].1, &mut chance);
        let name = path.rsplit('/').next().unwrap().to_owned();
        let done = std::panic::catch_unwind(|| {
            let checked = check_workspace(&BTreeMap::from([(name.clone(), text.clone())]));
            for finding in &checked.findings {
                finding.render(&text);
            }
            if let Ok(once) = format(&text) {
                assert_eq!(format(&once).unwrap(), once);
            }
        });
        assert!(done.is_ok(), "seed {seed}, {path}:\n{text}");
    }
}

/// `definition.breaking` needs rows that are there, `definition.conflict` what others manage; the engine's tests and the
/// server's have them.
#[test]
fn every_code_of_the_checker_has_a_golden_message() {
    let said: String = cases("err")
        .iter()
        .map(|case| fs::read_to_string(format!("{}.txt", case.display())).unwrap())
        .collect();
    let of_checker = |code: &&str| code.starts_with("definition.") || *code == "yaml.invalid";
    for code in model::Code::ALL.iter().map(|code| code.as_str()).filter(of_checker) {
        assert!(
            said.contains(&format!("[{code}]"))
                || matches!(code, "definition.breaking" | "definition.conflict"),
            "no golden says {code}"
        );
    }
}

#[test]
fn an_instant_that_has_passed_is_warned_of_at_that_moment_only() {
    let text = "automation: once\ntriggers: [{at: 2026-01-31T09:30:00Z}]\nactions: []\n";
    let files = BTreeMap::from([("once.yaml".to_owned(), text.to_owned())]);
    let at = |now: &str| check_workspace(&files).at(model::Timestamp::parse(now).unwrap());
    assert!(check_workspace(&files).findings.is_empty());
    assert!(at("2026-01-31T09:30:00Z").findings.is_empty());
    let late = at("2026-01-31T09:30:01Z");
    assert_eq!(
        late.findings.iter().map(|finding| finding.line).collect::<Vec<_>>(),
        [2],
        "{:?}",
        late.findings
    );
    assert!(!late.has_errors());
}

#[test]
fn shapes_that_strangers_write_give_the_same_definitions() {
    let pairs = [
        (
            "switch: event.payload.kind\n    cases: {a: [{publish: out.a}], b: stop}\n    default: [stop]",
            "switch: {on: event.payload.kind, cases: {a: {publish: out.a}, b: [{stop: true}]}, default: [{stop: true}]}",
        ),
        (
            "switch: '{{ event.payload.n }}'\n    cases: [{case: [1, 2], do: [{publish: out.a}]}]",
            "switch: {on: event.payload.n, cases: [{case: [1, 2], do: [{publish: out.a}]}]}",
        ),
        ("repeat: 3\n    do: [{publish: out.a}]", "repeat: {count: 3, do: [{publish: out.a}]}"),
        (
            "repeat: event.payload.n\n    do: [{publish: out.a}]",
            "repeat: {count: event.payload.n, do: [{publish: out.a}]}",
        ),
        ("repeat: {count: 3}\n    do: [{publish: out.a}]", "repeat: {count: 3, do: [{publish: out.a}]}"),
        (
            "repeat: {while: 'event.payload.n > index', max: 5}\n    do: [{publish: out.a}]",
            "repeat: {while: 'event.payload.n > index', max: 5, do: [{publish: out.a}]}",
        ),
        (
            "parallel: {branches: [{delay: 5m}, [{wait_for: a.b}]], wait: any}",
            "parallel: [{delay: 5m}, [{wait_for: {event: a.b}}]]\n    wait: any",
        ),
        ("fail: {message: no}", "fail: no"),
        ("http: https://example.org/x", "http: {url: https://example.org/x}"),
        ("wait_for: order.paid\n    timeout: 1d", "wait_for: {event: order.paid}\n    timeout: 1d"),
        ("wait_for: [order.paid, order.lost]", "wait_for: {event: [order.paid, order.lost]}"),
        (
            "wait_until: 'state[\"v1:a:b\"][\"c\"].n > 1'",
            "wait_until: {condition: 'state[\"v1:a:b\"][\"c\"].n > 1'}",
        ),
    ];
    let read = |action: &str| {
        let text = format!("automation: a\ntriggers: [{{event: in.a}}]\nactions:\n  - {action}\n");
        let files = BTreeMap::from([("a.yaml".to_owned(), text)]);
        let checked = check_workspace(&files);
        assert!(!checked.has_errors(), "{}", rendered(&checked, &files));
        definitions(&checked)
    };
    for (shape, ours) in pairs {
        assert_eq!(read(shape), read(ours), "{shape}");
    }
}

#[test]
fn long_files_of_scenarios_are_read_and_bombs_are_not() {
    let one = serde_json::json!({"scenario": "s", "steps": vec![1; 3_000]});
    let long = serde_json::to_string(&vec![one; 100]).unwrap();
    let values = lang::declare::read_values("s.json", &long).unwrap();
    assert_eq!(values[0].as_array().map(Vec::len), Some(100));
    let checked = check_workspace(&BTreeMap::from([("s.json".to_owned(), long)]));
    assert!(checked.findings.is_empty(), "{:?}", checked.findings);
    let bomb = (1..9).fold("a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned(), |text, n| {
        let copies = vec![format!("*a{}", n - 1); 9].join(", ");
        text + &format!("a{n}: &a{n} [{copies}]\n")
    });
    assert!(lang::declare::read_values("bomb.yaml", &bomb).is_err());
}
