//! `bench tenants --http`: the quiet tenant and its neighbour as connections of one server, each with a token of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Caller, Tenant};
use model::Problem;
use serde_json::Value;
use tokio::task::JoinSet;

use super::connection::{Connection, authorized, post};
use super::{Served, on_one_thread, token};
use crate::bench::failed;
use crate::bench::measure::Latencies;
use crate::bench::tenants::{Load, PAUSE, in_turns, quota, steady, told};

/// A tenant that publishes over HTTP: the bytes it sends.
type Request = Arc<[u8]>;

pub fn run(dir: &Path, load: Load) -> Result<Value, Problem> {
    let served = Served::asking(dir)?;
    let engine = &served.engine;
    let made = served.runtime.block_on(async {
        let (quiet, loud) = (engine.tenant("quiet")?, engine.tenant("loud")?);
        engine.set_quota(&Caller::local(), "loud", quota(load)).await?;
        Ok::<_, Problem>((request(&served, &quiet).await?, request(&served, &loud).await?))
    });
    let (quiet, loud) = made?;
    let address = served.address;
    let measured = in_turns(load, |beside, events| {
        let over = Arc::new(AtomicBool::new(false));
        let flood = beside.then(|| {
            let (over, loud) = (over.clone(), loud.clone());
            std::thread::spawn(move || on_one_thread(flood(address, load.publishers, loud, over)))
        });
        let latencies = measured(address, &quiet, load.rate, events);
        over.store(true, Ordering::Relaxed);
        let neighbour = match flood {
            Some(flood) => flood.join().map_err(|_| failed("the neighbour panicked"))??,
            None => (0, 0),
        };
        Ok((latencies?, neighbour))
    });
    served.stop()?;
    Ok(told(dir, load, &measured?, true))
}

async fn request(served: &Served, tenant: &Tenant) -> Result<Request, Problem> {
    let token = token(&served.engine, tenant).await?;
    Ok(authorized(post("/v1/events", r#"{"topic":"bench.some","payload":{"n":1}}"#), Some(&token)).into())
}

fn measured(address: SocketAddr, request: &Request, rate: u64, events: u64) -> Result<Latencies, Problem> {
    on_one_thread(async {
        let mut connection = Connection::open(address).await.map_err(failed)?;
        steady(rate, events, async |_| connection.exchange(request).await.map(|_| ()).map_err(failed)).await
    })
}

/// How many of its events were taken, and how many refused.
async fn flood(
    address: SocketAddr,
    publishers: usize,
    request: Request,
    over: Arc<AtomicBool>,
) -> Result<(u64, u64), Problem> {
    let mut tasks = JoinSet::new();
    for _ in 0..publishers {
        let (request, over) = (request.clone(), over.clone());
        let mut connection = Connection::open(address).await.map_err(failed)?;
        tasks.spawn(async move {
            let (mut taken, mut refused) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                match connection.ask(&request).await.map_err(failed)? {
                    (201, _) => taken += 1,
                    (429, _) => {
                        refused += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                    (status, body) => return Err(failed(format!("the server answered {status}: {body}"))),
                }
            }
            Ok((taken, refused))
        });
    }
    let mut counts = (0, 0);
    while let Some(done) = tasks.join_next().await {
        let (taken, refused): (u64, u64) = done.map_err(failed)??;
        counts = (counts.0 + taken, counts.1 + refused);
    }
    Ok(counts)
}
