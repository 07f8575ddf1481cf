//! The most important cells as bars.

use std::fmt::Write;

use super::report::Report;

/// Cells that are drawn: name, and heading.
const CHARTS: [(&str, &str); 3] = [
    ("1 outstanding p50 us", "64 B call, one at a time: median, µs (less is better)"),
    ("64 outstanding calls/s", "64 B calls per second, 64 at once (more is better)"),
    ("16 MiB requests GB/s", "16 MiB requests, GB/s (more is better)"),
];

const WIDTH: f64 = 760.0;
/// Where bars begin: right of their labels.
const LEFT: f64 = 240.0;
/// The longest bar; its value stands right of it.
const BAR_MAX: f64 = 400.0;
const ROW: f64 = 20.0;
const HEADING: f64 = 36.0;

/// Draws each chart below the one before. A thin line shows the range of the rounds.
pub(super) fn draw(report: &Report) -> String {
    let mut body = String::new();
    let mut y = 0.0;
    for (cell, heading) in CHARTS {
        let rows: Vec<_> = report
            .peers
            .iter()
            .filter_map(|peer| Some((*peer, report.cell(*peer, cell)?)))
            .collect();
        let most = rows.iter().map(|(_, spread)| spread.most).fold(f64::MIN_POSITIVE, f64::max);
        y += HEADING;
        // Writing to a string cannot fail.
        let _ = writeln!(body, "<text x='8' y='{}' font-weight='bold'>{heading}</text>", y - 10.0);
        for (peer, spread) in rows {
            let x = |value: f64| LEFT + value / most * BAR_MAX;
            let (colour, middle) = (if peer.is_ours() { "#2a6f97" } else { "#a0a0a0" }, y + 8.0);
            let _ = writeln!(
                body,
                "<text x='{}' y='{}' text-anchor='end'>{}</text>\
                 <rect x='{LEFT}' y='{y}' width='{:.1}' height='15' fill='{colour}'/>\
                 <line x1='{:.1}' x2='{:.1}' y1='{middle}' y2='{middle}' stroke='black'/>\
                 <text x='{:.1}' y='{}'>{:.1}</text>",
                LEFT - 6.0,
                y + 12.0,
                peer.label(),
                x(spread.median) - LEFT,
                x(spread.least),
                x(spread.most),
                x(spread.most) + 6.0,
                y + 12.0,
                spread.median,
            );
            y += ROW;
        }
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{y}' \
         font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n\
         {body}</svg>\n"
    )
}
