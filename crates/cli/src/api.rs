//! `viv api`: call the session API over the socket of the data directory, which needs no token.

use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use protocol::ProblemCode;
use serde_json::Value;

use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::{host, output};

#[derive(Debug, Args)]
pub(crate) struct ApiArguments {
    /// HTTP method: GET, POST, PATCH or DELETE
    method: String,
    /// Path, e.g. /v1/sessions
    path: String,
    /// JSON body; `-` reads stdin
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
}

/// Runs `viv api`.
pub(crate) async fn carry_out(arguments: ApiArguments, config: Config) -> Result<ExitCode, Failure> {
    let wrong = |what: String| Failure::new(ProblemCode::InvalidRequest, what).help("viv api GET /openapi.json");
    let method: Method = arguments
        .method
        .to_uppercase()
        .parse()
        .map_err(|_| wrong(format!("invalid HTTP method `{}`", arguments.method)))?;
    if !arguments.path.starts_with('/') || arguments.path.parse::<hyper::Uri>().is_err() {
        let what = format!("invalid path `{}`: it must begin with `/`, and spaces are written `%20`", arguments.path);
        return Err(wrong(what));
    }
    let body = arguments.data.as_deref().map(read_body).transpose()?;
    let client = ApiClient::required(&host::data_dir(&config)?).await?;
    client.show(method, &arguments.path, body, &mut output::data_writer()).await?;
    Ok(ExitCode::SUCCESS)
}

fn read_body(text: &str) -> Result<Value, Failure> {
    let mut read = String::new();
    let text = if text == "-" {
        let stdin = std::io::stdin().read_to_string(&mut read);
        stdin.map_err(|error| Failure::from_error(ProblemCode::InvalidRequest, &error))?;
        &read
    } else {
        text
    };
    serde_json::from_str(text).map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, "the body of `--data` is not valid JSON")
            .because(&error)
            .help("viv api GET /openapi.json")
    })
}
