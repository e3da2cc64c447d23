//! Random bodies, starting from the corpus of the fuzz target `request_bodies`.

#[path = "../../../../fuzz/rules/request_bodies.rs"]
mod request_bodies;

use std::panic::AssertUnwindSafe;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("any_body_is_taken_or_refused_with_a_problem", || {
        let directory = tempfile::tempdir()?;
        let api = AssertUnwindSafe(request_bodies::Api::new(directory.path()));
        testkit::try_mutations("request_bodies", |data| api.check(data));
        Ok(())
    })]
}
