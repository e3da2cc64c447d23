//! Arrays and objects, written one after another of what is in them.

use serde::Serialize;
use serde::ser::{self, Error as _};

use super::{Error, Json, Written};

/// An array or object whose end is not written yet.
pub(crate) struct Open<'j, 'a> {
    json: &'j mut Json<'a>,
    empty: bool,
    /// What closes it, and the object around it where it is the content of a variant.
    end: &'static [u8],
}

impl<'j, 'a> Open<'j, 'a> {
    pub(super) fn new(json: &'j mut Json<'a>, end: &'static [u8]) -> Self {
        Self { json, empty: true, end }
    }

    /// Whether something stands before what comes next.
    fn follows(&mut self) -> bool {
        !std::mem::take(&mut self.empty)
    }

    fn separate(&mut self) {
        if self.follows() {
            self.json.page.put(b",");
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.separate();
        value.serialize(&mut *self.json)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        let follows = self.follows();
        self.json.page.name(follows, name);
        value.serialize(&mut *self.json)
    }

    fn close(self) -> Written {
        self.json.open -= self.end.len();
        self.json.raw(self.end)
    }
}

impl ser::SerializeMap for Open<'_, '_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.separate();
        let start = self.json.page.end();
        key.serialize(&mut *self.json)?;
        match self.json.page.since(start) {
            [b'"', ..] => {}
            [b'[' | b'{' | b'n', ..] | [] => return Err(Error::custom("the key of an object must be a text")),
            plain => {
                let text = String::from_utf8_lossy(plain).into_owned();
                self.json.page.turn_back(start);
                self.json.page.quote(&text);
            }
        }
        self.json.raw(b":")
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(&mut *self.json)
    }

    fn end(self) -> Written {
        self.close()
    }
}

/// Serde tells apart what JSON does not: lists and tuples, structs and those of a variant.
macro_rules! written_as {
    ($shape:ident, $method:ident($($argument:ident: $type:ty),*), $how:ident) => {
        impl ser::$shape for Open<'_, '_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $($argument: $type,)* value: &T) -> Written {
                self.$how($($argument,)* value)
            }

            fn end(self) -> Written {
                self.close()
            }
        }
    };
}

written_as!(SerializeSeq, serialize_element(), element);
written_as!(SerializeTuple, serialize_element(), element);
written_as!(SerializeTupleStruct, serialize_field(), element);
written_as!(SerializeTupleVariant, serialize_field(), element);
written_as!(SerializeStruct, serialize_field(name: &'static str), field);
written_as!(SerializeStructVariant, serialize_field(name: &'static str), field);
