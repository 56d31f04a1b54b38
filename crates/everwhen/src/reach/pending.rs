//! stub
use model::{Code, Problem};
use serde_json::Value;
use std::path::Path;
pub struct R;
impl R {
    pub fn to_json(&self) -> Value {
        Value::Null
    }
}
fn no() -> Problem {
    Problem::new(Code::Internal, "not wired yet")
}
pub fn verify(_: &Path, _: bool, _: &mut dyn FnMut(u64, u64)) -> Result<R, Problem> {
    Err(no())
}
pub fn salvage(_: &Path, _: &Path) -> Result<R, Problem> {
    Err(no())
}
pub fn restore(_: &Path, _: &Path) -> Result<R, Problem> {
    Err(no())
}
pub async fn backup(_: &engine::Engine, _: &Path) -> Result<R, Problem> {
    Err(no())
}
