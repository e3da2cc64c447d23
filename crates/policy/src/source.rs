//! Policy texts with their names, and positions in them.

use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A policy text and its name in messages: a path, a preset or an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySource {
    name: Arc<str>,
    text: Arc<str>,
}

impl PolicySource {
    /// Returns a source for a text that the caller has read.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Returns the name shown in messages and rules.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The position of a value in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourcePosition {
    /// Line, from 1; 0 for a value that is not from a text.
    pub line: u32,
    /// Byte offset of the value.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

impl SourcePosition {
    pub(crate) fn of(location: serde_saphyr::Location) -> Option<Self> {
        let span = location.span();
        let offset = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok()?;
        Some(Self { line: u32::try_from(location.line()).ok()?, offset, length })
    }
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The position.
    pub position: SourcePosition,
}

impl<T> Spanned<T> {
    /// Returns a value with its position.
    pub fn at(value: T, position: SourcePosition) -> Self {
        Self { value, position }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<T>::deserialize(deserializer)?;
        Ok(Self::at(spanned.value, SourcePosition::of(spanned.referenced).unwrap_or_default()))
    }
}

impl<T: Serialize> Serialize for Spanned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
