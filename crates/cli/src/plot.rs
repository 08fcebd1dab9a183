//! SVG plot of measurements over sizes or counts, with logarithmic axes.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 110.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
const COLORS: [&str; 3] = ["#888888", "#c07020", "#2060c0"];

/// What the axes of a plot show.
pub struct Axes<'a> {
    pub title: &'a str,
    /// What the horizontal axis counts.
    pub x: &'a str,
    /// Formats a value of the horizontal axis.
    pub label: fn(u64) -> String,
    /// The unit of the measurements.
    pub unit: &'a str,
}

/// Returns an SVG of the values of each series at each place of the horizontal axis. The last series has the last color.
pub fn svg(axes: &Axes<'_>, sizes: &[u64], series: &[(String, Vec<f64>)]) -> String {
    let all = || series.iter().flat_map(|(_, times)| times).filter(|time| **time > 0.0).map(|time| time.log10());
    let (low, high) = (all().fold(f64::INFINITY, f64::min).floor(), all().fold(f64::NEG_INFINITY, f64::max).ceil());
    let (low, high) = if low < high { (low, high) } else { (-1.0, 3.0) };
    let first = sizes.first().map_or(0.0, |bytes| (*bytes as f64).log2());
    let last = sizes.last().map_or(1.0, |bytes| (*bytes as f64).log2()).max(first + 1.0);
    let x = |bytes: u64| LEFT + ((bytes as f64).log2() - first) / (last - first) * (WIDTH - LEFT - 20.0);
    let y = |time: f64| HEIGHT - BOTTOM - (time.log10() - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"24\">{}</text>\n",
        escaped(axes.title)
    );
    let mut decade = low;
    while decade <= high {
        let (at, time) = (y(10f64.powf(decade)), 10f64.powf(decade));
        let _ = writeln!(text, "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#dddddd\"/>", WIDTH - 20.0);
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{time} {}</text>", LEFT - 8.0, at + 4.0, axes.unit);
        decade += 1.0;
    }
    for bytes in sizes.iter().step_by(sizes.len().div_ceil(10).max(1)) {
        let (at, below) = (x(*bytes), HEIGHT - BOTTOM + 20.0);
        let _ = writeln!(text, "<text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>", (axes.label)(*bytes));
    }
    let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", (LEFT + WIDTH) / 2.0, HEIGHT - 16.0, axes.x);
    for (index, (name, times)) in series.iter().enumerate() {
        let color = if index + 1 == series.len() { COLORS[2] } else { COLORS[index % 2] };
        let points: Vec<String> = sizes.iter().zip(times).map(|(bytes, time)| format!("{:.1},{:.1}", x(*bytes), y(*time))).collect();
        let _ = writeln!(text, "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>", points.join(" "));
        let at = TOP + 18.0 * (index as f64 + 1.0);
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{at:.1}\" fill=\"{color}\">{}</text>", LEFT + 16.0, escaped(name));
    }
    text + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside_the_plot() {
        let series = [("native".to_owned(), vec![0.5, 80.0, 20_000.0]), ("warpwave".to_owned(), vec![0.4, 90.0, 9000.0])];
        let axes = Axes { title: "a < b", x: "bytes", label: |bytes| format!("{bytes} B"), unit: "µs" };
        let text = svg(&axes, &[4, 4096, 16 << 20], &series);
        assert!(
            text.starts_with("<svg ") && text.ends_with("</svg>\n") && text.contains("a &lt; b") && text.contains(">16777216 B<"),
            "{text}"
        );
        let points = text.lines().filter_map(|line| line.split("points=\"").nth(1)?.split('"').next());
        let numbers: Vec<f64> = points.flat_map(|list| list.split([' ', ','])).map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 12);
        assert!(numbers.chunks(2).all(|point| (0.0..=WIDTH).contains(&point[0]) && (0.0..=HEIGHT).contains(&point[1])), "{numbers:?}");
    }
}
