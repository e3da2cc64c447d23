//! `OpenAI` chat completions: requests and responses, decoded and encoded.

pub(super) mod request_decoder;
pub(super) mod request_encoder;
pub(super) mod response_decoder;
pub(super) mod response_encoder;
mod wire;
