//! `bench auth`: what a token costs a request, in process: known by its hash, asked for what the route needs.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use engine::authority::{Role, Terms};
use engine::{Caller, Engine};
use model::{Code, Problem};
use serde_json::{Map, Value, json};

use super::measure::{report, round};

const ROUNDS: u32 = 5;
const REQUESTS: u32 = 100_000;

pub async fn run(dir: &Path, tokens: usize) -> Result<Value, Problem> {
    let engine = Engine::open(dir)?;
    let (main, mut texts) = (engine.main()?, Vec::new());
    for n in 0..tokens.max(1) {
        let terms = Terms { name: format!("bench {n}"), ..Terms::of(Role::ALL[n % Role::ALL.len()]) };
        texts.push(engine.authority().create(&main, &Caller::local(), terms).await?.0);
    }
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for n in 0..REQUESTS {
            let text = &texts[n as usize % texts.len()];
            black_box(server::may(&engine, black_box(text), "POST", "/v1/events"))?;
        }
        best = best.min(started.elapsed().as_secs_f64() / f64::from(REQUESTS));
    }
    if server::may(&engine, "ew_owner_nonsense", "POST", "/v1/events").is_ok() {
        return Err(Problem::new(Code::Internal, "a token that was never given out was let in"));
    }
    engine.close().await?;
    let result = Map::from_iter([("auth_us".to_owned(), json!(round(best * 1e6, 3)))]);
    Ok(report("auth", json!({ "tokens": texts.len() }), result, dir))
}
