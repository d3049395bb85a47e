//! The words of Filebench's language.

use super::super::{Line, Source};
use crate::error::Result;

/// What a word is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// A name, a keyword, a path.
    Name(String),
    /// Digits, with what follows them: `16k`, `1.5`.
    Number(String),
    /// `$name`.
    Variable(String),
    /// What stands between quotes.
    Text(String),
    /// One of `{}=,:;()+-*/`.
    Sign(char),
}

impl std::fmt::Display for Word {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Name(text) | Word::Number(text) => formatter.write_str(text),
            Word::Variable(name) => write!(formatter, "${name}"),
            Word::Text(text) => write!(formatter, "\"{text}\""),
            Word::Sign(sign) => write!(formatter, "{sign}"),
        }
    }
}

/// All words of a file with their lines.
pub(super) fn words(source: &Source) -> Result<Vec<(Line, Word)>> {
    let mut words = Vec::new();
    for (index, text) in source.text.lines().enumerate() {
        let line = index + 1;
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            if first == '#' {
                break;
            }
            let (word, length) = word(source, line, first, rest)?;
            words.push((line, word));
            rest = rest[length..].trim_start();
        }
    }
    Ok(words)
}

/// The first word of a text, and how many bytes it takes.
fn word(source: &Source, line: Line, first: char, text: &str) -> Result<(Word, usize)> {
    let while_in = |from: usize, also: &str| {
        let end = text[from..].find(|letter: char| !letter.is_ascii_alphanumeric() && !also.contains(letter));
        end.map_or(text.len(), |end| from + end)
    };
    let second = text[first.len_utf8()..].chars().next().unwrap_or(' ');
    match first {
        '"' => {
            let mut escaped = false;
            let end = text[1..].find(|letter: char| {
                let ends = letter == '"' && !escaped;
                escaped = letter == '\\' && !escaped;
                ends
            });
            let end = end.ok_or_else(|| source.error(line, "a text does not end with `\"` on its line"))?;
            Ok((Word::Text(text[1..=end].to_owned()), end + 2))
        }
        '$' => {
            let bracket = matches!(second, '{' | '(');
            let start = 1 + usize::from(bracket);
            let end = while_in(start, "_");
            if end == start {
                return Err(source.error(line, "`$` without a name"));
            }
            let closes = usize::from(bracket && text[end..].starts_with(['}', ')']));
            Ok((Word::Variable(text[start..end].to_owned()), end + closes))
        }
        '0'..='9' => {
            let end = while_in(0, ".");
            Ok((Word::Number(text[..end].to_owned()), end))
        }
        'a'..='z' | 'A'..='Z' | '_' => {
            let end = while_in(0, "/._-");
            Ok((Word::Name(text[..end].to_owned()), end))
        }
        '/' | '.' if second.is_ascii_alphanumeric() || "/._".contains(second) => {
            let end = while_in(0, "/._-");
            Ok((Word::Name(text[..end].to_owned()), end))
        }
        '{' | '}' | '=' | ',' | ':' | ';' | '(' | ')' | '+' | '-' | '*' | '/' => Ok((Word::Sign(first), 1)),
        _ => Err(source.error(line, format_args!("`{first}` does not belong here"))),
    }
}
