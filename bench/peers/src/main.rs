//! `peers`: the same durable loads against Everwhen, Redis Streams and NATS JetStream, side by side in one table.
//!
//! ```text
//!  load ─▶ driver ─▶ wire ─▶ a server of bench/peers.sh
//!  1, 16,  one thread, N     what a publish and its
//!  256     connections       answer look like
//! ```

mod deliver;
mod driver;
mod publish;
mod table;
mod wire;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use wire::{Kind, Peer};

const USAGE: &str = "\
usage: peers [--everwhen ADDR] [--redis ADDR] [--nats ADDR] [--seconds S] [--rounds N] [--bytes N]
             [--publishers N,N…] [--json]
       peers --free-port";

/// What is measured, and how long.
pub struct Plan {
    pub peers: Vec<Peer>,
    pub seconds: Duration,
    pub rounds: usize,
    pub bytes: usize,
    /// How many publish at once; each of these by itself.
    pub publishers: Vec<usize>,
    pub json: bool,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "--free-port") {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        return port.map_or_else(|error| fail(&error.to_string()), |at| println!("{}", at.port()));
    }
    match plan(&args).and_then(|plan| measure(&plan)) {
        Ok(text) => print!("{text}"),
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) {
    eprintln!("error: {error}");
    std::process::exit(1);
}

fn plan(args: &[String]) -> Result<Plan, String> {
    let (seconds, publishers) = (Duration::from_secs(2), vec![1, 16, 256]);
    let mut plan = Plan { peers: Vec::new(), seconds, rounds: 3, bytes: 512, publishers, json: false };
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        if flag == "--json" {
            plan.json = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("\"{flag}\" needs a value\n{USAGE}"))?;
        let wrong = || format!("\"{value}\" is no value for {flag}\n{USAGE}");
        let peer =
            |kind| value.parse::<SocketAddr>().map(|address| Peer { kind, address }).map_err(|_| wrong());
        match flag.as_str() {
            "--everwhen" => plan.peers.push(peer(Kind::Everwhen)?),
            "--redis" => plan.peers.push(peer(Kind::Redis)?),
            "--nats" => plan.peers.push(peer(Kind::Nats)?),
            "--seconds" => plan.seconds = Duration::from_secs_f64(value.parse().map_err(|_| wrong())?),
            "--rounds" => plan.rounds = value.parse::<usize>().map_err(|_| wrong())?.max(1),
            "--publishers" => {
                let counts: Result<_, _> = value.split(',').map(str::parse).collect();
                plan.publishers = counts.map_err(|_| wrong())?;
            }
            "--bytes" => plan.bytes = value.parse().map_err(|_| wrong())?,
            _ => return Err(format!("there is no flag \"{flag}\"\n{USAGE}")),
        }
    }
    if plan.peers.is_empty() { Err(USAGE.to_owned()) } else { Ok(plan) }
}

/// Rounds go around all peers, so that a slow minute of the machine meets each of them.
fn measure(plan: &Plan) -> Result<String, String> {
    for peer in &plan.peers {
        on_one_thread(wire::prepare(*peer))?;
    }
    let mut published = Vec::new();
    for publishers in plan.publishers.iter().copied() {
        for round in 0..plan.rounds {
            for peer in &plan.peers {
                let rate = publish::run(*peer, publishers, plan).map_err(|error| error.to_string())?;
                eprintln!(
                    "{} {publishers} publishers, round {}: {:.0}/s",
                    peer.kind.name(),
                    round + 1,
                    rate.per_s
                );
                published.push((peer.kind, publishers, rate));
            }
        }
    }
    let mut delivered = Vec::new();
    for _ in 0..plan.rounds {
        for peer in &plan.peers {
            delivered.push((peer.kind, on_one_thread(deliver::run(*peer, plan))?));
        }
    }
    let kinds: Vec<Kind> = plan.peers.iter().map(|peer| peer.kind).collect();
    Ok(table::render(&kinds, &published, &delivered, plan.json))
}

/// One thread for every client, so that the server has the rest of the machine, the same for each peer.
pub fn on_one_thread<T>(future: impl Future<Output = std::io::Result<T>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.and_then(|runtime| runtime.block_on(future)).map_err(|error| error.to_string())
}
