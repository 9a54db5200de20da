//! The histogram of the politeness error: the server, and the machine's own noise.

use super::svg::{Anchor, FIELD, Svg, short};
use crate::bench::exactness::{Errors, Exactness};

const SERVER: &str = "#cf222e";
const IDEAL: &str = "#59636e";
/// Shares are shown down to this.
const SHARE_MIN: f64 = 1e-5;

/// Steps, of which shares in powers of ten.
pub(super) fn draw(seen: &Exactness) -> String {
    let (left, top, right, bottom) = FIELD;
    let bars = seen.urlserver.histogram.iter().chain(&seen.ideal.histogram);
    let (low, high) = bars.fold((0.0f64, 1.0f64), |(low, high), bar| (low.min(bar.from), high.max(bar.to)));
    let x = |us: f64| left + (us - low) / (high - low) * (right - left);
    let floor = SHARE_MIN.log10();
    let y = |share: f64| bottom - (share.max(SHARE_MIN).log10() - floor) / -floor * (bottom - top);
    let subtitle = format!(
        "{} hosts, a send to each every {} s; distance of two lines at the client minus the gap; {} and {} gaps",
        short(f64::from(seen.hosts)),
        seen.gap_seconds,
        short(seen.urlserver.sends as f64),
        short(seen.ideal.sends as f64)
    );
    let mut svg = Svg::new("How exactly the gap is kept", &subtitle);
    for power in 0..=5 {
        let share = 10f64.powi(-power);
        svg.level(y(share), &format!("{} %", short_share(share * 100.0)));
    }
    let step = step(high - low);
    let first = (low / step).ceil() as i64;
    for us in (first..).map(|n| n as f64 * step).take_while(|&us| us <= high) {
        svg.tick(x(us), &format!("{us}"));
    }
    svg.axes(
        "error of a send, µs (0 = exactly the gap; the last step has all that is above)",
        "share of all",
    );
    for (errors, colour) in [(&seen.ideal, IDEAL), (&seen.urlserver, SERVER)] {
        svg.path(&outline(errors, x, y), colour, colour, "");
    }
    for (n, (name, errors, colour)) in
        [("urlserver", &seen.urlserver, SERVER), ("a loop and a clock", &seen.ideal, IDEAL)]
            .iter()
            .enumerate()
    {
        let text = format!("{name}: p99 {}, p99.9 {}", time(errors.p99_us), time(errors.p999_us));
        svg.text(right - 8.0, top + 14.0 + 18.0 * n as f64, Anchor::End, colour, &text);
    }
    svg.legend(&[(SERVER, "urlserver"), (IDEAL, "the same schedule kept by a loop that does nothing else")]);
    svg.finish()
}

fn outline(errors: &Errors, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for bar in &errors.histogram {
        points.extend([(x(bar.from), y(bar.share)), (x(bar.to), y(bar.share))]);
    }
    let ends = errors.histogram.first().zip(errors.histogram.last());
    if let Some((first, last)) = ends {
        points.insert(0, (x(first.from), y(0.0)));
        points.push((x(last.to), y(0.0)));
    }
    points
}

/// A round distance of which five to ten or so fit.
fn step(range: f64) -> f64 {
    let power = 10f64.powf((range / 5.0).max(1.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|n| n * power).find(|step| range / step >= 5.0).unwrap_or(power)
}

/// Microseconds, or milliseconds where those are many.
fn time(us: f64) -> String {
    if us.abs() < 10_000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1000.0) }
}

fn short_share(percent: f64) -> String {
    format!("{percent:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bench::plot::svg::tests::is_well_formed;
    use crate::bench::report::tests::results;

    #[test]
    fn both_histograms_are_there() {
        let svg = draw(&results().exactness.unwrap());
        assert!(is_well_formed(&svg), "{svg}");
        for words in ["urlserver: p99 200 µs", "loop that does nothing else", "100 %", "0.001 %"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([40.0, 1000.0, 7000.0].map(step), [5.0, 200.0, 1000.0]);
        assert_eq!([time(217.4), time(-12_345.0)], ["217 µs", "-12.3 ms"]);
    }
}
