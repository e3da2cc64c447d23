//! Dependencies between our crates follow the table of layers.
//!
//! A crate may depend only on rows above its own. An allowed dependency that no manifest uses is an error too, so that
//! the table always shows the real architecture.

use toml::{Table, Value};

use super::Finding;
use crate::tree::{Tree, folder};

/// One of our crates with the crates that it may depend on.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
    /// Further crates that its tests may depend on.
    tests_may_use: &'static [&'static str],
}

const fn layer(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { name, may_use, tests_may_use: &[] }
}

/// The crate that every other crate may depend on.
const SHARED: &str = "base";
/// The crate that the tests of every other crate may depend on.
const SHARED_IN_TESTS: &str = "testkit";

/// All crates, lowest layer first.
const LAYERS: &[Layer] = &[
    layer("base", &[]),
    layer("protocol", &[]),
    layer("policy", &["protocol"]),
    layer("secret", &[]),
    layer("agents", &["protocol"]),
    layer("mock", &["protocol", "agents"]),
    layer("store", &["protocol"]),
    layer("jail", &[]),
    Layer { name: "sandbox", may_use: &["protocol", "policy", "jail"], tests_may_use: &["engines"] },
    layer("gateway", &["protocol", "policy", "store", "secret"]),
    layer("egress", &["protocol", "policy", "store", "secret"]),
    Layer {
        name: "session",
        may_use: &["protocol", "policy", "agents", "store", "sandbox", "gateway", "egress"],
        tests_may_use: &["mock", "secret"],
    },
    layer("mcp", &["protocol", "policy", "store", "sandbox", "session"]),
    layer("testkit", &["policy", "agents", "store", "sandbox", "gateway", "egress", "session"]),
    layer("engines", &["testkit", "jail", "sandbox"]),
    Layer {
        name: "server",
        may_use: &["protocol", "agents", "store", "sandbox", "session"],
        tests_may_use: &["gateway", "mock", "policy"],
    },
    Layer {
        name: "cli",
        may_use: &[
            "protocol", "policy", "agents", "mock", "store", "secret", "jail", "sandbox", "gateway", "egress",
            "session", "server", "mcp",
        ],
        tests_may_use: &["engines"],
    },
    Layer {
        name: "security",
        may_use: &[],
        tests_may_use: &[
            "protocol", "policy", "mock", "store", "secret", "jail", "sandbox", "engines", "gateway", "egress",
            "session",
        ],
    },
    Layer {
        name: "conformance",
        may_use: &[],
        tests_may_use: &[
            "protocol", "policy", "agents", "mock", "store", "secret", "jail", "sandbox", "gateway", "egress",
            "session",
        ],
    },
    layer("viv-fuzz", &["protocol", "policy", "agents", "store", "sandbox", "gateway", "session", "server"]),
    layer("load", &[]),
    layer("sessions-load", &["protocol", "policy", "agents", "store", "sandbox", "gateway", "session", "server"]),
    layer("xtask", &["protocol"]),
];

/// Compares every manifest with the table, and the table with the manifests.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    check_against(LAYERS, tree)
}

fn check_against(layers: &[Layer], tree: &Tree) -> Vec<Finding> {
    let mut findings = upward(layers);
    let mut seen = Vec::new();
    for (_, path, text) in tree.packages() {
        let manifest = match text.parse::<Table>() {
            Ok(manifest) => manifest,
            Err(error) => {
                findings.push(Finding::new(
                    path,
                    1,
                    format!("the manifest cannot be read: {}", error.message()),
                    "fix the TOML",
                ));
                continue;
            }
        };
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        let Some(layer) = layers.iter().find(|layer| Some(layer.name) == name) else {
            let what = format!("crate `{}` is missing in the table of layers", name.unwrap_or(folder(path)));
            findings.push(Finding::new(path, 1, what, format!("add a row to {}", file!())));
            continue;
        };
        seen.push(layer.name);
        findings.extend(check_manifest(layers, layer, path, text, &manifest));
    }
    let gone = layers.iter().filter(|layer| !seen.contains(&layer.name));
    findings.extend(gone.map(|layer| in_table(format!("crate `{}` does not exist", layer.name))));
    findings
}

