//! The things that count: atomics without a lock.
//!
//! Every cell is updated and read with relaxed order: a scrape is a set of single
//! readings, not a snapshot, and nothing is decided by a metric.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::labels::Label;

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// `by` more.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Relaxed);
    }

    /// Takes over a total that is counted elsewhere; it never goes back.
    pub fn set(&self, total: u64) {
        self.0.fetch_max(total, Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A value that goes up and down and is never negative.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Sets the value to that of a length.
    pub fn set_len(&self, value: usize) {
        self.set(u64::try_from(value).unwrap_or(u64::MAX));
    }

    /// Sets 1 for true, 0 for false.
    pub fn set_bool(&self, value: bool) {
        self.set(u64::from(value));
    }

    /// One more.
    pub fn inc(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// One less; a gauge at 0 stays there.
    pub fn dec(&self) {
        // An Err says that the value was 0, which is where it stays.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |v| v.checked_sub(1));
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One cell for each value of a label.
#[derive(Debug)]
pub struct By<L, C> {
    cells: Vec<C>,
    label: PhantomData<fn(L)>,
}

impl<L: Label, C> By<L, C> {
    pub(crate) fn with(make: impl Fn() -> C) -> Self {
        Self {
            cells: L::ALL.iter().map(|_| make()).collect(),
            label: PhantomData,
        }
    }

    /// The cell of one label value.
    #[must_use]
    pub fn of(&self, label: L) -> &C {
        // `with` made a cell for each value, in the order that `index` counts.
        &self.cells[label.index()]
    }

    /// Every value with its cell.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (L, &C)> {
        L::ALL.iter().copied().zip(&self.cells)
    }
}

impl<L: Label, C: Default> Default for By<L, C> {
    fn default() -> Self {
        Self::with(C::default)
    }
}

/// How often something took how long, in buckets of seconds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One a bound, then one for everything above the last; not cumulative.
    counts: Vec<AtomicU64>,
    sum_micros: AtomicU64,
}

impl Histogram {
    /// A histogram with these upper bounds in seconds, ascending.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_micros: AtomicU64::new(0),
        }
    }

    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    /// The same as a list, for who measures.
    #[must_use]
    pub fn bounds(&self) -> Vec<(f64, u64)> {
        self.cumulative().collect()
    }

    /// Every bound with the count of durations up to it, ascending.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut total: u64 = 0;
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).map(move |(bound, count)| {
            total = total.saturating_add(count.load(Relaxed));
            (bound, total)
        })
    }

    /// The sum of all durations in seconds.
    pub(crate) fn sum(&self) -> f64 {
        Duration::from_micros(self.sum_micros.load(Relaxed)).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::DeleteKind;
    use super::*;

    #[test]
    fn a_counter_never_goes_back() {
        let counter = Counter::default();
        counter.add(3);
        counter.set(2);
        assert_eq!(counter.get(), 3);
        counter.set(9);
        assert_eq!(counter.get(), 9);
    }

    #[test]
    fn a_gauge_never_goes_below_zero() {
        let gauge = Gauge::default();
        gauge.dec();
        assert_eq!(gauge.get(), 0);
        gauge.inc();
        gauge.inc();
        gauge.dec();
        assert_eq!(gauge.get(), 1);
        gauge.set_bool(true);
        gauge.set_len(7);
        assert_eq!(gauge.get(), 7);
    }

    #[test]
    fn each_label_has_its_own_cell() {
        let by: By<DeleteKind, Counter> = By::default();
        by.of(DeleteKind::Backend).add(3);
        let read: Vec<_> = by.iter().map(|(l, c)| (l, c.get())).collect();
        assert_eq!(read, [(DeleteKind::Server, 0), (DeleteKind::Backend, 3)]);
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for millis in [50, 100, 101, 1000, 5000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let counts: Vec<_> = histogram.cumulative().map(|(_, n)| n).collect();
        assert_eq!(counts, [2, 4, 5]);
        assert!((histogram.sum() - 6.251).abs() < 1e-9);
    }
}
