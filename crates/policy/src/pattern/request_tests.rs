//! Paths as attackers write them, and rules about paths.

use proptest::prelude::*;

use super::{PathError, Request, RequestPath, RequestPattern};

fn request(method: &str, path: &str) -> Request {
    Request { method: method.to_owned(), path: RequestPath::read(path) }
}

#[track_caller]
fn check(methods: Option<&str>, path: Option<&str>, asked: (&str, &str), expected: bool) {
    let pattern = RequestPattern::parse(methods, path).unwrap();
    assert_eq!(pattern.matches(Some(&request(asked.0, asked.1))), expected, "{pattern:?} on {asked:?}");
}

#[test]
fn methods_and_paths_are_matched_name_by_name() {
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
fn what_servers_read_in_two_ways_is_matched_by_no_rule_about_paths() {
    let refused = [
        ("/files/../secret", PathError::Dots),
        ("/files/./a", PathError::Dots),
        ("/files/..", PathError::Dots),
        ("/files/%2e%2e/secret", PathError::Dots),
        ("/files/.%2E/secret", PathError::Dots),
        ("/files/..;/secret", PathError::Dots),
        ("/files/..;a=b/secret", PathError::Dots),
        ("/files//secret", PathError::Empty),
        ("//files", PathError::Empty),
        ("/files/;x/secret", PathError::Empty),
        ("/files/;", PathError::Empty),
        ("/files/%2fsecret", PathError::Encoded),
        ("/files/..%2Fsecret", PathError::Encoded),
        ("/files/%5csecret", PathError::Encoded),
        ("/files/%252e%252e/secret", PathError::Encoded),
        ("/files/%00", PathError::Encoded),
        ("/files/%0d%0a", PathError::Encoded),
        ("/files/%7f", PathError::Encoded),
        ("/files/%", PathError::Percent),
        ("/files/%2", PathError::Percent),
        ("/files/%u002e", PathError::Percent),
        ("/files/..\\secret", PathError::Character),
        ("/files/ä", PathError::Character),
        ("files", PathError::NotAbsolute),
        ("", PathError::NotAbsolute),
        ("*", PathError::NotAbsolute),
    ];
    for (path, why) in refused {
        assert_eq!(RequestPath::read(path), Err(why), "{path}");
        check(None, Some("/**"), ("GET", path), false);
    }
}

#[test]
fn a_rule_is_written_plainly_or_refused() {
    for methods in ["", "get", "GET|", "GET,HEAD", "GET POST", "CONNECT"] {
        assert!(RequestPattern::parse(Some(methods), None).is_err(), "{methods}");
    }
    for path in ["", "files", "/a//b", "/a/../b", "/a/%62", "/a*", "/a/*", "/**/b", "/a?b", "/a//**", "//**", "/{a,b}"]
    {
        assert!(RequestPattern::parse(None, Some(path)).is_err(), "{path}");
    }
}

#[test]
fn what_nobody_looks_into_needs_a_rule_about_everything() {
    assert!(RequestPattern::parse(None, None).unwrap().matches(None));
    assert!(!RequestPattern::parse(Some("GET"), None).unwrap().matches(None));
    assert!(!RequestPattern::parse(None, Some("/**")).unwrap().matches(None));
}

proptest! {
    /// Whatever a server does of what servers do, it stays in the directory that a rule names.
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
    fn any_text_is_read_without_harm(text in ".{0,60}") {
        let _ = RequestPath::read(&text);
        let _ = RequestPattern::parse(Some(&text), Some(&text));
    }
}
