//! The README's tour, run as a reader would: between `<!-- tour -->` and `<!-- /tour -->`, each `console` block's `$ `
//! lines, with the `> ` lines that continue them, go to one shell, and what stands under them is what must come out; `…`
//! stands for anything.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{BINARY, Place};

/// A command of the tour and the lines under it.
struct Step {
    command: String,
    expected: Vec<String>,
}

impl Step {
    /// Whether lines after `> ` belong to it: it ends with a backslash, or a here-document is open.
    fn goes_on(&self) -> bool {
        self.command.ends_with('\\') || self.command.contains("<<'END'")
    }
}

#[test]
fn the_tour_of_the_readme_is_true() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let Ok(text) = std::fs::read_to_string(&readme) else {
        assert!(std::env::var_os("CI").is_none(), "there is no README.md");
        println!("there is no README.md yet");
        return;
    };
    let steps = steps(&text);
    assert!(!steps.is_empty(), "README.md has no tour between <!-- tour --> marks");
    let place = Place::new();
    let outputs = run(&steps, &place);
    for (step, output) in steps.iter().zip(outputs) {
        let expected = step.expected.join("\n");
        assert!(
            matches(&expected, output.trim_end()),
            "$ {}\nexpected:\n{expected}\ngot:\n{output}",
            step.command
        );
    }
}

fn steps(readme: &str) -> Vec<Step> {
    let (mut steps, mut in_tour, mut in_block): (Vec<Step>, bool, bool) = (Vec::new(), false, false);
    for line in readme.lines() {
        match line.trim_end() {
            "<!-- tour -->" => in_tour = !in_tour,
            "<!-- /tour -->" => in_tour = false,
            "```console" => in_block = in_tour,
            "```" => in_block = false,
            _ if !in_block => {}
            line => match (line.strip_prefix("$ "), line.strip_prefix("> "), steps.last_mut()) {
                (Some(command), ..) => steps.push(Step { command: command.to_owned(), expected: Vec::new() }),
                (None, Some(more), Some(step)) if step.goes_on() => {
                    step.command = format!("{}\n{more}", step.command);
                }
                (None, _, Some(step)) => step.expected.push(line.to_owned()),
                _ => {}
            },
        }
    }
    steps
}

/// One shell for the whole tour, so that `&` and variables work; a mark that no command prints parts the outputs.
fn run(steps: &[Step], place: &Place) -> Vec<String> {
    let mark = "-- end of a step of the tour --";
    let mut script = String::new();
    for step in steps {
        script += &format!("{{ {}\n}} 2>&1\necho '{mark}'\n", step.command);
    }
    // Whatever the tour left in the background ends with it.
    script += "kill $(jobs -p) 2>/dev/null; wait\n";
    let bin = Path::new(BINARY).parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(bin).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.path())
        .env("PATH", path.unwrap())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(&format!("{mark}\n")).map(str::to_owned).take(steps.len()).collect()
}

/// `…` stands for any text, also over lines.
fn matches(expected: &str, got: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = got.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn a_gap_stands_for_anything() {
    assert!(matches("a … c", "a b c") && matches("…", "x\ny") && matches("a", "a"));
    assert!(!matches("a … c", "a b d") && !matches("a", "ab") && !matches("x…", "ax"));
}
