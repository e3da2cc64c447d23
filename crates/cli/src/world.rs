//! The way to the world outside, made from the configuration.

use egress::Egress;

use crate::config::Config;
use crate::failure::Failure;

/// The proxy of this process, with the certificates it trusts beside the system's.
pub(crate) fn egress(config: &Config) -> Result<Egress, Failure> {
    let Some(roots) = &config.file.egress.roots else { return Ok(session::way_out(Vec::new())) };
    let wrong = |why: &str| config.wrong("egress.roots", &format!("`{}` {why}", roots.display()));
    let pem = std::fs::read(config.path(roots)).map_err(|error| wrong("cannot be read").because(&error))?;
    let roots = gateway::roots_in(&pem).ok_or_else(|| wrong("holds no certificates in PEM"))?;
    Ok(session::way_out(roots))
}
