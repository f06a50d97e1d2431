//! What an engine really computed. A prompt that the prefix cache has costs nothing: an engine whose clients repeat
//! themselves takes in many times the tokens for the same work, and a cold cache is no loss of progress.

use gpuprod_snapshot::Reading;
use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::units::to_f64;
use serde::{Deserialize, Serialize};

/// Prompt tokens cost about a tenth of generated ones: prefill is bound by arithmetic and runs thousands of
/// tokens a step, decode is bound by memory and runs one per sequence. A prior until both rates are learnt apart.
const PREFILL_PER_DECODE: f64 = 10.0;
/// Look-ups are counted when a request is admitted and its prompt when it is through, seconds later: the share of hits
/// looks back so far.
const LOOKS_BACK: f64 = 3.0;

/// The share of the prompts that the prefix cache had lately. The unit of the counters (tokens, or blocks in old
/// versions) does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prefix {
    asked: f64,
    found: f64,
}

impl Prefix {
    /// Takes in two pages that are so many seconds apart.
    pub(super) fn see(&mut self, before: &Engine, after: &Engine, seconds: f64) {
        let gained =
            |pick: fn(&Engine) -> &Reading<u64>| pick(after).copied()?.checked_sub(pick(before).copied()?).map(to_f64);
        let (Some(asked), Some(found)) = (gained(|page| &page.prefix_queries), gained(|page| &page.prefix_hits)) else {
            *self = Self::default();
            return;
        };
        // While nobody asks, the last share stands.
        if asked > 0.0 {
            let left = (1.0 - seconds / LOOKS_BACK).max(0.0);
            (self.asked, self.found) = (self.asked * left + asked, self.found * left + found);
        }
    }

    /// The part of the prompts that had to be computed; all of them where the page shows no such cache.
    pub(crate) fn computed(self) -> f64 {
        if self.asked > 0.0 { 1.0 - (self.found / self.asked).clamp(0.0, 1.0) } else { 1.0 }
    }
}

/// Work between two pages of one engine, in generated tokens; nothing when a counter is missing or stepped back (a
/// restart).
pub(super) fn work(before: &Engine, after: &Engine, prefix: Prefix) -> Option<f64> {
    let delta = |before: &Reading<u64>, after: &Reading<u64>| match (before.copied(), after.copied()) {
        (Some(before), Some(after)) => after.checked_sub(before).map(Some),
        _ => Some(None),
    };
    let generated = delta(&before.generation_tokens, &after.generation_tokens)?;
    let prompt = delta(&before.prompt_tokens, &after.prompt_tokens)?;
    match (generated, prompt) {
        (None, None) => None,
        (generated, prompt) => {
            let prompt = to_f64(prompt.unwrap_or(0)) * prefix.computed();
            Some(to_f64(generated.unwrap_or(0)) + prompt / PREFILL_PER_DECODE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(generated: u64, prompt: u64, cache: Option<(u64, u64)>) -> Engine {
        let mut page =
            Engine { generation_tokens: generated.into(), prompt_tokens: prompt.into(), ..Engine::default() };
        if let Some((asked, found)) = cache {
            (page.prefix_queries, page.prefix_hits) = (asked.into(), found.into());
        }
        page
    }

    /// Generated tokens, prompt tokens, and the cache's look-ups and hits: one page.
    type Page = (u64, u64, Option<(u64, u64)>);

    fn done(steps: &[Page]) -> Option<f64> {
        let mut prefix = Prefix::default();
        let mut last = None;
        for pair in steps.windows(2) {
            let [before, after] = pair else { continue };
            let (before, after) = (page(before.0, before.1, before.2), page(after.0, after.1, after.2));
            prefix.see(&before, &after, 1.0);
            last = work(&before, &after, prefix);
        }
        last
    }

    #[test]
    fn what_the_cache_has_is_no_work() {
        // A thousand generated tokens are a thousand; ten thousand prompt tokens are as much, if they are computed.
        assert_eq!(done(&[(0, 0, None), (1000, 10_000, None)]), Some(2000.0));
        // Nine of ten from the cache, in tokens or in blocks of sixteen.
        assert_eq!(done(&[(0, 0, Some((0, 0))), (1000, 10_000, Some((10_000, 9_000)))]), Some(1100.0));
        assert_eq!(done(&[(0, 0, Some((0, 0))), (1000, 10_000, Some((625, 562)))]).map(f64::floor), Some(1100.0));
        // A look-up a second before its prompt is through.
        let late = [(0, 0, Some((0, 0))), (0, 0, Some((10_000, 10_000))), (1000, 10_000, Some((10_000, 10_000)))];
        assert_eq!(done(&late), Some(1000.0));
        // More hits than look-ups, and counters that began anew, take nothing away and give nothing.
        assert_eq!(done(&[(0, 0, Some((0, 0))), (1000, 10_000, Some((10, 90)))]), Some(1000.0));
        assert_eq!(done(&[(0, 0, Some((9, 9))), (1000, 10_000, Some((1, 1)))]), Some(2000.0));
        assert_eq!(done(&[(5, 0, None), (0, 0, None)]), None);
    }
}
