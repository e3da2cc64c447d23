//! Changes of `viv.toml` that keep comments, order and everything else of the file.
//!
//! A change is written only if the result is a valid configuration. The file is replaced in one step and readable by its
//! owner only, because it may contain keys.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use protocol::ProblemCode;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::file::ConfigFile;
use super::keys::{self, NamedKey, ValueType};
use crate::failure::Failure;
use crate::shell_word::shell_word;

/// `viv.toml`, open for changes.
pub(crate) struct ConfigEditor {
    path: PathBuf,
    document: DocumentMut,
    text: String,
}

impl ConfigEditor {
    /// Opens the file; a missing file is empty. Fails if the file is not TOML.
    pub(crate) fn open(path: PathBuf) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(unusable(&path, "read").because(&error)),
        };
        let document = text
            .parse::<DocumentMut>()
            .map_err(|error| super::not_parsed(&path, &text, error.span(), error.message()))?;
        Ok(Self { path, document, text })
    }

    /// Returns the value of a key, if the file sets it.
    pub(crate) fn get(&self, segments: &[String]) -> Option<&Item> {
        segments.iter().try_fold(self.document.as_item(), |item, segment| item.get(segment.as_str()))
    }

    /// Returns all leaves of the file in its order: segments, value and line.
    pub(crate) fn leaves(&self) -> Vec<(Vec<String>, String, usize)> {
        // A document that is open for changes has no positions; a parsed one has.
        let Ok(parsed) = toml_edit::Document::parse(self.text.as_str()) else { return Vec::new() };
        let mut leaves = Vec::new();
        collect(parsed.as_table(), &[], &self.text, &mut leaves);
        leaves
    }

    /// Sets a key to a value as typed on the command line.
    pub(crate) fn set(&mut self, key: &NamedKey, typed: &str) -> Result<(), Failure> {
        let value = typed_value(key, typed)?;
        let Some((last, sections)) = key.segments.split_last() else { return Ok(()) };
        let mut table: &mut dyn TableLike = self.document.as_table_mut();
        for section in sections {
            let item = table.entry(section).or_insert_with(|| implicit(Table::new()));
            let found = item.as_table_like_mut();
            table =
                found.ok_or_else(|| invalid(format!("`{section}` in `{}` is not a section", self.path.display())))?;
        }
        if let (ValueType::Table, Value::InlineTable(inline)) = (key.key.value, &value) {
            table.insert(last, Item::Table(inline.clone().into_table()));
            return Ok(());
        }
        match table.get_mut(last).and_then(Item::as_value_mut) {
            // The comment behind the value stays.
            Some(old) => {
                let decor = old.decor().clone();
                *old = value;
                *old.decor_mut() = decor;
            }
            None => drop(table.insert(last, Item::Value(value))),
        }
        Ok(())
    }

    /// Removes a key; returns whether the file had it. Sections that become empty are removed too.
    pub(crate) fn unset(&mut self, segments: &[String]) -> bool {
        remove(self.document.as_table_mut(), segments)
    }

    /// Returns the configuration with the changes that are not written yet.
    pub(crate) fn preview(&self) -> Result<ConfigFile, Failure> {
        toml::from_str(&self.document.to_string())
            .map_err(|error| invalid(format!("`{}` would be invalid: {}", self.path.display(), error.message())))
    }

    /// Writes the file, if the result is a valid configuration and differs from the file.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        let text = self.document.to_string();
        if text == self.text {
            return Ok(());
        }
        if let Err(error) = toml::from_str::<ConfigFile>(&text)
            // Removing one of two mistakes is a step forward.
            && toml::from_str::<ConfigFile>(&self.text).is_ok()
        {
            return Err(invalid(format!("`{}` was not changed: {}", self.path.display(), error.message()))
                .help("viv config show --origin"));
        }
        replace(&self.path, &text).map_err(|error| unusable(&self.path, "write").because(&error))
    }
}

/// Replaces the file in one step. A link is followed, so that it stays a link.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let temporary = target.with_extension(format!("toml.{}", std::process::id()));
    let written =
        std::fs::File::options().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
    let replaced = written.and_then(|()| std::fs::rename(&temporary, &target));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    replaced
}

fn implicit(mut table: Table) -> Item {
    table.set_implicit(true);
    Item::Table(table)
}

fn remove(table: &mut dyn TableLike, segments: &[String]) -> bool {
    let Some((first, rest)) = segments.split_first() else { return false };
    if rest.is_empty() {
        return table.remove(first).is_some();
    }
    let Some(section) = table.get_mut(first).and_then(Item::as_table_like_mut) else { return false };
    let removed = remove(section, rest);
    if removed && section.is_empty() {
        table.remove(first);
    }
    removed
}

fn collect(table: &dyn TableLike, above: &[String], text: &str, leaves: &mut Vec<(Vec<String>, String, usize)>) {
    for (name, item) in table.iter() {
        let segments: Vec<String> = above.iter().cloned().chain([name.to_owned()]).collect();
        if let Some(section) = item.as_table_like() {
            collect(section, &segments, text, leaves);
            continue;
        }
        let start = item.span().map_or(0, |span| span.start.min(text.len()));
        let line = text[..start].matches('\n').count() + 1;
        leaves.push((segments, item.to_string().trim().to_owned(), line));
    }
}

