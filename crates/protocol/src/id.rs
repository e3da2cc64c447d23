//! Names of things, one type a thing, checked where they enter.
//!
//! A `SessionId` is part of file names and paths, so it can never hold a separator or a dot at its start. An id is named
//! in many places at once, so its text is shared.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing was given.
    #[error("an id must not be empty")]
    Empty,
    /// Longer than a file name may be.
    #[error("an id has at most {max} characters, this one has {len}")]
    TooLong {
        /// Characters given.
        len: usize,
        /// Characters allowed.
        max: usize,
    },
    /// A character that could leave the directory an id names a file in.
    #[error("an id is made of letters, digits, `-`, `_` and inner `.`; found `{0}`")]
    Character(char),
}

const MAX_LEN: usize = 128;

/// What `check` lets through, but for the length.
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
            /// Checks `text` and makes it an id.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text.into()))
            }

            /// The id as it stands in paths, files and JSON.
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
    /// One conversation with one agent; chosen by the client, or a UUID v7.
    SessionId
);
id!(
    /// One prompt and everything that followed from it, `trn_…`.
    TurnId
);
id!(
    /// One message, tool call or status inside a session, `itm_…`.
    ItemId
);
id!(
    /// Something the agent may not do before somebody said yes, `per_…`.
    PermissionId
);
id!(
    /// Something the agent asked a person, `que_…`.
    QuestionId
);
id!(
    /// One call to a model through the gateway, `call_…`.
    CallId
);

macro_rules! numbered {
    ($name:ident, $prefix:literal) => {
        impl $name {
            #[doc = concat!("`", $prefix, "_<epoch>_<number>`: counted anew at each start of the agent.")]
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
    fn an_id_cannot_leave_its_directory() {
        for bad in ["", ".", "..", "a/b", "../x", "a..b", ".hidden", "a b", "a\0b", "é", "%2e%2e"] {
            assert!(SessionId::new(bad).is_err(), "`{bad}` was accepted");
        }
        assert!(SessionId::new("x".repeat(129)).is_err());
    }

    #[test]
    fn ordinary_ids_pass_and_stay_as_they_are() {
        for good in ["s1", "my-session_2", "019a-7", "v1.2", &"x".repeat(128)] {
            let json = serde_json::to_string(&SessionId::new(good).unwrap()).unwrap();
            assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_numbered_id_is_an_ordinary_one() {
        let id = ItemId::numbered(u32::MAX, u64::MAX);
        assert_eq!(ItemId::new(id.as_str()), Ok(id));
        assert_eq!(QuestionId::numbered(2, 7).as_str(), "que_2_7");
    }

    #[test]
    fn a_bad_id_is_refused_in_json_too() {
        assert!(serde_json::from_str::<SessionId>("\"../etc\"").is_err());
    }
}
