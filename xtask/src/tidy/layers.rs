//! Dependencies between our crates point downward, and only where the table says so.
//!
//! The table is the drawing of the architecture: a row knows only rows above it. An allowance that no
//! manifest uses is a wrong drawing, so it fails too.

use toml::{Table, Value};

use super::Finding;
use crate::tree::{Tree, folder};

/// One of our crates, and which of ours it may depend on.
struct Layer {
    name: &'static str,
    may_know: &'static [&'static str],
    /// Beside those, in its tests.
    tests_may_know: &'static [&'static str],
}

const fn layer(name: &'static str, may_know: &'static [&'static str]) -> Layer {
    Layer { name, may_know, tests_may_know: &[] }
}

/// The crate that every other crate may depend on.
const SHARED: &str = "base";

/// Lowest first.
const LAYERS: &[Layer] = &[
    layer("base", &[]),
    layer("protocol", &[]),
    layer("policy", &["protocol"]),
    layer("secret", &[]),
    layer("agents", &["protocol"]),
    layer("mock", &["protocol", "agents"]),
    layer("store", &["protocol"]),
    layer("jail", &[]),
    Layer { name: "sandbox", may_know: &["protocol", "policy", "jail"], tests_may_know: &["engines"] },
    layer("engines", &["jail", "sandbox"]),
    layer("gateway", &["protocol", "policy", "store", "secret"]),
    layer("egress", &["protocol", "policy", "store", "secret"]),
    Layer {
        name: "session",
        may_know: &["protocol", "policy", "agents", "store", "sandbox", "gateway", "egress"],
        tests_may_know: &["mock", "secret"],
    },
    Layer {
        name: "server",
        may_know: &["protocol", "agents", "store", "sandbox", "session"],
        tests_may_know: &["egress", "gateway", "mock", "policy"],
    },
    Layer {
        name: "cli",
        may_know: &[
            "protocol", "policy", "agents", "mock", "store", "secret", "jail", "sandbox", "gateway", "egress",
            "session", "server",
        ],
        tests_may_know: &["engines"],
    },
    Layer {
        name: "security",
        may_know: &[],
        tests_may_know: &["protocol", "policy", "store", "secret", "jail", "sandbox", "engines", "egress"],
    },
    Layer {
        name: "conformance",
        may_know: &[],
        tests_may_know: &[
            "protocol", "policy", "agents", "mock", "store", "jail", "sandbox", "gateway", "egress", "session",
        ],
    },
    layer("viv-fuzz", &["protocol", "policy", "agents", "store", "sandbox", "gateway", "session", "server"]),
    layer("load", &[]),
    layer("sessions-load", &["protocol", "policy", "agents", "store", "sandbox", "gateway", "session", "server"]),
    layer("xtask", &["protocol"]),
];

/// Holds every manifest against the table, and the table against the manifests.
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
                findings.push(Finding::new(path, 1, format!("cannot be read: {}", error.message()), "mend the TOML"));
                continue;
            }
        };
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        let Some(layer) = layers.iter().find(|layer| Some(layer.name) == name) else {
            let what = format!("crate `{}` is in no layer", name.unwrap_or(folder(path)));
            findings.push(Finding::new(path, 1, what, format!("give it a row in {}", file!())));
            continue;
        };
        seen.push(layer.name);
        findings.extend(check_manifest(layers, layer, path, text, &manifest));
    }
    let gone = layers.iter().filter(|layer| !seen.contains(&layer.name));
    findings.extend(gone.map(|layer| in_table(format!("there is no crate `{}`", layer.name))));
    findings
}

