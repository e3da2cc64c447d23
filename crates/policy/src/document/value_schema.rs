//! JSON Schemas of the values of a policy, shown by editors.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! shapes {
    ($($name:ident = $schema:tt;)*) => {
        $(
            pub(super) struct $name;

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!($schema)
                }
            }
        )*
    };
}

shapes! {
    Version = { "title": "version", "const": 1 };
    Size = {
        "title": "size", "type": ["string", "integer"], "minimum": 0,
        "pattern": "^[0-9]+ *(B|KB|KiB|MB|MiB|GB|GiB|TB|TiB)?$", "examples": ["512MiB", "4GB"]
    };
    Duration = {
        "title": "duration", "type": "string", "pattern": "^([0-9]+(d|h|m|s|ms))+$", "examples": ["30m", "10s"]
    };
    Count = { "title": "count", "type": "integer", "minimum": 0, "examples": [256] };
    Processors = { "title": "number", "type": "number", "exclusiveMinimum": 0, "multipleOf": 0.001, "examples": [2.0] };
    Dollars = { "title": "dollars", "type": "number", "minimum": 0, "examples": [2.00] };
    AbsolutePath = { "title": "absolute path", "type": "string", "pattern": "^/", "examples": ["/usr"] };
    Glob = { "title": "glob", "type": "string", "minLength": 1, "examples": ["**/.env"] };
    AllowedHost = {
        "title": "host[:port] pattern", "type": "string", "minLength": 1,
        "examples": ["packages.example.com:443", "*.example.org:443", "GET|HEAD mirror.example.com:80/files/**"]
    };
    DeniedHost = {
        "title": "host[:port] or network pattern", "type": "string", "minLength": 1,
        "examples": ["telemetry.example.com", "203.0.113.0/24"]
    };
    InterceptedHost = {
        "title": "host[:port] pattern", "type": "string", "minLength": 1,
        "examples": ["api.example.com:443", "*.example.org"]
    };
    InjectedHeader = {
        "title": "host and header", "type": "string", "minLength": 1,
        "examples": ["api.example.com:443 Authorization=Bearer {github}"]
    };
    VariableName = {
        "title": "variable name", "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "examples": ["LANG"]
    };
    PresetName = { "title": "preset", "enum": ["strict", "balanced", "open"] };
    Assignment = { "title": "assignment", "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*=", "examples": ["CC=clang"] };
    Toolchains = {
        "title": "toolchains",
        "anyOf": [{"enum": ["auto", "none"]}, {"type": "array", "items": {"type": "string"}}],
        "examples": ["auto", ["rust", "node"]]
    };
    NamePattern = { "title": "name pattern", "type": "string", "minLength": 1, "examples": ["claude-*"] };
    ToolPattern = { "title": "tool pattern", "type": "string", "minLength": 1, "examples": ["Bash(rm *)"] };
}
