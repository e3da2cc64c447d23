//! What a person reads about a policy that is right: sentences, differences, the reference.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are not seen as tests.

use policy::{BaseLayer, CeilingLayer, PolicySource, Preset, diff, effective, explain, narrow, reference, schema};

fn sentences(base: &BaseLayer, narrowings: &[&str]) -> String {
    let narrowings: Vec<_> = narrowings.iter().map(|argument| narrow(argument).unwrap()).collect();
    let policy = effective(&CeilingLayer::built_in().unwrap(), base, &narrowings);
    let line = |s: &policy::Explanation| format!("{} [{} {}]", s.text, s.layer, s.rule.location());
    explain(&policy).iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn presets_explained() {
    for preset in Preset::ALL {
        insta::assert_snapshot!(format!("explain_{preset}"), sentences(&BaseLayer::preset(preset).unwrap(), &[]));
    }
}

#[test]
fn an_empty_policy_explained() {
    let empty = BaseLayer::read(&PolicySource::new("sandbox.policy.yaml", "# nothing\n")).unwrap();
    insta::assert_snapshot!(sentences(&empty, &[]));
}

#[test]
fn narrowings_explained() {
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
fn more_disk_than_memory_is_noted_and_as_much_is_not() {
    let told = |proc: &str| {
        let base = BaseLayer::read(&PolicySource::new("test", format!("proc: {{{proc}}}\n"))).unwrap();
        (policy::warnings(base.policy()), sentences(&base, &[]).contains("What it writes lies in memory"))
    };
    let (notes, is_explained) = told("memory: 1GiB, disk: 2GiB");
    assert!(notes.len() == 1 && notes[0].contains("`proc.disk`") && notes[0].contains("1GiB"), "{notes:?}");
    assert!(is_explained);
    assert_eq!(told("memory: 2GiB, disk: 2GiB"), (Vec::new(), false));
}

#[test]
fn differences_between_presets() {
    let [strict, balanced, open] = Preset::ALL.map(|preset| BaseLayer::preset(preset).unwrap());
    insta::assert_json_snapshot!("diff_strict_balanced", diff(strict.policy(), balanced.policy()));
    insta::assert_json_snapshot!("diff_open_balanced", diff(open.policy(), balanced.policy()));
    assert_eq!(diff(open.policy(), open.policy()), []);
}

#[test]
fn the_schema_is_a_promise_to_editors() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    insta::assert_json_snapshot!(schema);
}

/// The page is written by hand around the part between the two marks, which this test holds to the code.
#[test]
fn the_reference_page_is_what_the_code_says() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (start, end) = ("<!-- reference: generated -->\n", "<!-- reference: end -->");
    let (head, rest) = page.split_once(start).expect("the page marks where the reference begins");
    let (written, tail) = rest.split_once(end).expect("the page marks where the reference ends");
    let generated = format!("\n{}", reference().unwrap());
    if written != generated && std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{start}{generated}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(written, generated, "run the tests of `policy` with UPDATE_DOCS=1 and look at the difference");
}

/// Every policy shown on the page is one that works.
#[test]
fn the_cookbook_is_read_as_it_stands() {
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
