//! Fixtures of the gateway tests: a gateway with one session, its journal, an HTTP client and a stub vendor.

pub(crate) mod test_client;
pub(crate) mod test_gateway;
pub(crate) mod test_journal;

pub(crate) use testkit::stub_vendor;