fn check_manifest(layers: &[Layer], layer: &Layer, path: &str, text: &str, manifest: &Table) -> Vec<Finding> {
    let (known, known_in_tests) = (ours(layers, manifest, false), ours(layers, manifest, true));
    let in_tests: Vec<&str> = layer.may_use.iter().chain(layer.tests_may_use).copied().collect();
    let refused = known.iter().filter(|name| !layer.may_use.contains(&name.as_str()));
    let refused_in_tests = known_in_tests.iter().filter(|name| !in_tests.contains(&name.as_str()));
    let mut findings: Vec<Finding> = (refused.chain(refused_in_tests))
        .map(|name| {
            let line = text.lines().position(|line| line.starts_with(name.as_str())).map_or(1, |index| index + 1);
            let what = format!("`{}` may not depend on `{name}`", layer.name);
            Finding::new(path, line, what, "move the code to a layer that may, or pass the value from above")
        })
        .collect();
    let unused = layer.may_use.iter().filter(|name| !known.iter().any(|found| found == *name));
    findings.extend(unused.map(|name| in_table(format!("`{}` may depend on `{name}` and does not", layer.name))));
    let unused = layer.tests_may_use.iter().filter(|name| !known_in_tests.iter().any(|found| found == *name));
    findings
        .extend(unused.map(|name| in_table(format!("tests of `{}` may depend on `{name}` and do not", layer.name))));
    findings
}

/// Returns findings for rows that depend on their own or a lower row of the table.
fn upward(layers: &[Layer]) -> Vec<Finding> {
    let rows = layers.iter().enumerate().flat_map(|(place, layer)| {
        let unknown = layer.may_use.iter().filter(move |name| !layers[..place].iter().any(|row| row.name == **name));
        unknown
            .map(|name| in_table(format!("`{}` depends on `{name}`, which is not above it in the table", layer.name)))
    });
    rows.collect()
}

fn in_table(what: String) -> Finding {
    Finding::new(file!(), 1, what, "correct the table LAYERS")
}

/// Returns the crates of ours that a manifest depends on: in the product, or only in tests.
fn ours(layers: &[Layer], manifest: &Table, tests: bool) -> Vec<String> {
    let sections: &[&str] = if tests { &["dev-dependencies"] } else { &["dependencies", "build-dependencies"] };
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let places = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let tables = places.flat_map(|place| sections.iter().filter_map(|section| place.get(*section)?.as_table()));
    let names = tables.flatten().map(|(key, value)| {
        // A dependency may be renamed; compare the package name.
        value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned()
    });
    let shared = |name: &str| name == SHARED || (tests && name == SHARED_IN_TESTS);
    names.filter(|name| !shared(name) && layers.iter().any(|layer| layer.name == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Layer] =
        &[layer("low", &[]), Layer { name: "high", may_use: &["low"], tests_may_use: &["kit"] }, layer("kit", &[])];

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    #[track_caller]
    fn check(low: &str, high: &str, expected: &[&str]) {
        let (low, high, kit) = (manifest("low", low), manifest("high", high), manifest("kit", ""));
        let tree = Tree::of(&[("a/Cargo.toml", &low), ("b/Cargo.toml", &high), ("c/Cargo.toml", &kit)]);
        let found: Vec<_> = check_against(TABLE, &tree).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, expected);
    }

    const GOOD: &str = "[dependencies]\nlow.workspace = true\nserde = \"1\"\n[dev-dependencies]\nkit.workspace = true";

    #[test]
    fn allowed_dependency_passes() {
        check("", GOOD, &[]);
    }

    #[test]
    fn upward_dependency_is_found_in_every_section() {
        check("[dependencies]\nhigh.workspace = true", GOOD, &["`low` may not depend on `high`"]);
        check("[build-dependencies]\nhigh.workspace = true", GOOD, &["`low` may not depend on `high`"]);
        check("[target.'cfg(unix)'.dependencies]\nhigh.path = \"x\"", GOOD, &["`low` may not depend on `high`"]);
        check("[dependencies]\nother = { package = \"high\" }", GOOD, &["`low` may not depend on `high`"]);
    }

    #[test]
    fn dependency_for_tests_is_not_allowed_in_the_product() {
        let high =
            "[dependencies]\nlow.workspace = true\nkit.workspace = true\n[dev-dependencies]\nkit.workspace = true";
        check("", high, &["`high` may not depend on `kit`"]);
        check("[dev-dependencies]\nkit.workspace = true", GOOD, &["`low` may not depend on `kit`"]);
    }

    #[test]
    fn unused_allowance_is_found() {
        let unused = ["`high` may depend on `low` and does not", "tests of `high` may depend on `kit` and do not"];
        check("", "", &unused);
    }

    #[test]
    fn missing_rows_and_crates_are_found() {
        let tree = Tree::of(&[("x/Cargo.toml", "[package]\nname = \"new\"")]);
        let found: Vec<_> =
            check_against(&[layer("old", &[])], &tree).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, ["crate `new` is missing in the table of layers", "crate `old` does not exist"]);
    }

    #[test]
    fn upward_table_is_found() {
        assert_eq!(upward(&[layer("a", &["b"]), layer("b", &[])]).len(), 1);
    }
}
