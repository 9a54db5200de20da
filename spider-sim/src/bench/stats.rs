//! Numbers into fewer numbers.

use serde::Serialize;

/// Median, least and most over the repetitions.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub(super) struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub(super) median: f64,
    /// The least.
    pub(super) min: f64,
    /// The most.
    pub(super) max: f64,
}

impl Spread {
    /// Of some values; nothing of none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = values.first().zip(values.last())?;
        let middle = values.len() / 2;
        let odd = values.len() % 2 == 1;
        let median = if odd { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }

    /// `1.25 (1.20 – 1.31)`, in units of `unit`.
    pub(super) fn words(&self, unit: f64, digits: usize) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(|value| value / unit);
        format!("{median:.digits$} ({min:.digits$} – {max:.digits$})")
    }
}

/// The value below which a share of `sorted` lies: the nearest one that is there.
pub(super) fn percentile(sorted: &[i64], share: f64) -> i64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
}

/// A share of all that was seen.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub(super) struct Bar {
    /// Least value that counts here.
    pub(super) from: f64,
    /// First that does not.
    pub(super) to: f64,
    /// Share of all.
    pub(super) share: f64,
}

/// How values spread over steps of equal width from `low` to `high`; what lies outside counts at the rim.
pub(super) fn histogram(values: &[i64], low: i64, high: i64, steps: usize) -> Vec<Bar> {
    let steps = steps.max(1);
    let width = ((high - low) as f64 / steps as f64).max(1.0);
    let mut counts = vec![0u64; steps];
    for &value in values {
        let step = ((value - low) as f64 / width).clamp(0.0, (steps - 1) as f64);
        counts[step as usize] += 1;
    }
    let edge = |step: usize| low as f64 + step as f64 * width;
    let share = |count: u64| count as f64 / values.len().max(1) as f64;
    counts
        .iter()
        .enumerate()
        .map(|(step, &count)| Bar { from: edge(step), to: edge(step + 1), share: share(count) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let sorted: Vec<i64> = (0..=1000).collect();
        let of = |share| percentile(&sorted, share);
        assert_eq!((of(0.0), of(0.5), of(0.99), of(0.999), of(1.0)), (0, 500, 990, 999, 1000));
        assert_eq!(percentile(&[], 0.5), 0);
        assert_eq!(percentile(&[7], 0.999), 7);
    }

    #[test]
    fn a_histogram_loses_nothing() {
        let bars = histogram(&[-50, 0, 4, 5, 9, 10, 99], 0, 10, 2);
        assert_eq!((bars[0].from, bars[0].to, bars[1].to), (0.0, 5.0, 10.0));
        assert_eq!((bars[0].share, bars[1].share), (3.0 / 7.0, 4.0 / 7.0));
        assert!(histogram(&[], 0, 10, 2).iter().all(|bar| bar.share == 0.0));
    }
}
