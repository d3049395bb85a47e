//! Kinds of bugs that are chosen by what a piece of code looks like.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprBinary, ImplItemFn, ItemConst, ItemFn, ItemMod, ItemStatic, Lit, Signature, Stmt};

/// A place where a bug of one of the kinds fits.
#[derive(Debug, Clone)]
pub struct Site {
    /// What is changed there.
    pub what: String,
    /// Line of the source, from 1.
    pub line: usize,
    /// The bytes of the source that are changed.
    pub around: Range<usize>,
    /// What stands there if the bug is on; nothing if the piece is removed.
    pub instead: String,
    /// Whether the piece is statements, not a value.
    pub is_statement: bool,
}

/// All places of a source file, tests left out.
pub fn sites(text: &str, file: &syn::File, has_positions: bool) -> Vec<Site> {
    let mut finder = Finder { text, has_positions, sites: Vec::new() };
    finder.visit_file(file);
    finder.sites
}

struct Finder<'a> {
    text: &'a str,
    /// Whether positions are calculated here: in the journal, in chains and logs.
    has_positions: bool,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    fn push(&mut self, what: String, span: Span, instead: String, is_statement: bool) {
        let (around, line) = (span.byte_range(), span.start().line);
        self.sites.push(Site { what, line, around, instead, is_statement });
    }

    /// Statements that may be left out.
    fn removals(&mut self, block: &Block) {
        for statement in &block.stmts {
            if let Some(name) = called(statement).filter(|name| is_worth_removing(name)) {
                self.push(format!("`{name}` is not called"), statement.span(), String::new(), true);
            }
        }
    }

    /// Neighbouring statements that write.
    fn swaps(&mut self, block: &Block) {
        for pair in block.stmts.windows(2) {
            let (Some(first), Some(second)) = (called(&pair[0]), called(&pair[1])) else { continue };
            if writes(&first) && writes(&second) {
                let span = pair[0].span().byte_range().start..pair[1].span().byte_range().end;
                let instead = format!("{} {}", self.source(pair[1].span()), self.source(pair[0].span()));
                let line = pair[0].span().start().line;
                let what = format!("`{second}` comes before `{first}`");
                self.sites.push(Site { what, line, around: span, instead, is_statement: true });
            }
        }
    }
}

/// The function or method that a statement calls for its effect.
fn called(statement: &Stmt) -> Option<String> {
    let Stmt::Expr(expression, Some(_)) = statement else { return None };
    let mut expression = expression;
    while let Expr::Try(inner) = expression {
        expression = &inner.expr;
    }
    match expression {
        Expr::MethodCall(call) => Some(call.method.to_string()),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn is_worth_removing(name: &str) -> bool {
    ["flush", "note_", "pin", "hold", "seal", "guard", "verify", "keep_"].iter().any(|part| name.contains(part))
}

fn writes(name: &str) -> bool {
    ["write", "flush", "submit", "commit", "discard", "clear", "append", "note_"].iter().any(|part| name.contains(part))
}

/// Whether this is the number one.
fn is_one(expression: &Expr) -> bool {
    matches!(expression, Expr::Lit(literal) if matches!(&literal.lit, Lit::Int(number) if number.base10_digits() == "1"))
}

fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test") || path.is_ident("cfg") && attribute.meta.to_tokens_text().contains("test")
    })
}

/// The tokens of an attribute as text.
trait TokensText {
    fn to_tokens_text(&self) -> String;
}

impl TokensText for syn::Meta {
    fn to_tokens_text(&self) -> String {
        match self {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        }
    }
}

/// Switches are read at run time, so constants cannot have them.
pub fn is_constant(signature: &Signature) -> bool {
    signature.constness.is_some()
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast ItemConst) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_of_tests(&item.attrs) && !is_constant(&item.sig) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_of_tests(&item.attrs) && !is_constant(&item.sig) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.removals(block);
        self.swaps(block);
        visit::visit_block(self, block);
    }

    fn visit_expr_repeat(&mut self, _: &'ast syn::ExprRepeat) {}

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let span = binary.span();
        let text = self.source(span);
        let compares_checksums = text.to_lowercase().contains("crc") || text.to_lowercase().contains("checksum");
        match binary.op {
            BinOp::Eq(_) | BinOp::Ne(_) if compares_checksums => {
                let equal = matches!(binary.op, BinOp::Eq(_)).to_string();
                self.push(format!("the checksum counts as right: `{}`", one_line(text)), span, equal, false);
            }
            BinOp::Add(_) | BinOp::Sub(_) if self.has_positions && is_one(&binary.right) => {
                let without = self.source(binary.left.span()).to_owned();
                self.push(format!("off by one: `{}` without its 1", one_line(text)), span, without, false);
            }
            _ => {}
        }
        visit::visit_expr_binary(self, binary);
    }
}

/// Source text without line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn f(x: &X) -> Result<()> {\n    x.write_head()?;\n    x.flush()?;\n    if crc(a) != b.crc { return Err(()); }\n    \
        let next = place + 1;\n    go(next)\n}\nconst fn g() -> u32 { A + 1 }\n#[cfg(test)]\nmod tests { fn h() { x.flush(); } }";

    #[test]
    fn all_kinds_are_seen_and_tests_are_not() {
        let file = syn::parse_file(SOURCE).unwrap();
        let seen: Vec<String> = sites(SOURCE, &file, true)
            .into_iter()
            .map(|site| format!("{}: {} -> {}", site.line, site.what, site.instead))
            .collect();
        assert_eq!(
            seen,
            [
                "3: `flush` is not called -> ",
                "2: `flush` comes before `write_head` -> x.flush()?; x.write_head()?;",
                "4: the checksum counts as right: `crc(a) != b.crc` -> false",
                "5: off by one: `place + 1` without its 1 -> place",
            ]
        );
    }
}
