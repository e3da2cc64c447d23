//! `viv api`: one call of the session API, over the socket of the data directory, so that no token is needed.

use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use protocol::ProblemCode;
use serde_json::Value;

use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;

#[derive(Debug, Args)]
pub(crate) struct ApiArguments {
    /// GET, POST, PATCH or DELETE
    method: String,
    /// The path, e.g. /v1/sessions
    path: String,
    /// A JSON body; `-` reads stdin
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
}

/// Carries out `viv api`.
pub(crate) async fn carry_out(arguments: ApiArguments, config: Config) -> Result<ExitCode, Failure> {
    let wrong = |what: String| Failure::new(ProblemCode::InvalidRequest, what).help("viv api GET /openapi.json");
    let method: Method =
        arguments.method.to_uppercase().parse().map_err(|_| wrong(format!("`{}` is no method", arguments.method)))?;
    if !arguments.path.starts_with('/') || arguments.path.parse::<hyper::Uri>().is_err() {
        let what = format!("`{}` is no path: it begins with `/`, and blanks in it are written `%20`", arguments.path);
        return Err(wrong(what));
    }
    let body = arguments.data.as_deref().map(read_body).transpose()?;
    let client = ApiClient::required(&host::data_dir(&config)?).await?;
    client.show(method, &arguments.path, body, &mut std::io::stdout()).await?;
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
    serde_json::from_str(text)
        .map_err(|error| Failure::new(ProblemCode::InvalidRequest, "the body is no JSON").because(&error))
}
