//! The variables that tell programs inside about the proxy.

use std::net::SocketAddr;

/// What to set in the sandbox of a session whose proxy listens on `address`, as seen inside.
///
/// Every name in both spellings: programs differ. What is on the sandbox's own loopback needs no proxy, and
/// the proxy would refuse it.
pub(crate) fn proxy_environment(address: SocketAddr) -> Vec<(&'static str, String)> {
    let proxy = format!("http://{address}");
    let direct = "localhost,127.0.0.1,::1".to_owned();
    let mut variables = Vec::new();
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        variables.push((name, proxy.clone()));
    }
    variables.extend([("NO_PROXY", direct.clone()), ("no_proxy", direct)]);
    // Node.js reads the variables above only when it is told to.
    variables.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    variables
}

/// What to set in a sandbox where `bundle` names the certificates to trust. Programs differ, so every name of it.
pub(crate) fn trust_environment(bundle: &str) -> Vec<(&'static str, String)> {
    let names = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "NODE_EXTRA_CA_CERTS",
        "NPM_CONFIG_CAFILE",
        "DENO_CERT",
        "AWS_CA_BUNDLE",
    ];
    names.into_iter().map(|name| (name, bundle.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_finds_the_proxy_and_none_uses_it_for_the_gateway() {
        let variables = proxy_environment(([127, 0, 0, 1], 18081).into());
        let value = |name| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str());
        assert_eq!(value("https_proxy"), Some("http://127.0.0.1:18081"));
        assert!(value("NO_PROXY").unwrap().split(',').any(|host| host == "127.0.0.1"));
    }
}
