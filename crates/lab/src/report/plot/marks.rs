//! Marks, dashes and colours that tell series apart, in colour and in grey.

use std::fmt::Write;

/// Colours of the style sheet.
const COLORS: usize = 8;

/// How a series looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// Which colour, shape and dash.
    pub index: usize,
    /// Dashed with hollow marks.
    pub reference: bool,
}

impl Look {
    pub(super) fn stroke(self) -> String {
        format!("s{}", self.index % COLORS)
    }

    /// Colour of the inside of marks and bars, with that of their edge.
    pub(super) fn fill(self) -> String {
        let color = self.index % COLORS;
        if self.reference { format!("hollow s{color}") } else { format!("f{color}") }
    }

    /// The attribute for dashes, empty for a whole line. Series beyond the colours are told apart by dashes.
    pub(super) fn dash(self) -> &'static str {
        match (self.reference, self.index / COLORS % 3) {
            (true, _) => " stroke-dasharray=\"5 4\"",
            (false, 0) => "",
            (false, 1) => " stroke-dasharray=\"9 3\"",
            (false, _) => " stroke-dasharray=\"2 4\"",
        }
    }
}

/// A mark around a place; `title` is what pointing at it shows, escaped already.
pub(super) fn mark(look: Look, x: f64, y: f64, title: &str) -> String {
    let mut out = String::new();
    let class = look.fill();
    let _ = match look.index % 4 {
        0 => write!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">"),
        1 => {
            let (left, top) = (x - 3.5, y - 3.5);
            write!(out, "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"7\" height=\"7\">")
        }
        2 => write!(out, "<path class=\"{class}\" d=\"M{x:.1} {:.1}l4.6 8h-9.2z\">", y - 5.0),
        _ => write!(out, "<path class=\"{class}\" d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\">", y - 5.0),
    };
    let end = match look.index % 4 {
        0 => "circle",
        1 => "rect",
        _ => "path",
    };
    let _ = write!(out, "<title>{title}</title></{end}>");
    out
}

/// The sample of a line for a legend.
pub(super) fn line_sample(look: &Look) -> String {
    format!(
        "<svg viewBox=\"0 0 30 12\" aria-hidden=\"true\"><path class=\"line {}\"{} d=\"M1 6H29\"/>{}</svg>",
        look.stroke(),
        look.dash(),
        mark(*look, 15.0, 6.0, "")
    )
}

/// The sample of a bar for a legend.
pub(super) fn bar_sample(look: &Look) -> String {
    format!(
        "<svg viewBox=\"0 0 30 12\" aria-hidden=\"true\"><rect class=\"{}\" x=\"6\" y=\"1\" width=\"18\" height=\"10\" rx=\"2\"/></svg>",
        look.fill()
    )
}
