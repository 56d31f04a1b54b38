//! A refusal of a CloudEvent names what its sender wrote: the attribute or the header, not our field.

use model::Problem;

/// Our fields whose attributes have another name; `ext` has none of its own.
const ATTRIBUTES: [(&str, &str); 6] = [
    ("topic", "type"),
    ("payload", "data"),
    ("trace", "traceparent"),
    ("schema", "dataschema"),
    ("content_type", "datacontenttype"),
    ("caused_by", "ewcausedby"),
];

/// In a structured event or a batch of them.
pub fn structured(problem: Problem) -> Problem {
    let Some(pointer) = problem.pointer() else { return problem };
    let first = pointer.split('/').nth(1).unwrap_or_default();
    let index = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    let (batch, rest) = pointer.split_at(if index { first.len() + 1 } else { 0 });
    let pointer = format!("{batch}{}", renamed(rest));
    problem.at(pointer)
}

/// In a binary event, whose attributes are headers and whose body is the data.
pub fn headers(problem: Problem) -> Problem {
    let Some(pointer) = problem.pointer().map(renamed) else { return problem };
    match pointer.strip_prefix("/data").filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        Some(inside) => problem.at(inside),
        None => {
            let attribute = pointer.split('/').nth(1).unwrap_or_default().to_owned();
            problem.with("parameter", format!("ce-{attribute}")).at(pointer)
        }
    }
}

fn renamed(pointer: &str) -> String {
    let Some(rest) = pointer.strip_prefix('/') else { return pointer.to_owned() };
    let (field, inside) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if field == "ext" {
        return inside.to_owned();
    }
    let known = ATTRIBUTES.iter().find(|(ours, _)| *ours == field);
    format!("/{}{inside}", known.map_or(field, |(_, attribute)| attribute))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Code;

    #[test]
    fn pointers_lead_to_what_was_sent() {
        let at = |pointer: &str| Problem::new(Code::EventInvalid, "wrong").at(pointer);
        for (ours, theirs) in [
            ("/topic", "/type"),
            ("/3/topic", "/3/type"),
            ("/payload/a/0", "/data/a/0"),
            ("/12/payload", "/12/data"),
            ("/ext/device", "/device"),
            ("/space", "/space"),
            ("", ""),
        ] {
            assert_eq!(structured(at(ours)).pointer(), Some(theirs));
        }
        let header = headers(at("/topic"));
        assert_eq!((header.pointer(), &header.extra()["parameter"]), (Some("/type"), &"ce-type".into()));
        assert_eq!(headers(at("/payload/a")).pointer(), Some("/a"));
    }
}
