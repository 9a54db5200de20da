//! Pictures for people: SVG by hand, with a background of its own, so that it reads on light and on dark pages.

mod exactness;
mod svg;
mod throughput;

use super::report::Results;
use std::path::Path;

/// Draws what was measured into a directory, which is made if it is not there.
pub(super) fn write(directory: &Path, results: &Results) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let plots = [
        ("throughput.svg", throughput::draw(&results.throughput)),
        ("exactness.svg", results.exactness.as_ref().map(exactness::draw)),
    ];
    for (name, svg) in plots {
        if let Some(svg) = svg {
            std::fs::write(directory.join(name), svg)?;
            eprintln!("drawn: {}", directory.join(name).display());
        }
    }
    Ok(())
}
