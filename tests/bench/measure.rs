//! Medians, ratios, and what the kernel says about a process.

use std::time::{Duration, Instant};

/// Durations of one kind.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn take(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Times one call.
    pub(crate) fn of<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = work();
        self.take(started.elapsed());
        done
    }

    /// The value that a share of them does not exceed, 0.5 for the median.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len() - 1;
        #[allow(clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = (last as f64 * share).round() as usize;
        sorted[at.min(last)]
    }

    pub(crate) fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }
}

/// Milliseconds with two decimals.
pub(crate) fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// One line: both medians and their ratio.
pub(crate) fn compare(what: &str, agent: &Times, by_hand: &Times) {
    let (a, b) = (agent.median(), by_hand.median());
    println!(
        "  {what}: {} ÷ {} = {:.3}  (fastest tenth {:.3}, {} rounds)",
        ms(a),
        ms(b),
        a.as_secs_f64() / b.as_secs_f64(),
        agent.quantile(0.1).as_secs_f64() / by_hand.quantile(0.1).as_secs_f64(),
        agent.0.len(),
    );
}

/// One of the sizes in a process's status (`VmHWM`, `VmRSS`, `RssAnon`), in KiB.
pub(crate) fn kib(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(field));
    let line = line.unwrap_or_else(|| panic!("no {field} in\n{text}"));
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
