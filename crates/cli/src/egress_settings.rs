//! The way to the world outside, made from the configuration.

use std::path::Path;
use std::sync::Arc;

use egress::{Egress, EgressCredential};

use crate::config::Config;
use crate::failure::Failure;

/// The proxy of this process, with the certificates it trusts beside the system's, and the credentials it may set. What a
/// policy does not name is not looked for.
pub(crate) fn egress(config: &Config) -> Result<Egress, Failure> {
    let roots = config.file.egress.roots.as_deref().map(|roots| read_roots(config, roots)).transpose()?;
    let known = config.clone();
    let find = Arc::new(move |name: &str| credential(&known, name).map_err(|failure| failure.to_string()));
    Ok(session::way_out(roots.unwrap_or_default()).with_credentials(find))
}

fn credential(config: &Config, name: &str) -> Result<EgressCredential, Failure> {
    let at = format!("credentials.{name}");
    let section = config.file.credentials.get(name).ok_or_else(|| config.wrong(&at, "it is not there"))?;
    let found = config.credential(&at, section)?;
    let nowhere = || config.wrong(&at, "it says not where the credential is: key, key_file, key_command or key_env");
    let mut credential = EgressCredential::named(name, found.ok_or_else(nowhere)?);
    if let Some(variable) = &section.variable {
        if !variable.is_empty() && !EgressCredential::can_be_variable(variable) {
            return Err(config.wrong(&at, &format!("no placeholder can be in a variable `{variable}`")));
        }
        credential.variable = Some(variable.clone()).filter(|variable| !variable.is_empty());
    }
    Ok(credential)
}

fn read_roots(config: &Config, roots: &Path) -> Result<Vec<rustls_pki_types::CertificateDer<'static>>, Failure> {
    let wrong = |why: &str| config.wrong("egress.roots", &format!("`{}` {why}", roots.display()));
    let pem = std::fs::read(config.path(roots)).map_err(|error| wrong("cannot be read").because(&error))?;
    gateway::roots_in(&pem).ok_or_else(|| wrong("holds no certificates in PEM"))
}
