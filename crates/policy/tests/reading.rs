//! Texts about valid policies: explanations, differences, and the reference page.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are not seen as tests.

use policy::{BaseLayer, CeilingLayer, PolicySource, Preset, diff, effective, explain, narrow, reference, schema};

fn sentences(base: &BaseLayer, narrowings: &[&str]) -> String {
    let narrowings: Vec<_> = narrowings.iter().map(|argument| narrow(argument).unwrap()).collect();
    let policy = effective(&CeilingLayer::built_in().unwrap(), base, &narrowings);
    let line = |s: &policy::Explanation| format!("{} [{} {}]", s.text, s.layer, s.rule.location());
    explain(&policy).iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn presets_are_explained() {
    for preset in Preset::ALL {
        insta::assert_snapshot!(format!("explain_{preset}"), sentences(&BaseLayer::preset(preset).unwrap(), &[]));
    }
}

#[test]
fn empty_policy_is_explained() {
    let empty = BaseLayer::read(&PolicySource::new("sandbox.policy.yaml", "# nothing\n")).unwrap();
    insta::assert_snapshot!(sentences(&empty, &[]));
}

#[test]
fn narrowing_layers_are_explained() {
    let text = "net:\n  enabled: true\n  allowlist: [\"*.example.org:443\", packages.example.com]\n  denylist: [telemetry.example.org]\ndegrade: {memory: rlimit, landlock: none}\nmodels: {allow: [\"claude-*\", \"gpt-*\"]}\ntools: {allow: [\"*\"]}\n";
    let base = BaseLayer::read(&PolicySource::new("sandbox.policy.yaml", text)).unwrap();
    let narrowings = [
        "net.allowlist=packages.example.org",
        "proc.memory=64MiB",
        "models.allow=*-sonnet-*",
        "tools.deny=Bash(curl *)",
    ];
    insta::assert_snapshot!(sentences(&base, &narrowings));
}

#[test]
fn disk_limit_above_the_memory_limit_is_a_warning() {
    let explained = |proc: &str| {
        let base =
            BaseLayer::read(&PolicySource::new("test", format!("fs: {{read: [/usr]}}\nproc: {{{proc}}}\n"))).unwrap();
        (policy::warnings(base.policy()), sentences(&base, &[]).contains("Written files are held in memory"))
    };
    let (notes, is_explained) = explained("memory: 1GiB, disk: 2GiB");
    assert!(notes.len() == 1 && notes[0].contains("`proc.disk`") && notes[0].contains("1GiB"), "{notes:?}");
    assert!(is_explained);
    assert_eq!(explained("memory: 2GiB, disk: 2GiB"), (Vec::new(), false));
}

#[test]
fn policy_that_can_run_nothing_is_a_warning() {
    let warnings = |text: &str| policy::warnings(BaseLayer::read(&PolicySource::new("test", text)).unwrap().policy());
    assert!(warnings("version: 1\n")[0].contains("`extends: balanced`"));
    assert!(warnings("version: 1\nextends: strict\n").is_empty());
}

#[test]
fn presets_are_compared() {
    let [strict, balanced, open] = Preset::ALL.map(|preset| BaseLayer::preset(preset).unwrap());
    insta::assert_json_snapshot!("diff_strict_balanced", diff(strict.policy(), balanced.policy()));
    insta::assert_json_snapshot!("diff_open_balanced", diff(open.policy(), balanced.policy()));
    assert_eq!(diff(open.policy(), open.policy()), []);
}

#[test]
fn json_schema_is_unchanged() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    insta::assert_json_snapshot!(schema);
}

/// The reference between the two markers is generated; the rest of the page is written by hand.
#[test]
fn reference_page_matches_the_code() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (start, end) = ("<!-- reference: generated -->\n", "<!-- reference: end -->");
    let (head, rest) = page.split_once(start).expect("the page marks the start of the reference");
    let (written, tail) = rest.split_once(end).expect("the page marks the end of the reference");
    let generated = format!("\n{}", reference().unwrap());
    if written != generated && std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{start}{generated}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(written, generated, "run the tests of `policy` with UPDATE_DOCS=1 and review the change");
}

/// Every policy in the cookbook is valid.
#[test]
fn cookbook_policies_are_valid() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut recipes = 0;
    for recipe in page.split("```yaml\n").skip(1) {
        let text = recipe.split("```").next().unwrap();
        BaseLayer::read(&PolicySource::new("docs/policy.md", text)).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
        recipes += 1;
    }
    assert!(recipes >= 5, "the cookbook has only {recipes} recipes");
}
