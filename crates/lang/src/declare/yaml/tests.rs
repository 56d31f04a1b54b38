//! The published JSON Schema and the reader know the same keys.

use serde_json::Value;

use super::{KEYS, MORE, step};

#[test]
fn the_schema_names_every_key_that_is_read_and_no_other() {
    let text = include_str!("../../../../../docs/schema/automation.json");
    let schema: Value = serde_json::from_str(text).unwrap();
    let keys = |of: &str| -> Vec<String> {
        let properties = schema["$defs"][of]["properties"].as_object().unwrap();
        properties.keys().cloned().collect()
    };
    let mut ours: Vec<&str> = KEYS.iter().chain(&MORE).copied().collect();
    ours.sort_unstable();
    assert_eq!(keys("automation"), ours);
    let mut ours: Vec<&str> = step::keys();
    ours.sort_unstable();
    ours.dedup();
    assert_eq!(keys("action"), ours);
    let mut ours = crate::declare::options::trigger_keys();
    ours.sort_unstable();
    ours.dedup();
    assert_eq!(keys("trigger"), ours);
}
