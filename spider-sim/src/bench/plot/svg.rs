//! As much of SVG as plots need: a frame with axes, lines, texts.

use std::fmt::{Display, Write};

/// Size of all pictures.
pub(super) const WIDTH: f64 = 840.0;
/// Size of all pictures.
pub(super) const HEIGHT: f64 = 460.0;
/// Where the data is: left, top, right, bottom.
pub(super) const FIELD: (f64, f64, f64, f64) = (92.0, 64.0, 800.0, 386.0);

const INK: &str = "#1f2328";
const FAINT: &str = "#d8dee4";
const QUIET: &str = "#59636e";

/// A picture that grows.
pub(super) struct Svg {
    text: String,
}

/// Where a text has its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A white card with a title.
    pub(super) fn new(title: &str, subtitle: &str) -> Svg {
        let mut svg = Svg {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
                 height=\"{HEIGHT}\" role=\"img\" font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
                 <title>{}</title>\n",
                escaped(title)
            ),
        };
        svg.element(format_args!(
            "<rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#ffffff\" stroke=\"{FAINT}\"/>",
            WIDTH - 1.0,
            HEIGHT - 1.0
        ));
        svg.styled_text(24.0, 30.0, Anchor::Start, 17, INK, "600", title);
        svg.styled_text(24.0, 49.0, Anchor::Start, 12, QUIET, "400", subtitle);
        svg
    }

    fn element(&mut self, element: impl Display) {
        // Nothing can go wrong when writing to a string.
        let _ = writeln!(self.text, "{element}");
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, colour: &str, text: &str) {
        self.styled_text(x, y, anchor, 12, colour, "400", text);
    }

    #[expect(clippy::too_many_arguments, reason = "a text has that many properties")]
    fn styled_text(
        &mut self,
        x: f64,
        y: f64,
        anchor: Anchor,
        size: u32,
        colour: &str,
        weight: &str,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" font-weight=\"{weight}\" \
             fill=\"{colour}\">{}</text>",
            escaped(text)
        ));
    }

    /// A line of the grid with its number, at a height.
    pub(super) fn level(&mut self, y: f64, label: &str) {
        let (left, _, right, _) = FIELD;
        self.line((left, y), (right, y), FAINT, 1.0);
        self.text(left - 8.0, y + 4.0, Anchor::End, QUIET, label);
    }

    /// A mark below the field with its number.
    pub(super) fn tick(&mut self, x: f64, label: &str) {
        let bottom = FIELD.3;
        self.line((x, bottom), (x, bottom + 5.0), QUIET, 1.0);
        self.text(x, bottom + 19.0, Anchor::Middle, QUIET, label);
    }

    /// What the axes show.
    pub(super) fn axes(&mut self, below: &str, beside: &str) {
        let (left, top, right, bottom) = FIELD;
        self.line((left, bottom), (right, bottom), QUIET, 1.0);
        self.text((left + right) / 2.0, bottom + 38.0, Anchor::Middle, INK, below);
        let middle = (top + bottom) / 2.0;
        self.element(format_args!(
            "<text transform=\"translate(24 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" font-size=\"12\" \
             fill=\"{INK}\">{}</text>",
            escaped(beside)
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        self.element(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], colour: &str, fill: &str, dashes: &str) {
        let mut path = String::new();
        for (n, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { "M" } else { " L" });
        }
        self.element(format_args!(
            "<path d=\"{path}\" fill=\"{fill}\" fill-opacity=\"0.18\" stroke=\"{colour}\" stroke-width=\"2.2\" \
             stroke-linejoin=\"round\" stroke-dasharray=\"{dashes}\"/>"
        ));
    }

    pub(super) fn dot(&mut self, at: (f64, f64), colour: &str) {
        self.element(format_args!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>",
            at.0, at.1
        ));
    }

    /// Names of the lines, below everything, in one row.
    pub(super) fn legend(&mut self, entries: &[(&str, &str)]) {
        let mut x = FIELD.0;
        for (colour, name) in entries {
            let y = HEIGHT - 17.0;
            self.line((x, y - 4.0), (x + 18.0, y - 4.0), colour, 3.0);
            self.text(x + 24.0, y, Anchor::Start, INK, name);
            // About as wide as its letters.
            x += 24.0 + name.chars().count() as f64 * 6.3 + 22.0;
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `1 k`, `10 M`.
pub(super) fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{} M", trimmed(n / 1e6)),
        n if n >= 1e3 => format!("{} k", trimmed(n / 1e3)),
        n => trimmed(n),
    }
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every element is closed in its order, every text escaped.
    pub(in crate::bench) fn is_well_formed(svg: &str) -> bool {
        let mut open = Vec::new();
        for part in svg.split('<').skip(1) {
            let Some((tag, text)) = part.split_once('>') else { return false };
            let quotes = tag.matches('"').count();
            if quotes % 2 != 0
                || text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").contains('&')
            {
                return false;
            }
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) if open.pop() != Some(name) => return false,
                (false, false) => open.push(name),
                _ => {}
            }
        }
        open.is_empty() && svg.starts_with("<svg ") && !svg.contains("NaN") && !svg.contains("inf")
    }

    #[test]
    fn texts_are_escaped_and_elements_closed() {
        let mut svg = Svg::new("a < b & c", "");
        svg.legend(&[("#000", "x > y")]);
        let text = svg.finish();
        assert!(text.contains("a &lt; b &amp; c") && is_well_formed(&text), "{text}");
        assert!(!is_well_formed("<svg x=\"1\"><g></svg>"));
        assert!(!is_well_formed("<svg x=\"1\">a & b</svg>"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(["950", "1 k", "1.5 M"], [950.0, 1e3, 1.5e6].map(short).each_ref().map(String::as_str));
    }
}
