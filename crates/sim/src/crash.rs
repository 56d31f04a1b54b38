//! Kills and power cuts of the real thing.
