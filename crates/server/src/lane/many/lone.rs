//! Whether all who publish on a thread are of one tenant: then a commit there keeps nobody waiting but those it is for.

use std::time::Duration;

/// How long nobody else must have published. Who comes after that waits for one commit of another's.
const ALONE_FOR: Duration = Duration::from_secs(1);

/// Who published last, and since when nobody else has.
#[derive(Default)]
pub struct Lone(Option<(String, Duration)>);

impl Lone {
    pub fn note(&mut self, tenant: &str, now: Duration) {
        match &self.0 {
            Some((last, _)) if last == tenant => {}
            Some(_) => self.0 = Some((tenant.to_owned(), now)),
            // Nobody ever was there before.
            None => self.0 = Some((tenant.to_owned(), Duration::ZERO)),
        }
    }

    pub fn is_alone(&self, now: Duration) -> bool {
        let long_enough = |(_, since): &(String, Duration)| now.saturating_sub(*since) >= ALONE_FOR;
        self.0.as_ref().is_some_and(long_enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_one_is_alone_until_somebody_else_comes() {
        let (mut lone, at) = (Lone::default(), |millis: u64| Duration::from_millis(10_000 + millis));
        assert!(!lone.is_alone(at(0)), "nobody is there");
        lone.note("a", at(0));
        assert!(lone.is_alone(at(0)), "nobody else ever was");
        lone.note("b", at(1));
        assert!(!lone.is_alone(at(1)), "a may come again");
        lone.note("b", at(1_000));
        assert!(!lone.is_alone(at(1_000)));
        assert!(lone.is_alone(at(1_001)));
        lone.note("a", at(1_002));
        assert!(!lone.is_alone(at(1_002)));
    }
}