/// Parses a typed value by the type of its key.
fn typed_value(key: &NamedKey, typed: &str) -> Result<Value, Failure> {
    let path = key.segments.join(".");
    let wrong = |wanted: &str| {
        invalid(format!("invalid value `{typed}` of `{path}`: expected {wanted}")).help("viv config show --origin")
    };
    Ok(match key.key.value {
        ValueType::Integer => typed.parse::<i64>().map_err(|_| wrong("a whole number"))?.into(),
        ValueType::Number => {
            typed.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| wrong("a number"))?.into()
        }
        ValueType::Flag => typed.parse::<bool>().map_err(|_| wrong("true or false"))?.into(),
        ValueType::List => list(typed).ok_or_else(|| wrong("texts separated by commas"))?,
        ValueType::Table => {
            let table = typed.parse::<Value>().ok().filter(Value::is_inline_table);
            table.ok_or_else(|| wrong("an inline table such as `{ input = 1.0, output = 2.0 }`"))?
        }
        ValueType::Word(words) if !words.contains(&typed) => {
            let near = policy::closest(typed, words.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
            let failure = wrong(&format!("one of {}{}", words.join(", "), near.as_deref().unwrap_or_default()));
            let best = policy::closest(typed, words.iter().copied()).unwrap_or(words[0]);
            return Err(failure.help(format!("viv config set {} {best}", shell_word(&path))));
        }
        _ => typed.into(),
    })
}

fn list(typed: &str) -> Option<Value> {
    if typed.trim_start().starts_with('[') {
        return typed.parse::<Value>().ok().filter(Value::is_array);
    }
    Some(typed.split(',').map(str::trim).filter(|text| !text.is_empty()).collect())
}

fn invalid(what: String) -> Failure {
    Failure::new(ProblemCode::ConfigInvalid, what)
}

fn unusable(path: &Path, doing: &str) -> Failure {
    let shown = shell_word(&path.to_string_lossy());
    invalid(format!("cannot {doing} `{}`", path.display())).help(format!("ls -ld {shown}"))
}

/// Parses a dotted key; fails with a suggestion if there is none with this name.
pub(crate) fn parse_key(typed: &str) -> Result<NamedKey, Failure> {
    let segments = segments(typed)?;
    keys::find(&segments).ok_or_else(|| {
        let near = keys::closest(&segments);
        let hint = near.as_ref().map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        let help = near.map_or_else(
            || "viv config show --origin".to_owned(),
            |near| format!("viv config get {}", shell_word(&near)),
        );
        invalid(format!("unknown key `{typed}` of viv.toml{hint}")).help(help)
    })
}

/// Splits a dotted key, with quotes as in TOML.
pub(crate) fn segments(typed: &str) -> Result<Vec<String>, Failure> {
    let keys = toml_edit::Key::parse(typed).map_err(|_| {
        invalid(format!("invalid key `{typed}`: write a dotted path such as `model.upstream`"))
            .help("viv config show --origin")
    })?;
    Ok(keys.iter().map(|key| key.get().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(before: &str, change: impl FnOnce(&mut ConfigEditor)) -> String {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("viv.toml");
        std::fs::write(&path, before).unwrap();
        let mut editor = ConfigEditor::open(path.clone()).unwrap();
        change(&mut editor);
        editor.save().unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    fn set(editor: &mut ConfigEditor, key: &str, value: &str) {
        editor.set(&parse_key(key).unwrap(), value).unwrap();
    }

    #[test]
    fn comments_and_order_are_kept() {
        let before = "# mine\nuser = \"ann\" # me\n\n[model]\n# why\nupstream = \"old\" # for now\n\n[upstreams.old]\nkind = \"openai\"\n";
        let after = edited(before, |editor| set(editor, "model.upstream", "new"));
        assert_eq!(after, before.replace("\"old\" #", "\"new\" #"));
    }

    #[test]
    fn setting_twice_gives_the_same_file_and_unset_takes_it_back() {
        let once = edited("", |editor| set(editor, "upstreams.mine.kind", "openai"));
        assert_eq!(once, "[upstreams.mine]\nkind = \"openai\"\n");
        assert_eq!(edited(&once, |editor| set(editor, "upstreams.mine.kind", "openai")), once);
        assert_eq!(edited(&once, |editor| assert!(editor.unset(&segments("upstreams.mine.kind").unwrap()))), "");
    }

    #[test]
    fn a_price_is_set_as_a_whole() {
        let after = edited("", |editor| set(editor, "prices.my-model.v1", "{ input = 1.0, output = 2.5 }"));
        assert!(toml::from_str::<ConfigFile>(&after).unwrap().prices.contains_key("my-model.v1"), "{after}");
    }

    #[test]
    fn wrong_values_are_refused() {
        for (key, value) in
            [("limits.sessions", "many"), ("record.zstd", "yes"), ("prices.x", "3"), ("sandbox.backend", "jial")]
        {
            let mut editor = ConfigEditor::open("/dev/null/viv.toml".into()).unwrap_or_else(|_| ConfigEditor {
                path: PathBuf::new(),
                document: DocumentMut::new(),
                text: String::new(),
            });
            assert!(editor.set(&parse_key(key).unwrap(), value).is_err(), "{key} = {value}");
        }
        let place = tempfile::tempdir().unwrap();
        let mut editor = ConfigEditor::open(place.path().join("viv.toml")).unwrap();
        set(&mut editor, "limits.journal", "1 cow");
        assert!(editor.save().unwrap_err().to_string().contains("was not changed"));
        assert!(parse_key("modle.upstream").unwrap_err().to_string().contains("did you mean `model.upstream`?"));
    }
}
