//! Ids, with one type for each kind of thing. An id is checked when it is created.
//!
//! A `SessionId` is part of file names and URL paths, so it contains no separator and does not start with a dot. Copies
//! of an id share their text.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// The text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("an id must not be empty")]
    Empty,
    /// The text is longer than a file name may be.
    #[error("id too long: {len} characters, at most {max} are allowed")]
    TooLong {
        /// Length of the text.
        len: usize,
        /// Characters allowed.
        max: usize,
    },
    /// The character is not allowed, because an id is part of file names.
    #[error("invalid character `{0}` in an id; use letters, digits, `-`, `_` and inner single dots")]
    Character(char),
}

const MAX_LEN: usize = 128;

/// The ids that `check` accepts, except for their length.
#[cfg(feature = "openapi")]
const PATTERN: &str = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$";

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_LEN {
        return Err(IdError::TooLong { len: text.len(), max: MAX_LEN });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some(bad) = text.chars().find(|c| !allowed(*c)) {
        return Err(IdError::Character(bad));
    }
    if text.starts_with('.') || text.contains("..") {
        return Err(IdError::Character('.'));
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns `text` as an id. Fails if it is not a valid id.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text.into()))
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.as_str().to_owned()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let text = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::Type::String);
                text.pattern(Some(PATTERN)).max_length(Some(MAX_LEN)).into()
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

id!(
    /// The id of a session, chosen by the client or a UUID v7.
    SessionId
);
id!(
    /// The id of a turn, `trn_…`.
    TurnId
);
id!(
    /// The id of an item, `itm_…`.
    ItemId
);
id!(
    /// The id of a permission, `per_…`.
    PermissionId
);
id!(
    /// The id of a question, `que_…`.
    QuestionId
);
id!(
    /// The id of a model call, `call_…`.
    CallId
);

macro_rules! numbered {
    ($name:ident, $prefix:literal) => {
        impl $name {
            #[doc = concat!("Returns `", $prefix, "_<epoch>_<number>`. Numbers start again with each start of the agent.")]
            pub fn numbered(epoch: u32, number: u64) -> Self {
                Self(format!(concat!($prefix, "_{}_{}"), epoch, number).into())
            }
        }
    };
}

numbered!(TurnId, "trn");
numbered!(ItemId, "itm");
numbered!(PermissionId, "per");
numbered!(QuestionId, "que");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_cannot_leave_its_directory() {
        for bad in ["", ".", "..", "a/b", "../x", "a..b", ".hidden", "a b", "a\0b", "é", "%2e%2e"] {
            assert!(SessionId::new(bad).is_err(), "`{bad}` was accepted");
        }
        assert!(SessionId::new("x".repeat(129)).is_err());
    }

    #[test]
    fn valid_ids_are_accepted_unchanged() {
        for good in ["s1", "my-session_2", "019a-7", "v1.2", &"x".repeat(128)] {
            let json = serde_json::to_string(&SessionId::new(good).unwrap()).unwrap();
            assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap().as_str(), good);
        }
    }

    #[test]
    fn numbered_id_is_a_valid_id() {
        let id = ItemId::numbered(u32::MAX, u64::MAX);
        assert_eq!(ItemId::new(id.as_str()), Ok(id));
        assert_eq!(QuestionId::numbered(2, 7).as_str(), "que_2_7");
    }

    #[test]
    fn invalid_id_is_rejected_in_json() {
        assert!(serde_json::from_str::<SessionId>("\"../etc\"").is_err());
    }
}
