//! A drawing of shares of the ceiling: a bar for each operation, a mark where the peer is.

use std::fmt::Write as _;

use super::Row;

const LEFT: f64 = 330.0;
const SCALE: f64 = 460.0;
const LINE: f64 = 18.0;
const TOP: f64 = 50.0;

/// The rows that have a share, as an SVG.
pub fn svg(title: &str, ceiling: f64, rows: &[Row]) -> String {
    let drawn: Vec<&Row> = rows.iter().filter(|row| row.share(ceiling).is_some()).collect();
    let (width, height) = (LEFT + SCALE * 1.1 + 20.0, TOP + LINE * drawn.len() as f64 + 20.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"22\" font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    for tenth in (0..=10).step_by(2) {
        let at = LEFT + SCALE * f64::from(tenth) / 10.0;
        let _ = writeln!(text, "<path d=\"M{at:.1} {TOP}V{:.1}\" stroke=\"#dddddd\"/>", height - 16.0);
        let _ = writeln!(text, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", TOP - 6.0, f64::from(tenth) / 10.0);
    }
    for (index, row) in drawn.iter().enumerate() {
        let y = TOP + LINE * index as f64 + 3.0;
        let share = row.share(ceiling).unwrap_or(0.0).clamp(0.0, 1.1);
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, y + 10.0, escaped(&row.name));
        let _ = writeln!(text, "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"12\" fill=\"#2060c0\"/>", SCALE * share);
        if let Some(seconds) = row.peer_seconds() {
            let at = LEFT + SCALE * (row.figure(seconds) / ceiling).clamp(0.0, 1.1);
            let _ = writeln!(text, "<path d=\"M{at:.1} {:.1}v16\" stroke=\"#c07020\" stroke-width=\"3\"/>", y - 2.0);
        }
    }
    text + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
