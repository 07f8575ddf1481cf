//! A chart of latency against load, as SVG: lines on a linear and a logarithmic axis, and nothing else.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// Colours that are told apart also by those who see fewer of them.
const COLOURS: [&str; 4] = ["#0072b2", "#e69f00", "#009e73", "#d55e00"];

/// A line: its name, and points of load (each second) and latency (in microseconds, above 0).
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws lines under a title.
pub(crate) fn draw(title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let x_max = points().map(|point| point.0).fold(1.0, f64::max) * 1.02;
    let y = |pick: fn(f64, f64) -> f64, first| points().map(|point| point.1).fold(first, pick);
    let low = y(f64::min, f64::MAX).clamp(0.001, 1e12).log10().floor();
    let high = y(f64::max, 0.001).clamp(0.001, 1e12).log10().ceil().max(low + 1.0);
    let to_x = |x: f64| LEFT + x / x_max * (WIDTH - LEFT - RIGHT);
    let to_y = |y: f64| {
        let part = (y.clamp(0.001, 1e12).log10() - low) / (high - low);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, LEFT, 24.0, "start", title);
    let step = tick(x_max);
    let ticks = (0..).map(|i| f64::from(i) * step).take_while(|x| *x <= x_max);
    for x in ticks {
        rule(&mut svg, (to_x(x), TOP), (to_x(x), HEIGHT - BOTTOM));
        text(&mut svg, to_x(x), HEIGHT - BOTTOM + 18.0, "middle", &format!("{x:.0}"));
    }
    for power in low as i32..=high as i32 {
        let micros = 10_f64.powi(power);
        rule(&mut svg, (LEFT, to_y(micros)), (WIDTH - RIGHT, to_y(micros)));
        text(&mut svg, LEFT - 6.0, to_y(micros) + 4.0, "end", &micros_text(micros));
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    text(&mut svg, middle, HEIGHT - 16.0, "middle", "operations offered each second");
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for (x, y) in &line.points {
            _ = write!(path, "{:.1},{:.1} ", to_x(*x), to_y(*y));
            _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                to_x(*x),
                to_y(*y),
            );
        }
        _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.trim_end(),
        );
        if let Some((x, y)) = line.points.last() {
            text(&mut svg, to_x(*x) + 8.0, to_y(*y) + 4.0, "start", &line.name);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>");
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
        from.0, from.1, to.0, to.1,
    );
}

/// The distance of ticks, so that there are four to ten: 1, 2 or 5 times a power of ten.
fn tick(max: f64) -> f64 {
    let power = 10_f64.powf((max / 4.0).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|times| times * power);
    steps.into_iter().find(|step| max / step >= 4.0).unwrap_or(power)
}

fn micros_text(micros: f64) -> String {
    match micros {
        _ if micros >= 1e6 => format!("{} s", micros / 1e6),
        _ if micros >= 1e3 => format!("{} ms", micros / 1e3),
        _ => format!("{micros} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside_and_names_are_escaped() {
        let points = vec![(100.0, 12.0), (5_000.0, 40.0), (9_900.0, 90_000.0)];
        let lines = [Line { name: "p99 <&>".into(), points }];
        let svg = draw("a & b", &lines);
        assert!(svg.contains("a &amp; b") && svg.contains("p99 &lt;&amp;>"), "{svg}");
        let number = |line: &str, name: &str| -> f64 {
            line.split_once(&format!("{name}=\""))
                .unwrap()
                .1
                .split('"')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let circles: Vec<&str> = svg.lines().filter(|line| line.starts_with("<circle")).collect();
        assert_eq!(circles.len(), 3);
        for circle in circles {
            assert!((LEFT..=WIDTH - RIGHT).contains(&number(circle, "cx")), "{circle}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&number(circle, "cy")), "{circle}");
        }
    }

    #[test]
    fn ticks_are_round_numbers_and_not_too_many() {
        assert_eq!((tick(100.0), tick(9_000.0), tick(50_000.0)), (20.0, 2_000.0, 10_000.0));
        for max in 1..2_000 {
            let count = f64::from(max) / tick(f64::from(max));
            assert!((4.0..=10.0).contains(&count), "{max}: {count}");
        }
    }

    #[test]
    fn nothing_measured_draws_nothing_and_does_not_fail() {
        assert!(draw("empty", &[]).ends_with("</svg>\n"));
        let line = Line { name: "x".into(), points: vec![(0.0, 0.0)] };
        assert!(!draw("zero", &[line]).contains("NaN"));
    }
}