fn check_manifest(layers: &[Layer], layer: &Layer, path: &str, text: &str, manifest: &Table) -> Vec<Finding> {
    let (known, known_in_tests) = (ours(layers, manifest, false), ours(layers, manifest, true));
    let in_tests: Vec<&str> = layer.may_know.iter().chain(layer.tests_may_know).copied().collect();
    let refused = known.iter().filter(|name| !layer.may_know.contains(&name.as_str()));
    let refused_in_tests = known_in_tests.iter().filter(|name| !in_tests.contains(&name.as_str()));
    let mut findings: Vec<Finding> = (refused.chain(refused_in_tests))
        .map(|name| {
            let line = text.lines().position(|line| line.starts_with(name.as_str())).map_or(1, |index| index + 1);
            let what = format!("`{}` may not know `{name}`", layer.name);
            Finding::new(path, line, what, "move the code to the layer that may, or pass what is needed from above")
        })
        .collect();
    let unused = layer.may_know.iter().filter(|name| !known.iter().any(|found| found == *name));
    findings.extend(unused.map(|name| in_table(format!("`{}` may know `{name}` and does not", layer.name))));
    let unused = layer.tests_may_know.iter().filter(|name| !known_in_tests.iter().any(|found| found == *name));
    findings.extend(unused.map(|name| in_table(format!("tests of `{}` may know `{name}` and do not", layer.name))));
    findings
}

/// Rows that know a row at or below their own place.
fn upward(layers: &[Layer]) -> Vec<Finding> {
    let rows = layers.iter().enumerate().flat_map(|(place, layer)| {
        let unknown = layer.may_know.iter().filter(move |name| !layers[..place].iter().any(|row| row.name == **name));
        unknown.map(|name| in_table(format!("`{}` stands above no row `{name}`", layer.name)))
    });
    rows.collect()
}

fn in_table(what: String) -> Finding {
    Finding::new(file!(), 1, what, "make the table LAYERS say what is true")
}

/// Which of our crates a manifest depends on, in its product or in its tests alone.
fn ours(layers: &[Layer], manifest: &Table, tests: bool) -> Vec<String> {
    let sections: &[&str] = if tests { &["dev-dependencies"] } else { &["dependencies", "build-dependencies"] };
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let places = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let tables = places.flat_map(|place| sections.iter().filter_map(|section| place.get(*section)?.as_table()));
    let names = tables.flatten().map(|(key, value)| {
        // A dependency may be renamed; the package is what counts.
        value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned()
    });
    names.filter(|name| name != SHARED && layers.iter().any(|layer| layer.name == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Layer] =
        &[layer("low", &[]), Layer { name: "high", may_know: &["low"], tests_may_know: &["kit"] }, layer("kit", &[])];

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
    fn what_the_table_says_is_no_finding() {
        check("", GOOD, &[]);
    }

    #[test]
    fn knowing_a_higher_layer_is_found_in_every_section() {
        check("[dependencies]\nhigh.workspace = true", GOOD, &["`low` may not know `high`"]);
        check("[build-dependencies]\nhigh.workspace = true", GOOD, &["`low` may not know `high`"]);
        check("[target.'cfg(unix)'.dependencies]\nhigh.path = \"x\"", GOOD, &["`low` may not know `high`"]);
        check("[dependencies]\nother = { package = \"high\" }", GOOD, &["`low` may not know `high`"]);
    }

    #[test]
    fn an_allowance_for_tests_is_none_for_the_product() {
        let high =
            "[dependencies]\nlow.workspace = true\nkit.workspace = true\n[dev-dependencies]\nkit.workspace = true";
        check("", high, &["`high` may not know `kit`"]);
        check("[dev-dependencies]\nkit.workspace = true", GOOD, &["`low` may not know `kit`"]);
    }

    #[test]
    fn an_allowance_that_nobody_uses_is_found() {
        let unused = ["`high` may know `low` and does not", "tests of `high` may know `kit` and do not"];
        check("", "", &unused);
    }

    #[test]
    fn a_crate_without_a_row_and_a_row_without_a_crate_are_found() {
        let tree = Tree::of(&[("x/Cargo.toml", "[package]\nname = \"new\"")]);
        let found: Vec<_> =
            check_against(&[layer("old", &[])], &tree).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, ["crate `new` is in no layer", "there is no crate `old`"]);
    }

    #[test]
    fn a_table_that_points_upward_is_found() {
        assert_eq!(upward(&[layer("a", &["b"]), layer("b", &[])]).len(), 1);
    }
}
