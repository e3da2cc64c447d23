//! Filtered lists of sessions.
//!
//! A list is always newest first, by the row number `place`. Each filter starts from the index that leaves the fewest
//! rows and walks it in that order, so a page of a long list costs about as much as a page of a short one.

use base::lock;
use protocol::SessionStatus;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::super::record::{SessionListCursor, SessionPage, SessionRow};
use super::SessionIndex;
use crate::SessionIndexError;

/// Fewer characters than this have no trigram, so they are searched row by row.
const TRIGRAM: usize = 3;

/// The sessions that a list contains. An absent condition admits every session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// One of these; empty means any.
    pub status: Vec<SessionStatus>,
    /// The agent.
    pub agent: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// All of these.
    pub labels: Vec<LabelFilter>,
    /// Created at this time or later, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// Created before this time, in milliseconds since 1970.
    pub until_ms: Option<i64>,
    /// A part of the id, name, title or last message, in upper or lower case.
    pub text: Option<String>,
}

/// A label that a session must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelFilter {
    /// The key.
    pub key: String,
    /// The value; `None` means any.
    pub value: Option<String>,
}

/// A statement under construction.
#[derive(Default)]
struct Query {
    from: String,
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Query {
    /// Adds a value and returns its parameter.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    /// Adds a condition on `column`. Only a leading condition may choose the index.
    fn equals(&mut self, column: &str, value: &str, leads: bool) {
        let value = self.bind(value.to_owned());
        let column = if leads { column.to_owned() } else { format!("+{column}") };
        self.conditions.push(format!("{column} = {value}"));
    }
}

impl SessionFilter {
    fn query(&self, before: i64, limit: i64) -> Query {
        let mut query = Query { from: "kept".to_owned(), ..Query::default() };
        let mut leads = true;
        for label in &self.labels {
            add_label(&mut query, label, leads);
            leads = false;
        }
        if let Some(text) = self.text.as_deref().filter(|text| !text.is_empty()) {
            leads = add_text(&mut query, text, leads);
        }
        let places = [("kept.user", &self.user), ("kept.account", &self.account)];
        for (column, value) in places {
            if let Some(value) = value {
                query.equals(column, value, leads);
                leads = false;
            }
        }
        leads = self.add_status(&mut query, leads);
        if let Some(agent) = &self.agent {
            query.equals("kept.agent", agent, leads);
        }
        self.add_times(&mut query);
        let place = if query.from == "kept" { "kept.place" } else { "found.place" };
        let before = query.bind(before);
        query.conditions.push(format!("{place} < {before}"));
        let limit = query.bind(limit);
        query.conditions.push(format!("1 ORDER BY {place} DESC LIMIT {limit}"));
        query
    }

    fn add_status(&self, query: &mut Query, leads: bool) -> bool {
        match &self.status[..] {
            [] => leads,
            [status] => {
                query.equals("kept.status", status.as_str(), leads);
                false
            }
            several => {
                let words: Vec<_> = several.iter().map(|status| query.bind(status.as_str().to_owned())).collect();
                // Few sessions are awake, and nearly all are asleep or have ended: those are found by walking the list.
                let few = !several.iter().any(|status| matches!(status, SessionStatus::Asleep | SessionStatus::Ended));
                let column = if few && leads { "kept.status" } else { "+kept.status" };
                query.conditions.push(format!("{column} IN ({})", words.join(", ")));
                leads && !few
            }
        }
    }

    fn add_times(&self, query: &mut Query) {
        if let Some(since) = self.since_ms {
            let since = query.bind(since);
            // Later rows were created later, except imported ones, so this ends the walk early.
            let first = format!("SELECT min(place) FROM session WHERE created_ms >= {since}");
            query.conditions.push(format!("+kept.created_ms >= {since} AND kept.place >= ({first})"));
        }
        if let Some(until) = self.until_ms {
            let until = query.bind(until);
            let last = format!("SELECT max(place) FROM session WHERE created_ms < {until}");
            query.conditions.push(format!("+kept.created_ms < {until} AND kept.place <= ({last})"));
        }
    }
}

/// Adds a label. Only a leading one with a value may choose the index.
fn add_label(query: &mut Query, label: &LabelFilter, leads: bool) {
    let key = query.bind(label.key.clone());
    let value = label.value.clone().map(|value| query.bind(value));
    match value {
        // The primary key of the labels is in the order of the list.
        Some(value) if leads => {
            query.from = String::from("session_label AS found CROSS JOIN kept ON kept.place = found.place");
            query.conditions.push(format!("found.key = {key} AND found.value = {value}"));
        }
        value => {
            let value = value.map_or_else(String::new, |value| format!(" AND value = {value}"));
            let of = format!("SELECT 1 FROM session_label WHERE place = kept.place AND key = {key}{value}");
            query.conditions.push(format!("EXISTS ({of})"));
        }
    }
}

/// Adds a search for a part of the texts. Returns whether a later condition may still choose the index.
fn add_text(query: &mut Query, text: &str, leads: bool) -> bool {
    let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    let pattern = query.bind(format!("%{escaped}%"));
    let like = |column: &str| format!("kept.{column} LIKE {pattern} ESCAPE '\\'");
    query.conditions.push(format!("({})", ["id", "name", "title", "last_prompt"].map(like).join(" OR ")));
    if !leads || text.chars().count() < TRIGRAM {
        return leads;
    }
    // The trigrams of the text find candidates; `LIKE` above confirms them.
    let letters: Vec<char> = text.chars().collect();
    let trigrams = letters
        .windows(TRIGRAM)
        .map(|letters| format!("\"{}\"", letters.iter().collect::<String>().replace('"', "\"\"")));
    let matched = query.bind(trigrams.collect::<Vec<_>>().join(" AND "));
    query.from = format!(
        "(SELECT rowid AS place FROM session_text WHERE session_text MATCH {matched} ORDER BY rowid DESC) AS found
         CROSS JOIN kept ON kept.place = found.place"
    );
    false
}

impl SessionIndex {
    /// Returns at most `limit` sessions, newest first, from the start or from the cursor of the previous page.
    pub fn list(&self, from: Option<SessionListCursor>, limit: usize) -> Result<SessionPage, SessionIndexError> {
        self.list_filtered(&SessionFilter::default(), from, limit)
    }

    /// Like [`Self::list`], with only the sessions that `filter` admits.
    pub fn list_filtered(
        &self,
        filter: &SessionFilter,
        from: Option<SessionListCursor>,
        limit: usize,
    ) -> Result<SessionPage, SessionIndexError> {
        if !filter.status.is_empty() {
            self.put_orphans_to_sleep()?;
        }
        let before = from.map_or(i64::MAX, |cursor| cursor.0);
        let wanted = i64::try_from(limit).unwrap_or(i64::MAX - 1);
        // One more row than requested shows whether there is a next page.
        let mut rows = run(&lock(&self.connection), &filter.query(before, wanted.saturating_add(1)))?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|row| row.cursor);
        Ok(SessionPage { sessions: rows.into_iter().map(|row| row.record).collect(), next })
    }
}

fn run(connection: &Connection, query: &Query) -> rusqlite::Result<Vec<SessionRow>> {
    let columns = SessionRow::COLUMNS.split(", ").map(|column| format!("kept.{}", column.trim()));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let sql = format!("SELECT {columns} FROM {} WHERE {}", query.from, query.conditions.join(" AND "));
    connection.prepare_cached(&sql)?.query_map(params_from_iter(&query.values), SessionRow::read)?.collect()
}
