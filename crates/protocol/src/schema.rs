//! The OpenAPI schema of an event.
//!
//! It is written by hand, because a derived schema cannot express that `type` determines `data` and that unknown types
//! are allowed.

use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{KnownFormat, ObjectBuilder, Ref, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::{
    AgentUnparsed, ErrorData, Event, EventSource, ItemDelta, ItemEvent, Permission, Question, SessionEnded,
    SessionStarted, Turn,
};

impl ToSchema for Event {
    fn name() -> std::borrow::Cow<'static, str> {
        "UniversalEvent".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        fn add<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            schemas.push((T::name().into_owned(), T::schema()));
            T::schemas(schemas);
        }
        add::<EventSource>(schemas);
        add::<SessionStarted>(schemas);
        add::<SessionEnded>(schemas);
        add::<Turn>(schemas);
        add::<ItemEvent>(schemas);
        add::<ItemDelta>(schemas);
        add::<ErrorData>(schemas);
        add::<Permission>(schemas);
        add::<Question>(schemas);
        add::<AgentUnparsed>(schemas);
    }
}

impl PartialSchema for Event {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(1));
        ObjectBuilder::new()
            .description(Some("An event of a session."))
            .property("event_id", text().description(Some("`evt_<sequence>`.")))
            .property("sequence", number.description(Some("Contiguous from 1 in a session.")))
            .property("time", text().description(Some("RFC 3339, UTC.")))
            .property("session_id", text())
            .property("turn_id", text().description(Some("The turn of the event.")))
            .property("native_session_id", text().description(Some("The agent's own session id.")))
            .property("synthetic", ObjectBuilder::new().schema_type(Type::Boolean))
            .property("source", Ref::from_schema_name(EventSource::name()))
            .property("type", text().description(Some("The event type; it determines the content of `data`.")))
            .property("data", data())
            .property("raw", ObjectBuilder::new().schema_type(utoipa::openapi::schema::SchemaType::AnyValue))
            .required("event_id")
            .required("sequence")
            .required("time")
            .required("session_id")
            .required("synthetic")
            .required("source")
            .required("type")
            .required("data")
            .into()
    }
}

/// Returns the schema of `data`: a payload that the session API defines, or any other object.
fn data() -> Schema {
    let known = [
        SessionStarted::name(),
        SessionEnded::name(),
        Turn::name(),
        ItemEvent::name(),
        ItemDelta::name(),
        ErrorData::name(),
        Permission::name(),
        Question::name(),
        AgentUnparsed::name(),
    ];
    let any = known.into_iter().fold(AnyOfBuilder::new(), |any, name| any.item(Ref::from_schema_name(name)));
    any.item(ObjectBuilder::new().schema_type(Type::Object)).into()
}
