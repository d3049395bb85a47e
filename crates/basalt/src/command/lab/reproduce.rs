//! `basalt lab reproduce`: the papers' results, measured again.

use basalt_lab::reproduce::{Figure, Item, Runs, Scale, Verdict, markdown, select};

use crate::failure::{DONE, Failure, Outcome};
use crate::output::Output;

/// Measure the papers' results again, and compare
///
/// Each item has a number of a paper's text, our number, a verdict (bettered, holds or differs) and the reason. Figures that compare file
/// systems boot a small Linux (User-Mode Linux) and take minutes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this paper: sfs or scj
    #[arg(value_name = "PAPER")]
    paper: Option<String>,

    /// Only this figure of the paper
    #[arg(value_name = "FIGURE", requires = "paper")]
    figure: Option<String>,

    /// List the figures and about how long each takes, and run none
    #[arg(long)]
    list: bool,

    /// Use the papers' own sizes instead of a fraction of them; takes hours instead of minutes
    #[arg(long)]
    full: bool,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one line of JSON for each item
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print Markdown tables
    #[arg(long)]
    markdown: bool,
}

/// Runs the command.
///
/// # Errors
/// When there is no such figure, or an experiment cannot be run.
pub fn run(args: &Args) -> Outcome {
    let figures = select(args.paper.as_deref(), args.figure.as_deref());
    if figures.is_empty() {
        let wanted =
            [args.paper.as_deref(), args.figure.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        return Err(Failure::usage(format_args!("{wanted}: no such paper or figure; --list lists them")));
    }
    let mut output = Output::new();
    if args.list {
        for figure in figures {
            output.line(format_args!("{} {}\t{}\t{}", figure.paper, figure.figure, figure.takes, figure.title))?;
        }
        output.finish()?;
        return Ok(DONE);
    }
    let scale = Scale { full: args.full, seed: args.seed };
    let mut runs = Runs::default();
    for figure in figures {
        let items = measure(figure, &scale, &mut runs)?;
        show(figure, items, args)?;
    }
    Ok(DONE)
}

fn measure(figure: &Figure, scale: &Scale, runs: &mut Runs) -> Result<Vec<Item>, Failure> {
    eprintln!("{}: {}", figure.label(), figure.title);
    figure.run(scale, runs, &mut |step| eprintln!("  {step}")).map_err(|why| Failure::at(figure.label(), why))
}

/// Shows the items of a figure as soon as they are there.
fn show(figure: &'static Figure, items: Vec<Item>, args: &Args) -> Result<(), Failure> {
    let mut output = Output::new();
    if args.markdown {
        output.bytes(markdown(&[(figure, items)]).as_bytes())?;
        return output.finish();
    }
    if args.json {
        items.iter().try_for_each(|item| output.json_line(item))?;
        return output.finish();
    }
    output.line(format_args!("{}: {}", figure.label(), figure.title))?;
    for item in &items {
        let mark = if item.verdict == Verdict::Differs { "!" } else { " " };
        output.line(format_args!(
            "{mark} {:<9} {:<58} paper {:>9}  ours {:>9}",
            item.verdict.name(),
            item.item,
            item.paper_text,
            item.ours_text()
        ))?;
        if !item.why.is_empty() {
            output.line(format_args!("            {}", item.why))?;
        }
    }
    output.finish()
}
