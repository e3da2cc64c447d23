//! Tests of path rules, with paths as attackers write them.

use proptest::prelude::*;

use super::{HttpRequest, RequestPath, RequestPathError, RequestPattern};

fn request(method: &str, path: &str) -> HttpRequest {
    HttpRequest { method: method.to_owned(), path: RequestPath::read(path) }
}

#[track_caller]
fn check(methods: Option<&str>, path: Option<&str>, candidate: (&str, &str), expected: bool) {
    let pattern = RequestPattern::parse(methods, path).unwrap();
    assert_eq!(pattern.matches(Some(&request(candidate.0, candidate.1))), expected, "{pattern:?} on {candidate:?}");
}

#[test]
fn methods_and_paths_are_matched_by_segment() {
    check(Some("GET|HEAD"), None, ("HEAD", "/x"), true);
    check(Some("GET|HEAD"), None, ("POST", "/x"), false);
    check(Some("GET"), None, ("GET", "/a/../b"), true);
    check(None, Some("/files/**"), ("PUT", "/files/a/b?q=1"), true);
    check(None, Some("/files/**"), ("PUT", "/files"), true);
    check(None, Some("/files/**"), ("PUT", "/files/"), true);
    check(None, Some("/files/**"), ("PUT", "/filesystem"), false);
    check(None, Some("/files"), ("PUT", "/files/"), false);
    check(None, Some("/files/"), ("PUT", "/files/"), true);
    check(None, Some("/**"), ("PUT", "/"), true);
    check(None, Some("/files/**"), ("GET", "/%66iles/%61"), true);
    check(None, Some("/files/**"), ("GET", "/FILES/a"), false);
}

#[test]
fn ambiguous_paths_match_no_path_rule() {
    let refused = [
        ("/files/../secret", RequestPathError::Dots),
        ("/files/./a", RequestPathError::Dots),
        ("/files/..", RequestPathError::Dots),
        ("/files/%2e%2e/secret", RequestPathError::Dots),
        ("/files/.%2E/secret", RequestPathError::Dots),
        ("/files/..;/secret", RequestPathError::Dots),
        ("/files/..;a=b/secret", RequestPathError::Dots),
        ("/files//secret", RequestPathError::Empty),
        ("//files", RequestPathError::Empty),
        ("/files/;x/secret", RequestPathError::Empty),
        ("/files/;", RequestPathError::Empty),
        ("/files/%2fsecret", RequestPathError::Encoded),
        ("/files/..%2Fsecret", RequestPathError::Encoded),
        ("/files/%5csecret", RequestPathError::Encoded),
        ("/files/%252e%252e/secret", RequestPathError::Encoded),
        ("/files/%00", RequestPathError::Encoded),
        ("/files/%0d%0a", RequestPathError::Encoded),
        ("/files/%7f", RequestPathError::Encoded),
        ("/files/%", RequestPathError::Percent),
        ("/files/%2", RequestPathError::Percent),
        ("/files/%u002e", RequestPathError::Percent),
        ("/files/..\\secret", RequestPathError::Character),
        ("/files/ä", RequestPathError::Character),
        ("files", RequestPathError::NotAbsolute),
        ("", RequestPathError::NotAbsolute),
        ("*", RequestPathError::NotAbsolute),
    ];
    for (path, why) in refused {
        assert_eq!(RequestPath::read(path), Err(why), "{path}");
        check(None, Some("/**"), ("GET", path), false);
    }
}

#[test]
fn invalid_request_patterns_are_rejected() {
    for methods in ["", "get", "GET|", "GET,HEAD", "GET POST", "CONNECT"] {
        assert!(RequestPattern::parse(Some(methods), None).is_err(), "{methods}");
    }
    for path in ["", "files", "/a//b", "/a/../b", "/a/%62", "/a*", "/a/*", "/**/b", "/a?b", "/a//**", "//**", "/{a,b}"]
    {
        assert!(RequestPattern::parse(None, Some(path)).is_err(), "{path}");
    }
}

#[test]
fn unreadable_traffic_needs_a_rule_without_method_and_path() {
    assert!(RequestPattern::parse(None, None).unwrap().matches(None));
    assert!(!RequestPattern::parse(Some("GET"), None).unwrap().matches(None));
    assert!(!RequestPattern::parse(None, Some("/**")).unwrap().matches(None));
}

proptest! {
    /// A matching path stays below the directory of the rule, however a server decodes it.
    #[test]
    fn no_path_that_matches_leads_out(names in prop::collection::vec("[a.;%2fFeE5cC/\\\\]{0,6}", 0..5)) {
        let path = format!("/files/{}", names.join("/"));
        let rule = RequestPattern::parse(None, Some("/files/**")).unwrap();
        if !rule.matches(Some(&request("GET", &path))) {
            return Ok(());
        }
        let mut read = path;
        for _ in 0..3 {
            let cut: Vec<&str> = read.split('/').map(|name| name.split(';').next().unwrap_or(name)).collect();
            prop_assert!(!cut.contains(&".."), "{}", read);
            read = read.to_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/").replace("%25", "%");
        }
    }

    #[test]
    fn any_text_is_parsed_without_panic(text in ".{0,60}") {
        let _ = RequestPath::read(&text);
        let _ = RequestPattern::parse(Some(&text), Some(&text));
    }
}
