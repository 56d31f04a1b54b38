//! Durations of definitions as JSON: written as a number of seconds, read in every form of contracts §0.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::time::{duration_json, duration_of};

pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    duration_json(*duration).serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    duration_of(&value).ok_or_else(|| de::Error::custom(format!("{value} is not a duration")))
}

/// The same for a duration that may be absent; needs `default` and `skip_serializing_if` beside it.
pub mod maybe {
    use super::*;

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(duration_json).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
