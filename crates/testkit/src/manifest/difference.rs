//! What two manifests differ in, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::text::escape;
use super::{Entry, Manifest};

/// How many entries a printed difference shows.
const SHOWN: usize = 40;

/// The entries in which two manifests differ; empty when they are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Paths only the first has.
    pub missing: Vec<Vec<u8>>,
    /// Paths only the second has.
    pub added: Vec<Vec<u8>>,
    /// Paths both have, with every field that differs.
    pub changed: Vec<(Vec<u8>, Vec<ChangedField>)>,
}

/// One field in which two entries differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedField {
    /// Its name, as in the text form.
    pub name: String,
    /// The first manifest's value, `-` for none.
    pub first: String,
    /// The second manifest's value, `-` for none.
    pub second: String,
}

impl Difference {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.added.is_empty() && self.changed.is_empty()
    }
}

impl Manifest {
    /// What `other` differs in from this one.
    pub fn difference(&self, other: &Manifest) -> Difference {
        let mut difference = Difference::default();
        for (path, entry) in &self.entries {
            match other.entries.get(path) {
                None => difference.missing.push(path.clone()),
                Some(same) if same == entry => {}
                Some(same) => difference.changed.push((path.clone(), changed_fields(entry, same))),
            }
        }
        difference.added = other.entries.keys().filter(|path| !self.entries.contains_key(*path)).cloned().collect();
        difference
    }

    /// Does nothing when both are equal.
    ///
    /// # Panics
    /// When they are not, showing in what. `context` says when and between what.
    pub fn expect_same(&self, other: &Manifest, context: &str) {
        let difference = self.difference(other);
        assert!(difference.is_empty(), "{context}: the trees differ\n{difference}");
    }
}

fn changed_fields(first: &Entry, second: &Entry) -> Vec<ChangedField> {
    let fields = |entry: &Entry| {
        let mut fields: BTreeMap<String, String> = entry.fields().into_iter().collect();
        fields.insert("kind".to_owned(), entry.kind.to_string());
        fields
    };
    let (first, second) = (fields(first), fields(second));
    let value = |fields: &BTreeMap<String, String>, name: &str| fields.get(name).map_or("-".to_owned(), String::clone);
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    names
        .into_iter()
        .filter(|name| first.get(*name) != second.get(*name))
        .map(|name| ChangedField { name: name.clone(), first: value(&first, name), second: value(&second, name) })
        .collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.missing.len() + self.added.len() + self.changed.len();
        for path in self.missing.iter().take(SHOWN) {
            writeln!(f, "  missing  {}", escape(path))?;
        }
        for path in self.added.iter().take(SHOWN) {
            writeln!(f, "  added    {}", escape(path))?;
        }
        for (path, fields) in self.changed.iter().take(SHOWN) {
            let fields: Vec<String> =
                fields.iter().map(|field| format!("{} {} -> {}", field.name, field.first, field.second)).collect();
            writeln!(f, "  changed  {}: {}", escape(path), fields.join(", "))?;
        }
        write!(
            f,
            "  {total} differences: {} missing, {} added, {} changed",
            self.missing.len(),
            self.added.len(),
            self.changed.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn names_what_differs() {
        let mut one = Manifest::default();
        one.entries.insert(b"./same".to_vec(), Entry::new(Kind::File));
        let mut two = one.clone();
        assert!(one.difference(&two).is_empty());
        let mut changed = Entry::new(Kind::File);
        changed.size = Some(4);
        two.entries.insert(b"./same".to_vec(), changed);
        one.entries.insert(b"./old".to_vec(), Entry::new(Kind::Fifo));
        two.entries.insert(b"./new".to_vec(), Entry::new(Kind::Fifo));
        let text = one.difference(&two).to_string();
        assert!(text.contains("missing  ./old"), "{text}");
        assert!(text.contains("added    ./new"), "{text}");
        assert!(text.contains("changed  ./same: size - -> 4"), "{text}");
        assert!(text.contains("3 differences: 1 missing, 1 added, 1 changed"), "{text}");
    }
}
