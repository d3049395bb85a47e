//! Other values for settings of an experiment file, as a command line gives them.

use std::str::FromStr;

use toml_edit::{Array, DocumentMut, Item, Table, Value};

/// A setting and the values that it has instead of those in the file: `seed=1,2,3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        match text.split_once('=') {
            Some((name, values)) if !name.is_empty() && !values.is_empty() => {
                Ok(Change { name: name.to_owned(), values: list(values) })
            }
            _ => Err(format!("`{text}` is not of the form NAME=VALUE or NAME=VALUE;VALUE;…")),
        }
    }
}

/// Several values are separated by semicolons, since workloads have commas.
fn list(values: &str) -> Vec<String> {
    values.split(';').map(str::to_owned).collect()
}

/// The text of an experiment file with these settings for all cases; comments stay. What is wrong with a value is found when the text
/// is read. A text that is no TOML stays as it is, for the same reason.
#[must_use]
pub fn with_changes(text: &str, changes: &[Change]) -> String {
    if changes.is_empty() {
        return text.to_owned();
    }
    let Ok(mut document) = text.parse::<DocumentMut>() else { return text.to_owned() };
    let settings = document.entry("settings").or_insert(Item::Table(Table::new()));
    if let Some(settings) = settings.as_table_like_mut() {
        for Change { name, values } in changes {
            let values: Array = values.iter().map(Value::from).collect();
            settings.insert(name, Item::Value(Value::Array(values)));
        }
    }
    document.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_replaced_or_added_and_the_rest_stays() {
        let file =
            "# what\ntitle = \"x\"\n[settings] # those\nsize = \"1G\" # small\nseed = 1\n[[case]]\nname = \"a\"\n";
        let changes = ["size=2G", "workload=zipf:0.9,set=20%;uniform"].map(|text| text.parse().unwrap());
        let text = with_changes(file, &changes);
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        let settings = &parsed["settings"];
        assert_eq!(settings["size"], toml::Value::from(vec!["2G"]));
        assert_eq!(settings["workload"], toml::Value::from(vec!["zipf:0.9,set=20%", "uniform"]));
        assert_eq!(settings["seed"].as_integer(), Some(1));
        assert!(text.starts_with("# what\n") && text.contains("[settings] # those\n"), "{text}");
        assert_eq!(with_changes(file, &[]), file);
        assert_eq!(with_changes("no TOML = =", &changes), "no TOML = =");
    }

    #[test]
    fn a_change_has_a_name_and_a_value() {
        for text in ["size", "=1", "size="] {
            assert!(text.parse::<Change>().is_err(), "{text}");
        }
    }
}
