//! `OpenAI` responses: requests decoded and responses encoded. No upstream has only this API, so the rest is not needed.

pub(super) mod request_decoder;
pub(super) mod response_encoder;
mod tools;
