//! A strict scanner for JSON as clients send it.
