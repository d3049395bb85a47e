//! The page around tables and plots.

use std::fmt::Write;

use super::text::escape;
use super::{Block, Report, Section};

const STYLE: &str = include_str!("style.css");

/// From how many sections on a list of them helps.
const CONTENTS_FROM: usize = 4;

/// The whole page. Writing to a string cannot fail, so results of `write!` are dropped here and in the modules beside.
pub(super) fn html(report: &Report) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = escape(&report.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n"
    );
    if !report.summary.is_empty() {
        let _ = writeln!(out, "<p class=\"summary\">{}</p>", escape(&report.summary));
    }
    parameters(report, &mut out);
    out.push_str("</header>\n");
    contents(&report.sections, &mut out);
    for (index, part) in report.sections.iter().enumerate() {
        section(part, index, &mut out);
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(out, "<footer>Basalt {version}, <code>basalt lab</code></footer>\n</main>\n</body>\n</html>\n");
    out
}

fn parameters(report: &Report, out: &mut String) {
    if !report.parameters.is_empty() {
        out.push_str("<dl class=\"parameters\">\n");
        for (name, value) in &report.parameters {
            let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
        }
        out.push_str("</dl>\n");
    }
    if !report.command.is_empty() {
        out.push_str("<p class=\"repeat\">Repeat it with</p>\n");
        code(&report.command, out);
    }
}

fn contents(sections: &[Section], out: &mut String) {
    if sections.len() < CONTENTS_FROM {
        return;
    }
    out.push_str("<nav><ul>\n");
    for (index, section) in sections.iter().enumerate().filter(|(_, section)| !section.title.is_empty()) {
        let _ = writeln!(out, "<li><a href=\"#section-{index}\">{}</a></li>", escape(&section.title));
    }
    out.push_str("</ul></nav>\n");
}

fn section(section: &Section, index: usize, out: &mut String) {
    let _ = writeln!(out, "<section id=\"section-{index}\">");
    if !section.title.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>", escape(&section.title));
    }
    for block in &section.blocks {
        match block {
            Block::Text(text) => {
                let _ = writeln!(out, "<p>{}</p>", escape(text));
            }
            Block::Code(text) => code(text, out),
            Block::Table(table) => table.html(out),
            Block::Plot(plot) => plot.html(out),
            Block::Bars(bars) => bars.html(out),
        }
    }
    out.push_str("</section>\n");
}

fn code(text: &str, out: &mut String) {
    let _ = writeln!(out, "<pre class=\"box\" tabindex=\"0\"><code>{}</code></pre>", escape(text));
}
