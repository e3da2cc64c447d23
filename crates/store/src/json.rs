//! Compact JSON, byte for byte what `serde_json` writes, and written faster.
//!
//! What is recorded is mostly text that is JSON itself, with a quote every few bytes, and each record has dozens of
//! short names: a general writer spends more on them than the rest of a model call takes.

mod open;
mod page;

use serde::Serialize;

use open::Open;
use page::Page;
use serde::ser::{self, Error as _};

/// A writer of one JSON value.
pub(crate) struct Json<'a> {
    page: Page<'a>,
    open: usize,
    deepest: usize,
}

type Error = serde_json::Error;
type Written = Result<(), Error>;

/// Adds `value` to `out`; says how many brackets are open at its deepest place. After an error a part of it is there.
pub(crate) fn write(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) -> Result<usize, Error> {
    let mut json = Json { page: Page::after(out), open: 0, deepest: 0 };
    value.serialize(&mut json)?;
    Ok(json.deepest)
}

impl<'a> Json<'a> {
    #[expect(clippy::unnecessary_wraps, reason = "it is what every method of a serializer returns")]
    fn raw(&mut self, bytes: &[u8]) -> Written {
        self.page.put(bytes);
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is what every method of a serializer returns")]
    fn text(&mut self, text: &str) -> Written {
        self.page.quote(text);
        Ok(())
    }

    fn number(&mut self, number: impl itoa::Integer) -> Written {
        self.raw(itoa::Buffer::new().format(number).as_bytes())
    }

    /// A number that is rare enough to be written by others.
    fn fraction(&mut self, number: &impl Serialize) -> Written {
        let text = serde_json::to_vec(number)?;
        self.raw(&text)
    }

    fn enter(&mut self, begin: u8) {
        self.page.put(&[begin]);
        self.open += 1;
        self.deepest = self.deepest.max(self.open);
    }

    fn open<'j>(&'j mut self, begin: u8, end: &'static [u8]) -> Open<'j, 'a> {
        self.enter(begin);
        Open::new(self, end)
    }

    /// Opens the object that names a variant.
    fn variant(&mut self, name: &'static str) {
        self.enter(b'{');
        self.page.name(false, name);
    }
}

impl<'j, 'a> ser::Serializer for &'j mut Json<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Open<'j, 'a>;
    type SerializeTuple = Open<'j, 'a>;
    type SerializeTupleStruct = Open<'j, 'a>;
    type SerializeTupleVariant = Open<'j, 'a>;
    type SerializeMap = Open<'j, 'a>;
    type SerializeStruct = Open<'j, 'a>;
    type SerializeStructVariant = Open<'j, 'a>;

    fn serialize_bool(self, value: bool) -> Written {
        self.raw(if value { b"true" } else { b"false" })
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.number(value)
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.number(value)
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.number(value)
    }

    fn serialize_i64(self, value: i64) -> Written {
        self.number(value)
    }

    fn serialize_i128(self, value: i128) -> Written {
        self.number(value)
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.number(value)
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.number(value)
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.number(value)
    }

    fn serialize_u64(self, value: u64) -> Written {
        self.number(value)
    }

    fn serialize_u128(self, value: u128) -> Written {
        self.number(value)
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.fraction(&value)
    }

    fn serialize_f64(self, value: f64) -> Written {
        self.fraction(&value)
    }

    fn serialize_char(self, value: char) -> Written {
        self.text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Written {
        self.text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        self.collect_seq(value)
    }

    fn serialize_none(self) -> Written {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.raw(b"null")
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Written {
        self.text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        self.variant(variant);
        value.serialize(&mut *self)?;
        self.open -= 1;
        self.raw(b"}")
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Open<'j, 'a>, Error> {
        Ok(self.open(b'[', b"]"))
    }

    fn serialize_tuple(self, _length: usize) -> Result<Open<'j, 'a>, Error> {
        Ok(self.open(b'[', b"]"))
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<Open<'j, 'a>, Error> {
        Ok(self.open(b'[', b"]"))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Open<'j, 'a>, Error> {
        self.variant(variant);
        Ok(self.open(b'[', b"]}"))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Open<'j, 'a>, Error> {
        Ok(self.open(b'{', b"}"))
    }

    fn serialize_struct(self, name: &'static str, _length: usize) -> Result<Open<'j, 'a>, Error> {
        // How `serde_json` passes on JSON that nobody has read.
        if name == "$serde_json::private::RawValue" {
            return Err(Error::custom("JSON that was not read cannot be recorded"));
        }
        Ok(self.open(b'{', b"}"))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Open<'j, 'a>, Error> {
        self.variant(variant);
        Ok(self.open(b'{', b"}}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn written(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        write(value, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[derive(Serialize)]
    struct Unit;
    #[derive(Serialize)]
    struct Newtype(u8);
    #[derive(Serialize)]
    struct Pair(i8, f32);
    #[derive(Serialize)]
    enum Any {
        Unit,
        Newtype(char),
        Tuple(u128, i128, Option<u8>),
        Struct { a: Vec<Any>, b: Unit },
    }

    #[test]
    fn every_shape_is_written_as_serde_json_does() {
        let nested =
            Any::Struct { a: vec![Any::Unit, Any::Newtype('"'), Any::Tuple(u128::MAX, i128::MIN, None)], b: Unit };
        let keys =
            (BTreeMap::from([(1u8, 'a')]), BTreeMap::from([(true, None::<u8>)]), BTreeMap::from([('k', Newtype(7))]));
        let all = (nested, keys, Pair(-1, 0.1), [f64::NAN, 1e300, -0.0], (i64::MIN, u64::MAX), Vec::<u8>::new());
        assert_eq!(written(&all), serde_json::to_string(&all).unwrap());
    }

    #[test]
    fn what_json_cannot_hold_is_refused() {
        let refused = |value: &dyn Fn(&mut Vec<u8>) -> Result<usize, Error>| value(&mut Vec::new()).is_err();
        assert!(refused(&|out| write(&BTreeMap::from([(vec![1u8], 1)]), out)));
        assert!(refused(&|out| write(&BTreeMap::from([(None::<u8>, 1)]), out)));
        let raw = serde_json::value::RawValue::from_string("1".to_owned()).unwrap();
        assert!(refused(&|out| write(&raw, out)));
    }

    #[test]
    fn the_depth_is_that_of_the_deepest_place() {
        let depth = |value: Value| write(&value, &mut Vec::new()).unwrap();
        assert_eq!(depth(json!(1)), 0);
        assert_eq!(depth(json!([[], {"a": [{}]}, []])), 4);
        let mut out = Vec::new();
        assert_eq!(write(&Any::Struct { a: vec![Any::Newtype('x')], b: Unit }, &mut out).unwrap(), 4);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[ -~\"\\\\\u{0}-\u{1f}]{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_is_written_as_serde_json_does(value in any_value()) {
            prop_assert_eq!(written(&value), value.to_string());
        }
    }
}
