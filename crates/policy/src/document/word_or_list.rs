//! A value that is one word or a list of words, such as `toolchains: auto`.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::source::{SourcePosition, Spanned};

/// The words. One word is a list with one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct WordOrList(pub(crate) Vec<Spanned<String>>);

impl<'de> Deserialize<'de> for WordOrList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl<'de> Visitor<'de> for Words {
            type Value = WordOrList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list of words")
            }

            fn visit_str<E>(self, word: &str) -> Result<WordOrList, E> {
                Ok(WordOrList(vec![Spanned::at(word.to_owned(), SourcePosition::default())]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<WordOrList, A::Error> {
                let mut all = Vec::new();
                while let Some(word) = words.next_element::<Spanned<String>>()? {
                    all.push(word);
                }
                Ok(WordOrList(all))
            }
        }

        deserializer.deserialize_any(Words)
    }
}
