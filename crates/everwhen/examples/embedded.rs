//! Seed 002's Appendix B: publish, a durable subscriber with two workers, and a clean end.

use everwhen::{Ack, Draft, Engine, Problem, Subscription};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let bus = Engine::open("example-data")?;
    let learner = Subscription::new("actions", "learner")
        .workers(2)
        .set("max_inflight", 100)
        .set("backoff", json!({"base": "500ms", "mult": 2, "max": "30s"}))
        .set("max_retries", 5);
    bus.subscribe(learner, |event| async move {
        println!("learned from {} at {}", event.envelope.topic, event.position);
        Ok(Ack)
    })
    .await?;
    let mut action = Draft::new("actions", &json!({"action_id": "a1", "status": "ok"}));
    (action.kind, action.space) = (Some("ACTION_EXECUTED".into()), Some("shared:household".into()));
    action.key = Some("act:a1|ok".into());
    bus.publish(action).await?;
    while bus.main()?.group("learner")?.lag > 0 {
        tokio::task::yield_now().await;
    }
    bus.close().await
}
