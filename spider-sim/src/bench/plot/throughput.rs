//! URLs per second against hosts, both in powers of ten.

use super::svg::{Anchor, FIELD, Svg, short};
use crate::bench::throughput::{Case, Row};

fn style(case: Case) -> (&'static str, &'static str) {
    match case {
        Case::Urlserver => ("#cf222e", ""),
        Case::Ideal => ("#59636e", "6 4"),
        Case::Floor => ("#afb8c1", "2 4"),
        Case::Redis => ("#bc4c00", ""),
        Case::Beanstalkd => ("#1a7f37", ""),
        Case::Postgres => ("#0969da", ""),
    }
}

/// Short enough for a legend in one row.
fn name(case: Case) -> &'static str {
    match case {
        Case::Urlserver => "urlserver",
        Case::Ideal => "ideal structure",
        Case::Floor => "bare lines",
        Case::Redis => "Redis ×100",
        Case::Beanstalkd => "beanstalkd",
        Case::Postgres => "PostgreSQL ×100",
    }
}

/// Powers of ten around some values.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn around(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let logs = values.map(|value| value.max(1.0).log10());
        let low = logs.clone().fold(f64::INFINITY, f64::min).floor();
        let high = logs.fold(f64::NEG_INFINITY, f64::max).ceil();
        Scale { low, high: high.max(low + 1.0) }
    }

    fn at(&self, value: f64, from: f64, to: f64) -> f64 {
        from + (value.max(1.0).log10() - self.low) / (self.high - self.low) * (to - from)
    }

    fn powers(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power))
    }
}

/// Nothing if there is nothing to draw.
pub(super) fn draw(rows: &[Row]) -> Option<String> {
    let first = rows.first()?;
    let (left, top, right, bottom) = FIELD;
    let across = Scale::around(rows.iter().map(|row| f64::from(row.hosts)));
    let up = Scale::around(rows.iter().flat_map(|row| [row.urls_per_sec.min, row.urls_per_sec.max]));
    let x = |hosts: u32| across.at(f64::from(hosts), left + 40.0, right - 40.0);
    let y = |rate: f64| up.at(rate, bottom, top);
    let subtitle = format!(
        "{} URLs of {:.0} bytes, one of a host in flight; one core for the server; median of {}, bars from least to most",
        short(first.urls as f64),
        first.url_bytes_mean,
        first.runs
    );
    let mut svg = Svg::new("URLs handed out and acknowledged per second", &subtitle);
    for rate in up.powers() {
        svg.level(y(rate), &short(rate));
    }
    let mut hosts: Vec<u32> = rows.iter().map(|row| row.hosts).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.iter().for_each(|&hosts| svg.tick(x(hosts), &short(f64::from(hosts))));
    svg.axes("hosts", "URLs per second");
    let cases = Case::ALL.into_iter().filter(|&case| rows.iter().any(|row| row.case == case));
    let cases: Vec<Case> = cases.collect();
    for &case in cases.iter().rev() {
        let mut own: Vec<&Row> = rows.iter().filter(|row| row.case == case).collect();
        own.sort_by_key(|row| row.hosts);
        draw_case(&mut svg, case, &own, x, y);
    }
    svg.legend(&cases.iter().map(|&case| (style(case).0, name(case))).collect::<Vec<_>>());
    Some(svg.finish())
}

fn draw_case(svg: &mut Svg, case: Case, rows: &[&Row], x: impl Fn(u32) -> f64, y: impl Fn(f64) -> f64) {
    let (colour, dashes) = style(case);
    let points: Vec<(f64, f64)> = rows.iter().map(|row| (x(row.hosts), y(row.urls_per_sec.median))).collect();
    svg.path(&points, colour, "none", dashes);
    for (row, &point) in rows.iter().zip(&points) {
        let at = x(row.hosts);
        svg.line((at, y(row.urls_per_sec.min)), (at, y(row.urls_per_sec.max)), colour, 1.4);
        svg.dot(point, colour);
    }
    if let Some((row, &(x, y))) = rows.last().zip(points.last()) {
        svg.text(x + 9.0, y - 6.0, Anchor::Start, colour, &short_rate(row.urls_per_sec.median));
    }
}

/// Two digits are enough beside a point.
fn short_rate(rate: f64) -> String {
    let unit = 10f64.powf(rate.max(1.0).log10().floor() - 1.0);
    short((rate / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plot::svg::tests::is_well_formed;
    use crate::bench::report::tests::results;

    #[test]
    fn every_case_has_its_line_and_its_name() {
        let svg = draw(&results().throughput).unwrap_or_default();
        assert!(is_well_formed(&svg), "{svg}");
        for words in [">urlserver<", ">ideal structure<", ">Redis ×100<", ">hosts<", ">100 k<", ">1.2 M<"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        assert!(!svg.contains("PostgreSQL"));
        assert_eq!(svg.matches("<circle").count(), 6);
        assert_eq!(draw(&[]), None);
    }

    #[test]
    fn one_point_is_drawn_too() {
        let svg = draw(&results().throughput[..1]).unwrap_or_default();
        assert!(is_well_formed(&svg), "{svg}");
    }
}
