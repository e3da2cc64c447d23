//! The package registries that the tools of this host are configured for: `net.packages` opens them.
//!
//! Each tool is asked itself, or its configuration is read; no registry is named here. Tools run in `/`, never in a
//! workspace, whose configuration is not trusted. A registry that cannot be learned is a note, never a guess.
//!
//! Not here: what a policy does with the registries (`policy`), and the requests to them (`egress`).

mod apt;
mod cargo;
mod go;
mod host_tools;
mod maven;
mod npm;
mod pip;
mod registry;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use egress::{EgressCredential, PackageSettings};
use policy::RegistryAccess;

use host_tools::HostTools;
use registry::Registry;

/// Prefix of the names of credentials that belong to registries.
const CREDENTIAL: &str = "packages-";

/// The registries of this host, and the settings that tools inside a sandbox need for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct PackageTools {
    registries: Vec<Registry>,
    /// Variables and files inside. They contain no credential.
    settings: PackageSettings,
    /// Sentences about registries that are not opened, with the reason.
    notes: Vec<String>,
}

impl PackageTools {
    fn add(&mut self, other: Self) {
        self.registries.extend(other.registries);
        self.settings.environment.extend(other.settings.environment);
        self.settings.files.extend(other.settings.files);
        self.notes.extend(other.notes);
    }

    fn variable(&mut self, name: &str, value: impl Into<String>) {
        self.settings.environment.push((name.to_owned(), value.into()));
    }

    fn file(&mut self, path: &str, content: String) {
        self.settings.files.push((path.to_owned(), content));
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds the host of `url`. A text that is not a URL of a web server becomes a note.
    fn registry(&mut self, url: &str, origin: &str) -> Option<Registry> {
        match Registry::parse(url, origin) {
            Ok(registry) => {
                self.registries.push(registry.clone());
                Some(registry)
            }
            Err(why) => {
                self.note(format!("{origin}: {why}"));
                None
            }
        }
    }

    /// Returns the sentences about registries that are not opened.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the access to each host once, with the number of the registry in the name of its credential.
    pub(crate) fn accesses(&self) -> Vec<RegistryAccess> {
        let mut accesses: Vec<RegistryAccess> = Vec::new();
        for (number, registry) in self.registries.iter().enumerate() {
            let inject = registry.credential.as_ref().map(|found| found.header(&format!("{CREDENTIAL}{number}")));
            let endpoint = registry.endpoint();
            if let Some(known) = accesses.iter_mut().find(|access| access.endpoint == endpoint) {
                known.inject = known.inject.take().or(inject);
                if !known.origin.split(", ").any(|origin| origin == registry.origin) {
                    known.origin = format!("{}, {}", known.origin, registry.origin);
                }
                continue;
            }
            accesses.push(RegistryAccess { endpoint, tls: registry.tls, inject, origin: registry.origin.clone() });
        }
        accesses
    }

    fn credential(&self, name: &str) -> Option<EgressCredential> {
        let number: usize = name.strip_prefix(CREDENTIAL)?.parse().ok()?;
        let found = self.registries.get(number)?.credential.as_ref()?;
        Some(EgressCredential { secret: found.secret.clone(), variable: None })
    }
}

/// Finds the registries of this host once, when a policy needs them.
#[derive(Debug, Clone, Default)]
pub(crate) struct PackageFinder(Arc<OnceLock<PackageTools>>);

impl PackageFinder {
    /// Returns the registries. Programs in `workspace` are not run.
    pub(crate) fn find(&self, workspace: Option<&Path>) -> &PackageTools {
        self.0.get_or_init(|| find(&HostTools::of_this_host(workspace)))
    }

    /// Returns the variables and files of the tools inside; nothing if no policy needed the registries.
    pub(crate) fn settings(&self) -> PackageSettings {
        self.0.get().map(|found| found.settings.clone()).unwrap_or_default()
    }

    /// Returns a credential of a registry by its name in the policy.
    pub(crate) fn credential(&self, name: &str) -> Option<EgressCredential> {
        self.0.get()?.credential(name)
    }
}

fn find(host: &HostTools) -> PackageTools {
    let tools: [fn(&HostTools) -> PackageTools; 6] =
        [npm::find, pip::find, cargo::find, go::find, maven::find, apt::find];
    let mut all = PackageTools::default();
    // Each tool takes up to a second, so they are asked at the same time.
    std::thread::scope(|scope| {
        let asked = tools.map(|find| scope.spawn(move || find(host)));
        for found in asked.into_iter().filter_map(|thread| thread.join().ok()) {
            all.add(found);
        }
    });
    all
}
