//! The egress proxy, built from the configuration.

use std::path::Path;
use std::sync::Arc;

use egress::{Egress, EgressCredential};

use crate::config::Config;
use crate::failure::Failure;

/// Returns the egress proxy with its additional root certificates and its credentials. A credential is read only when a
/// policy names it.
pub(crate) fn egress(config: &Config) -> Result<Egress, Failure> {
    let roots = config.file.egress.roots.as_deref().map(|roots| read_roots(config, roots)).transpose()?;
    let known = config.clone();
    let find = Arc::new(move |name: &str| match known.packages.credential(name) {
        Some(found) => Ok(found),
        None => credential(&known, name).map_err(|failure| failure.to_string()),
    });
    let packages = config.packages.clone();
    let egress = session::system_egress(roots.unwrap_or_default()).with_credentials(find);
    Ok(egress.with_packages(Arc::new(move || packages.settings())))
}

fn credential(config: &Config, name: &str) -> Result<EgressCredential, Failure> {
    let at = format!("credentials.{name}");
    let section =
        config.file.credentials.get(name).ok_or_else(|| config.invalid_value(&at, "this section is missing"))?;
    let found = config.credential(&at, section)?;
    let missing = || config.invalid_value(&at, "one of key, key_file, key_command and key_env must be set");
    let mut credential = EgressCredential::from_name(name, found.ok_or_else(missing)?);
    if let Some(variable) = &section.variable {
        if !variable.is_empty() && !EgressCredential::is_valid_variable(variable) {
            return Err(config.invalid_value(&at, &format!("`variable` cannot be `{variable}`: that name is reserved")));
        }
        credential.variable = Some(variable.clone()).filter(|variable| !variable.is_empty());
    }
    Ok(credential)
}

fn read_roots(config: &Config, roots: &Path) -> Result<Vec<rustls_pki_types::CertificateDer<'static>>, Failure> {
    let wrong = |why: &str| config.invalid_value("egress.roots", &format!("`{}` {why}", roots.display()));
    let pem = std::fs::read(config.path(roots)).map_err(|error| wrong("cannot be read").because(&error))?;
    gateway::parse_certificates(&pem).ok_or_else(|| wrong("contains no PEM certificate"))
}
