//! Bugs that `cargo-mutants` lists (`cargo mutants --list --json`), found again in the syntax.

use std::ops::Range;

use proc_macro2::LineColumn;
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Block, Expr, ImplItemFn, ItemFn};

use crate::edits::Wrapping;

/// An entry of the list.
#[derive(Debug, Clone, Deserialize)]
pub struct Listed {
    /// The source file, from the root of the tree.
    pub file: String,
    /// Where and what, in a line.
    pub name: String,
    /// The kind of change.
    pub genre: String,
    /// What is put there.
    pub replacement: String,
    /// What is replaced.
    pub span: Span,
}

/// A piece of a source file.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Span {
    /// Where it begins.
    pub start: Place,
}

/// A place in a source file, lines and columns from 1.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// Puts the change behind a switch, where `on` is true if it is switched on.
///
/// # Errors
/// In a line, why it cannot be: constants are the usual reason.
pub fn wrap(text: &str, file: &syn::File, listed: &Listed, on: &str) -> Result<Wrapping, String> {
    let at = LineColumn { line: listed.span.start.line, column: listed.span.start.column - 1 };
    let mut finder = Finder { text, listed, on, at, found: None, constants: 0 };
    finder.visit_file(file);
    finder.found.unwrap_or_else(|| Err("the place is not found".into()))
}

struct Finder<'a> {
    text: &'a str,
    listed: &'a Listed,
    on: &'a str,
    at: LineColumn,
    found: Option<Result<Wrapping, String>>,
    /// Constants around the place.
    constants: u32,
}

impl Finder<'_> {
    fn is_here(&self, span: proc_macro2::Span) -> bool {
        let start = span.start();
        (start.line, start.column) == (self.at.line, self.at.column)
    }

    fn genre(&self, genre: &str) -> bool {
        self.listed.genre == genre
    }

    fn put(&mut self, around: Range<usize>, before: String, after: &str) {
        let is_constant = self.constants > 0;
        self.found.get_or_insert(if is_constant {
            Err("it is in a constant".into())
        } else {
            Ok(Wrapping { around, before, after: after.into() })
        });
    }

    /// One value or the other.
    fn either(&mut self, around: Range<usize>, instead: &str) {
        let before = format!("(if {} {{ {instead} }} else {{ ", self.on);
        self.put(around, before, " })");
    }

    /// The text of an expression with this piece of it replaced.
    fn with(&self, whole: &Range<usize>, piece: Range<usize>, instead: &str) -> String {
        format!("{}{instead}{}", &self.text[whole.start..piece.start], &self.text[piece.end..whole.end])
    }

    fn body(&mut self, block: &Block) {
        let first = block.stmts.first().map(Spanned::span);
        if self.genre("FnValue") && (first.is_some_and(|span| self.is_here(span)) || self.is_here(block.span())) {
            let at = block.brace_token.span.open().byte_range().end;
            self.put(at..at, format!(" if {} {{ return {}; }} ", self.on, self.listed.replacement), "");
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constants += 1;
        visit::visit_item_const(self, item);
        self.constants -= 1;
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constants += 1;
        visit::visit_impl_item_const(self, item);
        self.constants -= 1;
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.constants += u32::from(item.sig.constness.is_some());
        self.body(&item.block);
        visit::visit_item_fn(self, item);
        self.constants -= u32::from(item.sig.constness.is_some());
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.constants += u32::from(item.sig.constness.is_some());
        self.body(&item.block);
        visit::visit_impl_item_fn(self, item);
        self.constants -= u32::from(item.sig.constness.is_some());
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        let whole = expression.span().byte_range();
        match expression {
            Expr::Binary(binary) if self.genre("BinaryOperator") && self.is_here(binary.op.span()) => {
                let instead = self.with(&whole, binary.op.span().byte_range(), &self.listed.replacement);
                self.either(whole, &instead);
            }
            Expr::Unary(unary) if self.genre("UnaryOperator") && self.is_here(unary.op.span()) => {
                let instead = self.with(&whole, unary.op.span().byte_range(), &self.listed.replacement);
                self.either(whole, &instead);
            }
            _ => {}
        }
        visit::visit_expr(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if let Some((_, guard)) = &arm.guard {
            if self.genre("MatchArmGuard") && self.is_here(guard.span()) {
                let replacement = self.listed.replacement.clone();
                self.either(guard.span().byte_range(), &replacement);
            } else if self.genre("MatchArm") && self.is_here(arm.span()) {
                self.put(guard.span().byte_range(), format!("!{} && (", self.on), ")");
            }
        } else if self.genre("MatchArm") && self.is_here(arm.span()) {
            let at = arm.pat.span().byte_range().end;
            self.put(at..at, format!(" if !{}", self.on), "");
        }
        visit::visit_arm(self, arm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::apply;

    const SOURCE: &str = "fn f(a: u32) -> bool {\n    match a {\n        1 if !g(a) => a + 1 == 2,\n        2 => true,\n        _ => false,\n    }\n}\nconst A: u32 = 1 + 1;";

    fn listed(genre: &str, line: usize, column: usize, replacement: &str) -> Result<String, String> {
        let start = Place { line, column };
        let entry = Listed {
            file: String::new(),
            name: String::new(),
            genre: genre.into(),
            replacement: replacement.into(),
            span: Span { start },
        };
        let file = syn::parse_file(SOURCE).unwrap();
        let line = |text: String| text.lines().nth(line - 1).unwrap().trim().to_owned();
        wrap(SOURCE, &file, &entry, "on(1)").map(|wrapping| line(apply(SOURCE, &[wrapping])))
    }

    #[test]
    fn every_genre_is_put_behind_a_switch() {
        assert_eq!(
            listed("BinaryOperator", 3, 25, "-").unwrap(),
            "1 if !g(a) => (if on(1) { a - 1 } else { a + 1 }) == 2,"
        );
        assert_eq!(
            listed("UnaryOperator", 3, 14, "").unwrap(),
            "1 if (if on(1) { g(a) } else { !g(a) }) => a + 1 == 2,"
        );
        assert_eq!(
            listed("MatchArmGuard", 3, 14, "true").unwrap(),
            "1 if (if on(1) { true } else { !g(a) }) => a + 1 == 2,"
        );
        assert_eq!(listed("MatchArm", 4, 9, "").unwrap(), "2 if !on(1) => true,");
        assert_eq!(listed("MatchArm", 3, 9, "").unwrap(), "1 if !on(1) && (!g(a)) => a + 1 == 2,");
        assert!(apply_first_line().contains("{ if on(1) { return true; } "));
        assert!(listed("BinaryOperator", 8, 18, "-").unwrap_err().contains("constant"));
    }

    fn apply_first_line() -> String {
        let start = Place { line: 2, column: 5 };
        let entry = Listed {
            file: String::new(),
            name: String::new(),
            genre: "FnValue".into(),
            replacement: "true".into(),
            span: Span { start },
        };
        let file = syn::parse_file(SOURCE).unwrap();
        apply(SOURCE, &[wrap(SOURCE, &file, &entry, "on(1)").unwrap()])
    }
}
