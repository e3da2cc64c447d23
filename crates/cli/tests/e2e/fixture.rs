//! The fixture of the end-to-end tests.

use testkit::VivFixture;

/// Returns a new fixture with one file in its workspace.
pub(crate) fn viv_fixture() -> VivFixture {
    let fixture = VivFixture::new(program());
    std::fs::write(fixture.workspace().join("kept.txt"), "as it was\n").unwrap();
    fixture
}

/// The binary under test.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_viv")
}
