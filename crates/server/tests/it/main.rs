//! The doors as a client meets them: a real server on a free port, an engine on a fresh directory, bytes on
//! a socket.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod acts;
mod audit;
mod automations;
mod bounds;
mod changes;
mod client;
mod clock;
mod cloudevents;
mod conditions;
mod corners;
mod edges;
mod entities;
mod events;
mod groups;
mod grpc;
mod harness;
mod hooks;
mod idempotency;
mod json_bodies;
mod leaks;
mod life;
mod logins;
mod maintain;
mod mcp;
mod min_position;
mod ndjson;
mod page;
mod proto;
mod publish;
mod pushes;
mod rights;
mod runs;
mod seed003;
mod shutdown;
mod sights;
mod socket;
mod stream;
mod subscriptions;
mod tasks;
mod tenants;
mod tls;
mod whys;
mod ws;
